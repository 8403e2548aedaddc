"""Turns: claimed before anything runs, one at a time on a route, settled with the answer in one append."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.domain.identity import Grant, Identity, instant_of
from counterfoil.infrastructure.commands.turn import Claim, Release, Settle
from counterfoil.infrastructure.route_worker import FAILURE_NOTICE

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts


@pytest.mark.contract("RUN-01", "RUN-04", "RPL-01")
async def test_a_turn_in_order(host: Host) -> None:
    """The lease and the claim before the agent; settlement and reply in one append before the send; mark and release in one."""
    seen: dict[str, list[str]] = {}

    async def agent(turn: Turn) -> AgentAnswer:
        seen["agent"] = await host.types()
        return AgentAnswer(text="hi", leaf="leaf-1")

    async def deliver(_: object) -> None:
        seen["deliver"] = await host.types()

    host.on_turn, host.on_deliver = agent, deliver
    groups = groups_of(host)
    operation_id = await host.answer()

    admitted = ["opening.started", "opening.epoch_raised", "operation.admitted"]
    claimed = ["lock.granted", "binding.opened", "operation.claimed"]
    settled = ["operation.settled", "reply.staged", "binding.advanced"]
    marked = ["reply.delivered", "lock.released"]
    assert [*admitted, *claimed] == seen["agent"]
    assert [*admitted, *claimed, *settled] == seen["deliver"]
    assert [*admitted, *claimed, *settled, *marked] == await host.types()
    assert [3, 3, 3, 2] == groups
    operation = await host.operation(operation_id)
    assert ("succeeded", "delivered", 1) == (operation.phase, operation.reply, operation.attempts)
    assert 0 == await host.count("cf_queues_v1") == await host.count("cf_deadline")


def groups_of(host: Host) -> list[int]:
    """Return a list to which each commit adds how many events it appended."""
    groups: list[int] = []
    positions = [0]

    def committed() -> None:
        position = host.core.read(lambda store: store.head().position)
        groups.append(position - positions[0])
        positions[0] = position

    host.core.engine.on_commit.append(committed)
    return groups


@pytest.mark.contract("RUN-01")
async def test_a_turn_tells_the_agent_what_came_in(host: Host) -> None:
    """In the clear, with the session of the route."""
    await host.accept("m1", "-100", "hello", thread="t7")
    await host.accept("m2", "-100", "again", thread="t7")
    await host.accept("m3", "-100", "elsewhere")
    await host.drain()
    by_event = {turn.event_id: turn for turn in host.turns}

    first = by_event["m1"]
    assert ("tg", "-100", "t7", "ann", "hello", 0) == (
        first.connection,
        first.conversation,
        first.thread,
        first.actor,
        first.text,
        first.generation,
    )
    assert first.session_id == by_event["m2"].session_id != by_event["m3"].session_id
    assert by_event["m3"].thread is None


@pytest.mark.contract("RUN-03", "RUN-07")
async def test_a_route_runs_one_turn_at_a_time_in_order(host: Host) -> None:
    """Whatever comes while it is busy waits; nothing overtakes."""
    held = host.held()
    await host.accept("m0")
    await held.started.wait()
    await asyncio.gather(*(host.accept(f"m{number}") for number in range(1, 9)))
    order = [row.correlation for row in await host.events() if row.type == "operation.admitted"]
    held.go.set()
    await host.drain()

    assert order == [row.correlation for row in await host.events() if row.type == "operation.claimed"]
    assert 9 == len(host.sent)
    assert 1 == (await host.types()).count("lock.granted") == (await host.types()).count("lock.released")


@pytest.mark.contract("RUN-03", "LIM-01")
async def test_routes_run_side_by_side_up_to_max_active_sessions(hosts: Hosts) -> None:
    """A fifth waits for a slot."""
    host = await hosts.open(max_active_sessions=4)
    running = 0
    most = 0
    full, go = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        assert running <= host.journal.diagnostics()["active"] <= 4
        if running == 4:
            full.set()
        await go.wait()
        running -= 1
        return "ok"

    host.on_turn = agent
    for number in range(12):
        await host.accept(f"m{number}", f"c{number}")
    await full.wait()
    assert 8 == host.journal.diagnostics()["queued"]
    go.set()
    await host.drain()

    assert 4 == most
    assert 12 == len(host.sent)


@pytest.mark.contract("RUN-07", "RUN-11")
@pytest.mark.parametrize("how", ["raises", "raises_base", "exits", "wrong_type", "cancels_itself"])
async def test_a_turn_that_fails_leaves_the_rest_in_order(host: Host, how: str) -> None:
    """The person gets a fixed sentence, never what the failure said."""

    async def agent(turn: Turn) -> Any:
        if turn.event_id == "m1":
            match how:
                case "raises":
                    raise ValueError(f"secret {turn.text}")
                case "raises_base":
                    raise BaseExceptionGroup("secret", [ValueError("secret")])
                case "exits":
                    raise SystemExit(3)
                case "wrong_type":
                    return {"text": "secret"}
                case "cancels_itself":
                    raise asyncio.CancelledError
        return f"re: {turn.text}"

    host.on_turn = agent
    first = await host.accept("m1")
    await host.accept("m2", text="two")
    await host.accept("m3", text="three")
    await host.drain()

    if how == "cancels_itself":
        assert ["re: two", "re: three"] == [reply.text for reply in host.sent]
        assert ("cancelled", "none") == ((await host.operation(first)).phase, (await host.operation(first)).reply)
        return
    assert [FAILURE_NOTICE, "re: two", "re: three"] == [reply.text for reply in host.sent]
    assert ["notice", "final", "final"] == [reply.kind for reply in host.sent]
    assert "failed" == (await host.operation(first)).phase
    counters = host.journal.diagnostics()
    assert (2, 1, 0, 0) == (counters["completed"], counters["failed"], counters["queued"], counters["active"])


@pytest.mark.contract("RUN-07", "RUN-11")
@pytest.mark.parametrize("how", ["raises", "none", "not_callable", "cancels_itself"])
async def test_an_agent_that_cannot_be_found_fails_its_turn_alone(host: Host, how: str) -> None:
    """Nothing was claimed, so nothing was executing."""

    def resolve(alias: str, identity: Identity, inbound: Any) -> Any:
        if inbound.event_id != "m1":
            return host._echo
        if how == "raises":
            raise LookupError("secret")
        if how == "cancels_itself":
            raise asyncio.CancelledError
        return None if how == "none" else "agent"

    host.on_resolve = resolve
    first = await host.accept("m1")
    await host.accept("m2", text="two")
    await host.drain()

    assert [FAILURE_NOTICE, "re: two"] == [reply.text for reply in host.sent]
    assert "operation.claimed" not in await host.types(first)
    assert "runtime_error" == (await host.states("operation.settled"))[0].code


@pytest.mark.contract("RUN-07")
async def test_the_agent_is_resolved_anew_for_each_entry(host: Host) -> None:
    """An alias may stand for another agent by then."""
    agents = {"m1": "one", "m2": "two", "m3": "three"}
    host.on_resolve = lambda alias, identity, inbound: functools.partial(say, agents[inbound.event_id])
    for event_id in agents:
        await host.accept(event_id)
    await host.drain()

    assert ["one", "two", "three"] == [reply.text for reply in host.sent]
    assert [("agent", "ann")] * 3 == [(alias, identity.principal) for alias, identity, _ in host.resolved]


async def say(text: str, turn: Turn) -> str:
    return text


@pytest.mark.contract("RUN-07", "IDN-04")
async def test_an_identity_is_checked_again_at_turn_start_after_the_slot(hosts: Hosts) -> None:
    """One that was revoked while its event waited runs nothing and sends nothing."""
    host = await hosts.open(max_active_sessions=1)
    held = host.held()
    await host.accept("m1", "c1")
    await held.started.wait()
    until = hosts.clock.now() + 1_000_000
    expiring = Identity(tenant="acme", principal="ann", verified=True, expires_at=instant_of(until))
    host.on_authorize = lambda *_: Grant(identity=expiring, aliases=("agent",))
    operation_id = await host.accept("m2", "c2")
    hosts.clock.advance("1s")
    held.go.set()
    await host.drain()

    assert ["m1"] == [turn.event_id for turn in held.turns] == [reply.in_reply_to for reply in host.sent]
    assert ["operation.admitted", "operation.settled"] == await host.types(operation_id)
    assert ("failed", "identity_revoked") == ((await host.operation(operation_id)).phase, await last_code(host))


async def last_code(host: Host) -> str | None:
    return (await host.states("operation.settled"))[-1].code  # type: ignore[no-any-return]


@pytest.mark.contract("RUN-07")
@pytest.mark.parametrize("reply", ["hi", ""])
async def test_nothing_is_stranded_between_the_last_dequeue_and_the_release(hosts: Hosts, reply: str) -> None:
    """An entry of another process that lands in the very groups of the end is run by the holder."""
    first, second = await hosts.open(), await hosts.open()
    held = first.held()

    async def agent(turn: Turn) -> str:
        await held(turn)
        return reply

    first.on_turn = agent
    await first.accept("m0")
    await held.started.wait()
    run_group = first.core.committer._run_group
    loop = asyncio.get_running_loop()
    number = 0

    def interleave(group: Any) -> None:
        # Before every group of the holder another process admits, until it has done so four times.
        nonlocal number
        if number < 4:
            number += 1
            asyncio.run_coroutine_threadsafe(second.queue_only(f"n{number}"), loop).result(10)
        run_group(group)

    first.core.committer._run_group = interleave
    held.go.set()
    await first.drain()
    await first.until(lambda: settled(first, 5))

    assert {"m0", "n1", "n2", "n3", "n4"} == {turn.event_id for turn in held.turns}
    assert 0 == await first.count("cf_queues_v1")


async def settled(host: Host, times: int) -> bool:
    return (await host.types()).count("operation.settled") == times


@pytest.mark.contract("RUN-07")
async def test_an_entry_that_lands_before_the_release_of_an_empty_route_is_run(hosts: Hosts) -> None:
    """Between "nothing waits" and the release another process may admit."""
    first, second = await hosts.open(max_turn="20ms", stop_deadline="20ms"), await hosts.open()
    held = first.held(stubborn=True)
    run_group = first.core.committer._run_group
    loop = asyncio.get_running_loop()
    releases = 0

    def interleave(group: Any) -> None:
        nonlocal releases
        if any(isinstance(request.command, Release) for request in group):
            releases += 1
            if releases == 1:
                first.on_turn = first._echo
                asyncio.run_coroutine_threadsafe(second.queue_only("n1"), loop).result(10)
        run_group(group)

    first.core.committer._run_group = interleave
    await first.accept("m0")
    await held.aborted.wait()
    await first.drain()

    assert ["n1"] == [reply.in_reply_to for reply in first.sent]
    assert 1 == releases
    assert 0 == await first.count("cf_deadline")
    held.go.set()


@pytest.mark.contract("RUN-02")
async def test_what_was_claimed_is_never_run_again(hosts: Hosts) -> None:
    """Neither after a restart, nor by a repeat, a resume or reconcile."""
    first = await hosts.open()
    held = first.held()
    operation_id = await first.accept("m1")
    await held.started.wait()
    first.die()
    second = await hosts.open()
    await second.resume()
    repeated = await second.admit("m1")
    await second.drain()

    assert (True, operation_id) == (repeated.duplicate, repeated.operation_id)
    assert "executing" == (await second.operation(operation_id)).phase
    row = (await second.unresolved())[operation_id]
    assert ("executing", False) == (row.state, row.holder_alive)
    filed = await second.runtime.reconcile(
        second.desk._reach.identity,
        operation_id,
        expected_version=row.version,
        acknowledge_duplicate_risk=True,
        tenant=second.desk._reach.tenant,
    )
    assert ("resolved", "execution_unknown") == (filed.status, filed.outcome)
    await second.admit("m1")
    await second.resume()
    await second.drain()
    assert not second.turns
    assert not second.sent
    held.go.set()


@pytest.mark.contract("RUN-03")
async def test_an_executing_operation_of_an_ended_opening_does_not_hold_the_route(hosts: Hosts) -> None:
    """Later messages are answered; what was executing stays listed."""
    first = await hosts.open()
    held = first.held()
    stuck = await first.accept("m1")
    await held.started.wait()
    await first.accept("m2", text="two")
    first.die()
    second = await hosts.open()
    await second.accept("m3", text="three")
    await second.drain()

    assert ["re: two", "re: three"] == [reply.text for reply in second.sent]
    assert [stuck] == list(await second.unresolved())
    assert ["opening_ended"] == [event.cause for event in await second.states("lock.expired")]
    held.go.set()


@pytest.mark.contract("RUN-01", "RUN-11")
async def test_agents_may_be_plain_functions(host: Host) -> None:
    """They run in a thread; a plain function that gives an awaitable is awaited."""
    threads: list[threading.Thread] = []

    def plain(turn: Turn) -> str:
        threads.append(threading.current_thread())
        return "plain"

    host.on_turn = plain
    await host.answer("m1")
    host.on_turn = lambda turn: say("awaited", turn)
    await host.answer("m2")

    def leave(turn: Turn) -> str:
        raise SystemExit(1)

    host.on_turn = leave
    await host.answer("m3")

    assert ["plain", "awaited", FAILURE_NOTICE] == [reply.text for reply in host.sent]
    assert threading.main_thread() not in threads


@pytest.mark.contract("RUN-04", "RUN-11")
@pytest.mark.parametrize("answer", ["", None, AgentAnswer(text="")])
async def test_an_empty_reply_succeeds_and_nothing_is_staged(host: Host, answer: Any) -> None:
    """An idle route's lease goes with the settlement."""

    async def agent(turn: Turn) -> Any:
        return answer

    host.on_turn = agent
    operation_id = await host.answer()

    assert [] == host.sent
    assert ("succeeded", "none") == ((await host.operation(operation_id)).phase, (await host.operation(operation_id)).reply)
    assert ["operation.settled", "lock.released"] == (await host.types())[-2:]
    assert {} == await host.unresolved()


@pytest.mark.contract("RUN-06")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_turn_is_bounded_by_max_turn(hosts: Hosts, stubborn: bool) -> None:
    """It is aborted as by stop; the route goes on, and a late result is refused and recorded."""
    host = await hosts.open(max_turn="20ms", stop_deadline="20ms")
    held = host.held(stubborn=stubborn)
    first = await host.accept("m1")
    await held.aborted.wait()
    await host.drain()

    if not stubborn:
        assert ("cancelled", "max_turn") == ((await host.operation(first)).phase, await last_code(host))
    else:
        assert "execution_unknown" == (await host.operation(first)).phase
        assert ["max_turn"] == [event.reason for event in await host.states("operation.execution_unknown")]
        held.go.set()
        await host.until_event("operation.late_refused")
        assert "execution_unknown" == (await host.operation(first)).phase
    host.on_turn = host._echo
    await host.answer("m2")
    assert ["m2"] == [reply.in_reply_to for reply in host.sent]


@pytest.mark.contract("RUN-01")
async def test_a_claim_whose_caller_is_gone_ends_as_cancelled(host: Host) -> None:
    """A stop that runs out of time in the middle of a claim leaves nothing executing."""
    operation_id = await host.queue_only("m1")
    operation = await host.operation(operation_id)
    run_group = host.core.committer._run_group
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Any]

    async def cancel() -> None:
        task.cancel()

    def late(group: Any) -> None:
        run_group(group)
        if any(isinstance(request.command, Claim) for request in group):
            asyncio.run_coroutine_threadsafe(cancel(), loop).result(10)

    host.core.committer._run_group = late
    task = asyncio.create_task(host.journal._submit(Claim(operation.route, operation.position)))
    with pytest.raises(asyncio.CancelledError):
        await task
    host.core.committer._run_group = run_group
    await host.until_event("operation.settled")

    assert "cancelled" == (await host.operation(operation_id)).phase
    assert "cancelled_before_start" == await last_code(host)


@pytest.mark.contract("RUN-04")
async def test_a_settlement_whose_store_fails_is_one_append_all_the_same(host: Host) -> None:
    """Either all of it is there or nothing."""
    with host.failing(Settle) as failed:
        await host.accept()
        await failed.wait()
        assert "operation.settled" not in await host.types()
        assert "reply.staged" not in await host.types()
        assert [] == host.sent
    await host.drain()
    types = await host.types()

    assert types.index("operation.settled") + 1 == types.index("reply.staged")


@pytest.mark.contract("RUN-07")
async def test_a_journal_closed_under_its_runtime_ends_the_routes(hosts: Hosts) -> None:
    """They do not spin."""
    host = await hosts.open(max_active_sessions=1)
    held = host.held()
    await host.accept("m1", "c1")
    await held.started.wait()
    await host.accept("m2", "c2")
    host.die()
    held.go.set()
    await host.drain()

    assert 0 == host.journal.diagnostics()["queued"]


async def test_a_runtime_shows_what_a_host_calls_and_nothing_else(host: Host) -> None:
    """What its workers share is nobody else's."""
    shown = "admit drain journal limits reconcile resume sendings stop wait_for_room"

    assert shown.split() == sorted(name for name in dir(host.runtime) if not name.startswith("_"))
