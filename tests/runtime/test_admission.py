"""Admission through the runtime: the order of the checks, and what an answer promises."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.admission import RETRYABLE, Admission
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.turn import Claim, Settle

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts
from tests.rows import all_rows_in

LEFT_BEHIND = ("cf_event", "cf_scope", "cf_subject", "cf_external_id", "cf_payload", "cf_queues_v1", "cf_unresolved_v1")


async def left_behind(host: Host) -> list[int]:
    return [await host.count(table) for table in LEFT_BEHIND]


def identity(**values: Any) -> Identity:
    return Identity(**{"tenant": "acme", "principal": "ann", "verified": True, **values})


TOO_LONG = {"text": "x" * 32_769}
COMMAND = {"text": " /start"}

# Each row fails its own check and every later one, so the answer tells which comes first.
REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    ("malformed", {"event_id": ""}, "raises", "denied"),
    ("malformed", {"event_id": "", **TOO_LONG}, "raises", "denied"),
    ("malformed", {"text": ""}, "raises", "denied"),
    ("malformed", {"actor": 7}, "raises", "denied"),
    ("malformed", {"unknown": "field"}, "raises", "denied"),
    ("oversized", TOO_LONG, "raises", "denied"),
    ("oversized", {"text": " /" + "ü" * 16_384}, "raises", "denied"),
    ("authorization_failed", COMMAND, "raises", "denied"),
    ("authorization_failed", {}, "raises", "denied"),
    ("rejected", COMMAND, "none", "denied"),
    ("rejected", {}, "none", "denied"),
    ("rejected", {}, "identity", "denied"),
    ("revoked", COMMAND, "unverified", "denied"),
    ("revoked", {}, "unverified", "denied"),
    ("revoked", {}, "revoked", "denied"),
    ("revoked", {}, "expired", "denied"),
    ("revoked", {}, "future", "denied"),
    ("unknown_command", COMMAND, "granted", "unsupported"),
]


@pytest.mark.contract("ADM-01", "ADM-06", "IDN-04")
@pytest.mark.parametrize(("reason", "fields", "grant", "status"), REFUSALS)
async def test_the_first_check_that_fails_answers_and_nothing_is_left(
    host: Host, reason: str, fields: dict[str, Any], grant: str, status: str
) -> None:
    """A malformed or oversized event never reaches host code."""
    now = host.core.now()

    def authorize(inbound: Inbound, action: str) -> Any:
        assert ("command" if "text" in fields and fields["text"] is COMMAND["text"] else "message") == action
        match grant:
            case "raises":
                raise ValueError("the host's own trouble")
            case "none":
                return None
            case "identity":
                return identity()
            case "unverified":
                return Grant(identity=identity(verified=False), aliases=("agent",))
            case "revoked":
                return Grant(identity=identity(revoked_at=at(now)), aliases=("agent",))
            case "expired":
                return Grant(identity=identity(expires_at=at(now)), aliases=("agent",))
            case "future":
                return Grant(identity=identity(issued_at=at(now + 60_000_001)), aliases=("agent",))
        return Grant(identity=identity(), aliases=("agent",))

    host.on_authorize = authorize
    before = await left_behind(host)
    answer = await host.runtime.admit({**host.inbound(), **fields})

    assert Admission(status, reason) == answer  # type: ignore[arg-type]
    assert not answer.retryable
    assert before == await left_behind(host)
    assert (reason in ("malformed", "oversized")) is (not host.asked)
    assert [] == host.resolved + host.turns + host.sent


def at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


@pytest.mark.contract("ADM-01", "ADM-06")
async def test_stopped_comes_before_everything(host: Host) -> None:
    """Even what is malformed is not looked at; the transport may try again elsewhere."""
    await host.runtime.stop()
    answer = await host.runtime.admit({"text": ""})

    assert Admission("denied", "stopped") == answer
    assert answer.retryable
    assert [] == host.asked


@pytest.mark.contract("ADM-01", "ADM-05")
async def test_a_stop_while_the_host_is_asked_refuses_before_the_journal(host: Host) -> None:
    """Nothing is accepted that this process will not run."""

    async def authorize(inbound: Inbound, action: str) -> Grant:
        await host.runtime.stop()
        return Grant(identity=identity(), aliases=("agent",))

    host.on_authorize = authorize

    assert Admission("denied", "stopped") == await host.admit()
    assert [] == await host.types()


@pytest.mark.contract("ADM-01")
@pytest.mark.parametrize("value", [None, 7, "text", b"bytes", [], [("connection", "tg")], object()])
async def test_what_is_no_mapping_is_malformed(host: Host, value: Any) -> None:
    """Whatever a transport hands over, the answer is an admission."""
    assert Admission("denied", "malformed") == await host.runtime.admit(value)


@pytest.mark.contract("ADM-01", "ADM-06", "LIM-01")
@pytest.mark.parametrize(
    ("limits", "second_route", "fits"),
    [
        ({"max_pending_per_binding": 2}, "c1", 2),
        ({"max_pending_per_process": 2}, "c1", 2),
        ({"max_pending_per_process": 2}, "c2", 2),
        ({"max_routes": 1}, "c2", 0),
    ],
)
async def test_capacity_is_decided_in_the_append(hosts: Hosts, limits: dict[str, Any], second_route: str, fits: int) -> None:
    """The running entry does not count; a refusal leaves nothing, and the same event is accepted once there is room."""
    host = await hosts.open(max_active_sessions=1, **limits)
    held = host.held()
    await host.accept("m0")
    await held.started.wait()
    for number in range(fits):
        await host.accept(f"m{number + 1}", second_route if number else "c1")
    before = await left_behind(host)
    refused = await host.admit("late", second_route)

    assert Admission("denied", "capacity") == refused
    assert refused.retryable
    assert before == await left_behind(host)
    room = asyncio.create_task(host.runtime.wait_for_room())
    held.go.set()
    await room
    await host.drain()
    assert "accepted" == (await host.admit("late", second_route)).status
    await host.drain()
    assert fits + 2 == len(host.sent)


@pytest.mark.contract("ADM-01", "LIM-01")
async def test_capacity_holds_for_a_crowd_that_comes_at_once(hosts: Hosts) -> None:
    """Decided inside the append, so a burst in one group takes exactly the room there is."""
    host = await hosts.open(max_pending_per_process=7, max_pending_per_binding=3)
    held = host.held()
    await host.accept("m0", "busy")
    await held.started.wait()
    with_room = await asyncio.gather(*(host.admit(f"m{n}", "busy") for n in range(1, 31)))

    assert 3 == sum(answer.status == "accepted" for answer in with_room)
    assert {"capacity"} == {answer.reason for answer in with_room if answer.status != "accepted"}
    held.go.set()
    await host.drain()


@pytest.mark.contract("ADM-02")
async def test_two_deliveries_at_once_are_one_operation(host: Host) -> None:
    """One is accepted, the others are acknowledged as its duplicate, and there is one turn."""
    answers = await asyncio.gather(*(host.admit() for _ in range(20)))
    await host.drain()

    assert [True] * 20 == [answer.status == "accepted" for answer in answers]
    assert 19 == sum(answer.duplicate for answer in answers)
    assert 1 == len({answer.operation_id for answer in answers})
    assert 1 == len(host.turns) == len(host.sent)
    assert 1 == (await host.types()).count("operation.admitted") == (await host.types()).count("operation.repeated")
    assert [(18,)] == await host.rows("SELECT count FROM cf_repeat")


@pytest.mark.contract("ADM-02")
async def test_two_processes_get_one_event(hosts: Hosts) -> None:
    """Whichever comes second acknowledges the first's operation."""
    first, second = await hosts.open(), await hosts.open()
    one, other = await asyncio.gather(first.admit(), second.admit())
    await first.drain()
    await second.drain()

    assert one.operation_id == other.operation_id
    assert [False, True] == sorted([one.duplicate, other.duplicate])
    assert 1 == len(first.sent) + len(second.sent)


@pytest.mark.contract("ADM-02")
async def test_a_repeat_with_another_text_is_flagged_while_the_first_is_kept(host: Host) -> None:
    """The first text counts."""
    held = host.held()
    await host.accept(text="first")
    await held.started.wait()
    repeated = await host.admit(text="second")
    held.go.set()
    await host.drain()
    afterwards = await host.admit(text="third")

    assert (True, True) == (repeated.duplicate, repeated.text_differs)
    assert (True, False) == (afterwards.duplicate, afterwards.text_differs)
    assert ["re: first"] == [reply.text for reply in host.sent]


@pytest.mark.contract("ADM-03", "ADM-04", "RUN-01")
async def test_admit_returns_after_the_append_and_before_the_agent(host: Host) -> None:
    """The answer tells where the operation stands; the entry is in its queue by the same append."""
    agent_called, go = asyncio.Event(), asyncio.Event()
    seen: list[list[str]] = []

    async def resolve(*_: Any) -> Any:
        seen.append(await host.types())
        agent_called.set()
        await go.wait()
        return host._echo

    host.on_resolve = resolve
    answer = await host.admit()

    assert not agent_called.is_set()
    assert ("accepted", None, False, 1, 3) == (answer.status, answer.reason, answer.duplicate, answer.version, answer.position)
    assert ["opening.started", "opening.epoch_raised", "operation.admitted"] == await host.types()
    assert 1 == await host.count("cf_queues_v1")
    go.set()
    await host.drain()
    assert ["operation.admitted"] == seen[0][2:]


@pytest.mark.contract("ADM-05", "RUN-07")
async def test_a_caller_that_is_cancelled_strands_nothing(host: Host) -> None:
    """What the journal has taken is run, though nobody waits for the answer any more."""
    run_group = host.core.committer._run_group
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Admission]

    def late(group: Any) -> None:
        run_group(group)
        if any(isinstance(request.command, AdmitInbound) for request in group):
            asyncio.run_coroutine_threadsafe(cancel(), loop).result(10)

    async def cancel() -> None:
        task.cancel()
        entered.set()

    host.core.committer._run_group = late
    task = asyncio.create_task(host.runtime.admit(host.inbound()))
    with pytest.raises(asyncio.CancelledError):
        await task
    host.core.committer._run_group = run_group
    await entered.wait()
    await host.until_event("reply.delivered")

    assert 1 == len(host.sent)


@pytest.mark.contract("ADM-07", "ADM-06")
async def test_a_store_that_fails_is_unavailable(host: Host) -> None:
    """Never a driver's exception, and never a duplicate; the repeat is accepted once the store is back."""
    with host.failing(AdmitInbound):
        answer = await host.admit()
    assert Admission("denied", "unavailable") == answer
    assert answer.retryable
    assert 1 == host.journal.diagnostics()["storage_failures"]
    again = await host.admit()

    assert ("accepted", False) == (again.status, again.duplicate)
    await host.drain()
    assert 1 == len(host.sent)


@pytest.mark.contract("ADM-07", "RUN-07")
@pytest.mark.parametrize("command", [Claim, Settle])
async def test_a_turn_outlives_a_store_that_was_away(host: Host, command: type) -> None:
    """A claim is tried again; what a run gave is kept until the journal has it."""
    with host.failing(command) as failed:
        await host.accept()
        await failed.wait()
    await host.drain()

    assert ["re: hello"] == [reply.text for reply in host.sent]
    assert 1 == len(host.turns)


@pytest.mark.no_engine("a property of an answer")
@pytest.mark.contract("ADM-06")
def test_retryable_tells_what_must_not_be_acknowledged() -> None:
    """A property, so that no host keeps a list."""
    assert frozenset({"capacity", "unavailable", "stopped"}) == RETRYABLE
    assert Admission("denied", "capacity").retryable
    assert not Admission("denied", "rejected").retryable
    assert not Admission("accepted").retryable


@pytest.mark.contract("IDN-01", "ADM-01")
async def test_claims_reach_authorize_and_set_nothing(host: Host) -> None:
    """The scope is that of the identity; claims are stored nowhere."""
    await host.answer("m1")
    claims = {"tenant": "evil", "marker": "claims-are-not-kept"}
    await host.accept("m2", claims=claims)
    await host.drain()

    assert claims == host.asked[-1][0].claims
    assert 1 == await host.count("cf_scope")
    everything = await asyncio.to_thread(all_rows_in, host.core)
    assert [row for row in everything if "pat" in row or "ann" in row], "what is kept is found"
    assert not [row for row in everything if "claims-are-not-kept" in row or "evil" in row]
