"""Reconcile: what an operator may file, and what is sent again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import CommandConflict, Denied, InvalidValue, NeedsRuntime
from counterfoil.domain.exchange import DeliveryFailed, Reply
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Grant, Identity, instant_of
from counterfoil.domain.reconcile import Reconciliation
from counterfoil.infrastructure.commands.reconcile import ReconcileOperation
from counterfoil.infrastructure.commands.turn import Mark

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts

KINDS = ("accepted", "executing", "pending", "delivery_unknown", "delivery_failed")


async def left(hosts: Hosts, kind: str, *, alive: bool = False, **options: Any) -> tuple[str, Host]:
    """Leave an operation in a state, by a host that lives on or is gone; return its id and the host."""
    host = await hosts.open(lease_ttl="300s", **options)
    go = asyncio.Event()
    reached = asyncio.Event()

    async def deliver(reply: Reply) -> DeliveryFailed | None:
        reached.set()
        if kind == "delivery_unknown":
            raise OSError("reset")
        if kind == "delivery_failed":
            return DeliveryFailed("forbidden")
        await go.wait()
        return None

    if kind == "accepted":
        operation_id = await host.queue_only("m1")
    elif kind == "executing":
        held = host.held()
        operation_id = await host.accept("m1")
        await held.started.wait()
        go = held.go
    else:
        host.on_deliver = deliver
        operation_id = await host.accept("m1")
        await reached.wait()
    if kind.startswith("delivery"):
        await host.drain()
    if not alive:
        host.die()
        go.set()
    return operation_id, host


async def reconcile(host: Host, operation_id: str, version: int | None = None, **options: Any) -> Reconciliation:
    """Ask as an operator, with the version that is listed unless another is given."""
    options = {"identity": host.desk._reach.identity, "tenant": EVERY_TENANT, **options}
    if version is None:
        version = (await host.operation(operation_id)).version
    return await host.runtime.reconcile(options.pop("identity"), operation_id, expected_version=version, **options)


@pytest.mark.contract("RCN-01")
async def test_everything_open_is_listed_oldest_first(hosts: Hosts) -> None:
    """With what reconcile needs to know, by keyset pages."""
    oldest, _ = await left(hosts, "pending")
    hosts.clock.advance("1m")
    first = await hosts.open()
    for number in range(7):
        await first.queue_only(f"n{number}", f"c{number}")
        hosts.clock.advance("1s")
    rows: list[Any] = []
    after, pages = None, 0
    while True:
        page = await first.desk.unresolved(limit=3, after=after)
        rows += page.rows
        pages += 1
        after = page.next
        if after is None:
            break

    assert 3 == pages
    assert oldest == rows[0].operation_id
    assert sorted(row.admitted_at for row in rows) == [row.admitted_at for row in rows]
    assert 8 == len({row.operation_id for row in rows})
    assert {"tg"} == {row.connection for row in rows}
    assert 67 == round(rows[0].age.total_seconds())


@pytest.mark.contract("RCN-01")
@pytest.mark.parametrize(
    ("kind", "state", "reply", "attempts"),
    [
        ("accepted", "accepted", "none", 0),
        ("executing", "executing", "none", 0),
        ("pending", "succeeded", "pending", 1),
        ("delivery_unknown", "succeeded", "delivery_unknown", 1),
        ("delivery_failed", "succeeded", "delivery_failed", 1),
    ],
)
async def test_each_open_state_is_listed_as_it_is(hosts: Hosts, kind: str, state: str, reply: str, attempts: int) -> None:
    """The version is that of the operation's newest event."""
    operation_id, _ = await left(hosts, kind)
    host = await hosts.open()
    row = (await host.unresolved())[operation_id]

    assert (state, reply, attempts) == (row.state, row.reply_state, row.attempts)
    assert (await host.operation(operation_id)).version == row.version
    assert (False if kind in ("accepted", "executing", "pending") else None) is row.holder_alive


@pytest.mark.contract("RCN-02", "RCN-03", "RCN-04", "RCN-06", "RCN-08")
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize(
    ("kind", "without", "filed", "sends"),
    [
        ("accepted", "abandoned", "abandoned", 0),
        ("executing", "duplicate_risk", "execution_unknown", 0),
        ("pending", "duplicate_risk", "reply_delivered", 1),
        ("delivery_unknown", "duplicate_risk", "reply_delivered", 1),
        ("delivery_failed", "reply_delivered", "reply_delivered", 1),
    ],
)
async def test_what_is_filed_with_and_without_the_acknowledgment(
    hosts: Hosts, kind: str, without: str, filed: str, sends: int, acknowledged: bool
) -> None:
    """At once, with no wait for the dead holder's ttl; the model is never called, and nothing earlier is changed."""
    operation_id, _ = await left(hosts, kind)
    host = await hosts.open()
    before = await host.events()
    answer = await reconcile(
        host, operation_id, acknowledge_duplicate_risk=acknowledged, reason="looked_at", note="a note with ann in it"
    )
    after = await host.events()

    assert before == after[: len(before)]
    assert not host.turns
    assert not host.resolved
    expected = filed if acknowledged else without
    version = (await host.operation(operation_id)).version
    if expected == "duplicate_risk":
        assert Reconciliation("conflict", detail="duplicate_risk", version=version) == answer
        assert before == after
        return
    assert Reconciliation("resolved", expected, version=version) == answer  # type: ignore[arg-type]
    assert sends == len(host.sent)
    assert ["re: hello"] * sends == [reply.text for reply in host.sent]
    assert {} == await host.unresolved()
    filing = next(row for row in after[len(before) :] if row.originator_id == operation_id)
    assert "operator" == filing.actor_kind
    assert "looked_at" == filing.recorded.event.reason  # type: ignore[union-attr]
    notes = [bytes(body).decode("utf-8", "surrogatepass") for (body,) in await host.rows("SELECT body FROM cf_payload")]
    assert "a note with ann in it" in notes
    assert b"ann" not in filing.state
    again = await reconcile(host, operation_id, acknowledge_duplicate_risk=True)
    assert Reconciliation("resolved", "none", version=version) == again
    assert sends == len(host.sent)


@pytest.mark.contract("RCN-06")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stale_version_is_always_refused(hosts: Hosts, kind: str) -> None:
    """Whatever is acknowledged or forced; and it leaves nothing."""
    operation_id, _ = await left(hosts, kind)
    host = await hosts.open()
    before = [await host.types(), await host.count("cf_subject"), await host.count("cf_scope")]
    version = (await host.operation(operation_id)).version
    for wrong in {1, version - 1, version + 1, version + 2} - {0, version}:
        answer = await reconcile(host, operation_id, wrong, acknowledge_duplicate_risk=True, force=True)
        assert Reconciliation("conflict", detail="stale", version=version) == answer

    assert before == [await host.types(), await host.count("cf_subject"), await host.count("cf_scope")]
    assert not host.sent
    assert not host.asked


@pytest.mark.contract("RCN-03", "RCN-06", "RUN-05", "LCK-10")
async def test_a_living_holder_is_fenced_out_by_force_alone(hosts: Hosts) -> None:
    """Its late result is refused, and the route is free for the next."""
    operation_id, holder = await left(hosts, "executing", alive=True)
    host = await hosts.open()
    row = (await host.unresolved())[operation_id]
    assert row.holder_alive is True
    refused = await reconcile(host, operation_id, acknowledge_duplicate_risk=True)
    assert Reconciliation("conflict", detail="holder_alive", version=row.version) == refused
    unacknowledged = await reconcile(host, operation_id, force=True)
    assert Reconciliation("conflict", detail="duplicate_risk", version=row.version) == unacknowledged
    forced = await reconcile(host, operation_id, acknowledge_duplicate_risk=True, force=True)
    assert ("resolved", "execution_unknown") == (forced.status, forced.outcome)
    await host.answer("m2")
    held: Any = holder.on_turn
    held.go.set()
    await holder.drain()

    assert [] == holder.sent
    assert "execution_unknown" == (await host.operation(operation_id)).phase
    assert 1 == (await host.types()).count("operation.late_refused") == (await host.types()).count("lock.revoked")
    event = (await host.states("operation.execution_unknown"))[0]
    assert (True, True) == (event.acknowledged, event.forced)


@pytest.mark.contract("RCN-03")
async def test_a_lease_that_ran_out_is_no_living_holder(hosts: Hosts) -> None:
    """The process is frozen, say; its opening lives, and its lease does not."""
    operation_id, holder = await left(hosts, "executing", alive=True)
    hosts.clock.advance("300s")
    host = await hosts.open()
    answer = await reconcile(host, operation_id, acknowledge_duplicate_risk=True)

    assert "execution_unknown" == answer.outcome
    held: Any = holder.on_turn
    held.go.set()
    await holder.drain()
    assert [] == holder.sent


@pytest.mark.contract("RCN-04", "JRN-02")
async def test_two_operators_at_once_send_once(hosts: Hosts) -> None:
    """In one process or two: the resend is claimed by an append before the send."""
    operation_id, _ = await left(hosts, "pending")
    both = [await hosts.open(), await hosts.open()]
    version = (await both[0].operation(operation_id)).version
    answers = await asyncio.gather(
        *(reconcile(host, operation_id, version, acknowledge_duplicate_risk=True) for host in both for _ in range(5))
    )

    assert 1 == len(both[0].sent) + len(both[1].sent)
    assert 1 == sum(answer.outcome == "reply_delivered" for answer in answers)
    assert 9 == sum(answer.detail == "stale" for answer in answers)
    assert 1 == (await both[0].types()).count("reply.resend_claimed")


@pytest.mark.contract("RCN-04")
async def test_the_claim_is_durable_before_the_send(hosts: Hosts) -> None:
    """A crash in between leaves pending, with the attempt counted."""
    operation_id, _ = await left(hosts, "delivery_failed")
    host = await hosts.open()
    sending, go = asyncio.Event(), asyncio.Event()

    async def deliver(reply: Reply) -> None:
        sending.set()
        await go.wait()

    host.on_deliver = deliver
    task = asyncio.create_task(reconcile(host, operation_id))
    await sending.wait()
    host.die()
    go.set()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], Exception)
    after = await hosts.open()
    row = (await after.unresolved())[operation_id]

    assert ("pending", 2) == (row.reply_state, row.attempts)
    assert "conflict" == (await reconcile(after, operation_id)).status
    assert "reply_delivered" == (await reconcile(after, operation_id, acknowledge_duplicate_risk=True)).outcome
    assert "m1" == after.sent[0].in_reply_to


@pytest.mark.contract("RCN-04", "RPL-02")
@pytest.mark.parametrize(("how", "outcome"), [("fails", "reply_failed"), ("raises", "reply_unknown")])
async def test_a_resend_that_does_not_arrive_stays_listed(hosts: Hosts, how: str, outcome: str) -> None:
    """As what is known of it now."""
    operation_id, _ = await left(hosts, "delivery_unknown")
    host = await hosts.open()

    def deliver(reply: Reply) -> DeliveryFailed:
        if how == "raises":
            raise OSError
        return DeliveryFailed()

    host.on_deliver = deliver
    answer = await reconcile(host, operation_id, acknowledge_duplicate_risk=True)
    row = (await host.unresolved())[operation_id]

    assert ("resolved", outcome, row.version) == (answer.status, answer.outcome, answer.version)
    assert (outcome.replace("reply", "delivery"), 2) == (row.reply_state, row.attempts)


@pytest.mark.contract("RCN-05", "RCN-06")
async def test_what_is_settled_gives_none_and_no_second_message(host: Host) -> None:
    """Delivered, or nothing to deliver."""
    delivered = await host.answer("m1")
    host.on_turn = lambda turn: ""
    silent = await host.answer("m2")
    before = await host.types()
    for operation_id in (delivered, silent):
        answer = await reconcile(host, operation_id, acknowledge_duplicate_risk=True, force=True)
        assert ("resolved", "none") == (answer.status, answer.outcome)

    assert before == await host.types()
    assert 1 == len(host.sent)


@pytest.mark.contract("RCN-07", "IDN-04")
@pytest.mark.parametrize("word", ["none", "raises", "revoked", "scope"])
async def test_a_withdrawn_grant_sends_nothing(hosts: Hosts, word: str) -> None:
    """The host is asked again, with what was stored and without claims."""
    operation_id, _ = await left(hosts, "delivery_failed")
    host = await hosts.open()
    before = await host.types()

    def authorize(inbound: Any, action: str) -> Grant | None:
        assert (None, "m1", "ann", "message") == (inbound.claims, inbound.event_id, inbound.actor, action)
        if word == "raises":
            raise LookupError
        verified, tenant = word != "revoked", "other" if word == "scope" else "acme"
        person = Identity(tenant=tenant, principal="ann", verified=verified)
        return None if word == "none" else Grant(identity=person, aliases=("agent",))

    host.on_authorize = authorize
    answer = await reconcile(host, operation_id, acknowledge_duplicate_risk=True, force=True)

    assert ("denied", None) == (answer.status, answer.outcome)
    assert [] == host.sent
    assert before == await host.types()
    assert 1 == len(host.asked)


@pytest.mark.contract("RCN-07")
@pytest.mark.parametrize("granted", [False, True])
async def test_what_becomes_what_is_expected_while_it_is_looked_at_is_not_sent_unasked(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, granted: bool
) -> None:
    """The version that the operator names comes about after the look: the host is asked before anything is sent."""
    holder, host = await hosts.open(), await hosts.open()
    sending, go = asyncio.Event(), asyncio.Event()

    async def fail(_: Reply) -> DeliveryFailed:
        sending.set()
        await go.wait()
        return DeliveryFailed("forbidden")

    holder.on_deliver = fail
    operation_id = await holder.accept("m1")
    await sending.wait()
    read = host.core.read_async

    async def read_before_it_fails(function: Any) -> Any:
        found = await read(function)
        go.set()
        await holder.drain()
        return found

    monkeypatch.setattr(host.core, "read_async", read_before_it_fails)
    if not granted:
        host.on_authorize = lambda *_: None
    version = (await holder.operation(operation_id)).version + 1
    answer = await reconcile(host, operation_id, version)

    assert (
        Reconciliation(*(("resolved", "reply_delivered", None, version + 2) if granted else ("denied", None, None, version)))
        == answer
    )
    assert [("m1", "message")] == [(inbound.event_id, action) for inbound, action in host.asked]
    assert (1 if granted else 0) == len(host.sent)


@pytest.mark.contract("RCN-06", "IDN-02", "IDN-05")
@pytest.mark.parametrize("kind", ["accepted", "executing", "delivery_failed"])
async def test_another_scope_is_a_miss_and_no_host_is_asked(hosts: Hosts, kind: str) -> None:
    """Whether it exists or not; an operator who names the tenant sees it."""
    operation_id, _ = await left(hosts, kind)
    host = await hosts.open()
    host.on_authorize = lambda *_: None
    before = [await host.types(), await host.count("cf_scope"), await host.count("cf_subject")]
    foreign = Identity(tenant="other", principal="eve", permissions=frozenset({OPERATE}), verified=True)
    neighbour = Identity(tenant="acme", principal="eve", user="eve", verified=True)
    for stranger, tenant in ((foreign, None), (foreign, "third"), (neighbour, None)):
        for name in (operation_id, "op-" + "0" * 32, "nonsense", ""):
            answer = await reconcile(host, name, 1, identity=stranger, tenant=tenant)
            assert Reconciliation("not_found") == answer

    assert not host.sent
    assert not host.asked
    assert before == [await host.types(), await host.count("cf_scope"), await host.count("cf_subject")]
    assert Reconciliation("denied") == await reconcile(host, operation_id, 1, identity=neighbour, tenant="acme")
    with pytest.raises(Denied):
        host.journal.acting_as(neighbour, tenant="acme")
    answer = await reconcile(host, operation_id, identity=foreign, tenant="acme")
    assert {"accepted": "abandoned", "executing": None, "delivery_failed": None}[kind] == answer.outcome
    assert {"accepted": "resolved", "executing": "conflict", "delivery_failed": "denied"}[kind] == answer.status


@pytest.mark.contract("RCN-02", "IDN-05")
async def test_what_an_operator_filed_across_scopes_names_the_operator(hosts: Hosts) -> None:
    """In the scope of what was filed, as a pseudonym."""
    operation_id, _ = await left(hosts, "accepted")
    host = await hosts.open()
    await reconcile(host, operation_id)
    row = next(row for row in await host.events() if row.type == "operation.abandoned")
    name = await host.core.read_async(lambda store: store.subject(row.actor or b""))

    assert ("operator", "olga") == (row.actor_kind, name)


@pytest.mark.contract("RCN-06", "IDN-04")
async def test_an_inactive_identity_is_denied(hosts: Hosts) -> None:
    """Before anything is looked at."""
    operation_id, _ = await left(hosts, "accepted")
    host = await hosts.open()
    end = instant_of(hosts.clock.now())
    for values in ({"verified": False}, {"revoked_at": end}, {"expires_at": end}):
        person = Identity(**{"tenant": "acme", "principal": "ann", "verified": True, **values})
        assert Reconciliation("denied") == await reconcile(host, operation_id, identity=person, tenant=None)

    assert "accepted" == (await host.operation(operation_id)).phase


@pytest.mark.contract("RCN-06")
async def test_a_store_that_fails_is_unavailable(hosts: Hosts) -> None:
    """And changes nothing."""
    operation_id, _ = await left(hosts, "accepted")
    host = await hosts.open()
    with host.failing(ReconcileOperation):
        assert Reconciliation("unavailable") == await reconcile(host, operation_id)

    assert "accepted" == (await host.operation(operation_id)).phase


@pytest.mark.contract("RCN-04", "RPL-02")
async def test_what_is_known_of_a_resend_is_kept_until_the_journal_has_it(hosts: Hosts) -> None:
    """The message was sent; that the store was away for a moment does not make it unknown."""
    operation_id, _ = await left(hosts, "delivery_failed")
    host = await hosts.open()
    with host.failing(Mark) as failed:
        task = asyncio.create_task(reconcile(host, operation_id))
        await failed.wait()
    answer = await task

    assert "reply_delivered" == answer.outcome
    assert {} == await host.unresolved()
    assert 1 == len(host.sent)


@pytest.mark.contract("RCN-03")
async def test_what_was_abandoned_is_not_run_by_the_process_that_had_it_waiting(hosts: Hosts) -> None:
    """The claim finds that it waits no longer."""
    host = await hosts.open()
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    waiting = await host.accept("m2")
    assert "abandoned" == (await reconcile(host, waiting)).outcome
    held.go.set()
    await host.drain()

    assert ["m1"] == [turn.event_id for turn in held.turns]
    assert 0 == host.journal.diagnostics()["queued"]


@pytest.mark.contract("RCN-04")
async def test_a_late_mark_of_the_first_sending_does_not_hide_the_second(hosts: Hosts) -> None:
    """Both are recorded; that something arrived is never taken back."""
    holder, host = await hosts.open(), await hosts.open()
    sending, go = asyncio.Event(), asyncio.Event()

    async def slowly(reply: Reply) -> None:
        sending.set()
        await go.wait()

    holder.on_deliver, host.on_deliver = slowly, lambda reply: DeliveryFailed()
    operation_id = await holder.accept("m1")
    await sending.wait()
    answer = await reconcile(host, operation_id, acknowledge_duplicate_risk=True)
    assert "reply_failed" == answer.outcome
    assert "delivery_failed" == (await host.operation(operation_id)).reply
    go.set()
    await holder.drain()

    assert "delivered" == (await host.operation(operation_id)).reply
    assert {} == await host.unresolved()
    assert [1] == [event.attempt for event in await host.states("reply.delivered")]


@pytest.mark.contract("RCN-03", "RCN-04", "RCN-07")
async def test_a_journal_files_and_does_not_send(hosts: Hosts) -> None:
    """A reply that would have to be sent raises, changes nothing, and names the runtime's call."""
    operation_id, _ = await left(hosts, "delivery_failed")
    host = await hosts.open()
    before = [await host.types(), await host.count("cf_subject")]
    version = (await host.operation(operation_id)).version
    with pytest.raises(NeedsRuntime, match=r"Runtime\.reconcile"):
        await host.desk.reconcile(operation_id, expected_version=version)

    assert before == [await host.types(), await host.count("cf_subject")]


@pytest.mark.contract("JRN-05", "RCN-05")
async def test_a_command_id_makes_asking_again_safe(hosts: Hosts) -> None:
    """The first answer comes again."""
    operation_id, _ = await left(hosts, "accepted")
    host = await hosts.open()
    first = await reconcile(host, operation_id, 1, command_id="file-it")
    again = await reconcile(host, operation_id, 1, command_id="file-it")

    assert first == again
    assert "abandoned" == first.outcome
    assert 1 == (await host.types()).count("operation.abandoned")


@pytest.mark.contract("RCN-02", "JRN-07")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reason": "Free text"}, "reason must be a word"),
        ({"reason": ""}, "reason must be a word"),
        ({"reason": 7}, "reason must be a word"),
        ({"note": 7}, "note must be text"),
        ({"note": "x" * 4_097}, "note must be text of at most 4096 bytes"),
        ({"version": "1"}, "expected_version must be a whole number"),
        ({"version": True}, "expected_version must be a whole number"),
    ],
)
async def test_what_an_operator_says_wrongly_is_refused_by_name(host: Host, options: dict[str, Any], words: str) -> None:
    """Before anything is looked at."""
    with pytest.raises(InvalidValue, match=words):
        await reconcile(host, "op-" + "0" * 32, **{"version": 1, **options})


@pytest.mark.contract("JRN-05", "RCN-04")
async def test_a_command_id_of_a_resend_gives_the_first_answer_again(hosts: Hosts) -> None:
    """What came of the sending is kept after it, and nothing is sent a second time."""
    operation_id, _ = await left(hosts, "delivery_failed")
    host = await hosts.open()
    version = (await host.operation(operation_id)).version
    first = await reconcile(host, operation_id, version, command_id="send-it")
    again = await reconcile(host, operation_id, version, command_id="send-it")

    assert ("resolved", "reply_delivered") == (first.status, first.outcome)
    assert first == again
    with pytest.raises(CommandConflict):
        await reconcile(host, operation_id, version + 1, command_id="send-it")
    assert 1 == len(await host.states("reply.resend_claimed"))
