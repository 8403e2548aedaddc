"""No log line, error, counter or repr carries message text, external ids, tokens or keys."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from counterfoil.domain.decision import Payload, Step
from counterfoil.domain.errors import CounterfoilError, Denied, NotSent
from counterfoil.domain.exchange import AgentAnswer, DeliveryFailed, Reply, Turn
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.operation import OperationRepeated
from counterfoil.domain.reconcile import Reconcile
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.turn import Claim, Mark, Settle
from counterfoil.infrastructure.core import COUNTERS
from counterfoil.infrastructure.found import find
from counterfoil.infrastructure.route_worker import Job

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts

MARK = "MARKER-7f3a"


def marked(what: str) -> str:
    return f"{MARK}-{what}"


def identity() -> Identity:
    return Identity(
        tenant=marked("tenant"), principal=marked("principal"), account=marked("account"), user=marked("user"), verified=True
    )


def event(number: int, **more: Any) -> dict[str, Any]:
    return {
        "connection": "tg",
        "conversation": marked(f"conversation{number}"),
        "thread": marked("thread"),
        "actor": marked("actor"),
        "event_id": marked(f"event{number}"),
        "text": marked("text"),
        "claims": {"claim": marked("claim")},
        **more,
    }


@pytest.mark.contract("DIA-01")
async def test_nothing_that_goes_wrong_is_logged_with_what_it_was_about(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    """Every callback raises with everything it knows, at every level of logging."""
    caplog.set_level(logging.DEBUG)
    host = await hosts.open(max_turn="20ms", stop_deadline="20ms", deliver_timeout="20ms")
    late = asyncio.Event()
    said: list[str] = []

    def secret(*values: object) -> ValueError:
        return ValueError(marked("raised"), *values)

    def authorize(inbound: Inbound, action: str) -> Any:
        if inbound.event_id.endswith("event1"):
            raise secret(inbound.text)
        if inbound.event_id.endswith("event2"):
            return marked("no grant")
        return Grant(identity=identity(), aliases=("agent",))

    def resolve(alias: str, who: Identity, inbound: Inbound) -> Any:
        if inbound.event_id.endswith("event3"):
            raise secret(who.principal)
        return marked("no agent") if inbound.event_id.endswith("event4") else agent

    async def agent(turn: Turn) -> Any:
        if turn.event_id.endswith("event5"):
            raise secret(turn.text)
        if turn.event_id.endswith("event6"):
            return {"text": turn.text}
        if turn.event_id.endswith("event7"):
            try:
                await late.wait()
            except asyncio.CancelledError:
                await late.wait()
            raise secret("too late", turn.text)
        return AgentAnswer(text=turn.text, leaf=marked("leaf"))

    async def deliver(reply: Reply) -> Any:
        if reply.in_reply_to.endswith("event8"):
            raise secret(reply.text)
        if reply.in_reply_to.endswith("event9"):
            raise NotSent(marked("not sent"))
        if reply.in_reply_to.endswith("event10"):
            try:
                await late.wait()
            except asyncio.CancelledError:
                await late.wait()
            raise secret("too late", reply.text)
        return marked("message") + "\0" if reply.in_reply_to.endswith("event11") else marked("message")

    host.on_authorize, host.on_resolve, host.on_deliver = authorize, resolve, deliver
    said += [repr(await host.runtime.admit(event(number))) for number in range(13)]
    said.append(repr(await host.runtime.admit(event(20, unknown=marked("field")))))
    said.append(repr(await host.runtime.admit(event(21, text="/" + marked("command")))))
    with host.failing(Claim, Mark, Settle) as failed:
        await host.runtime.admit(event(30))
        await failed.wait()
    with host.failing(Claim, error=lambda: RuntimeError(marked("a bug"))) as failed:
        await host.runtime.admit(event(31))
        await failed.wait()
    await host.drain()
    for row in (await host.unresolved()).values():
        said.append(repr(row))
        said.append(
            repr(
                await host.runtime.reconcile(
                    identity(),
                    row.operation_id,
                    expected_version=row.version,
                    acknowledge_duplicate_risk=True,
                    note=marked("note"),
                    command_id=marked(f"command {row.operation_id}"),
                )
            )
        )
    said.append(repr(host.journal.diagnostics()))
    await host.runtime.stop()
    late.set()
    await host.until_event("operation.late_refused")
    await asyncio.sleep(0)
    gc.collect()

    assert 2 <= sum("raised ValueError" in record.getMessage() for record in caplog.records)
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    formatted = [logging.Formatter().format(record) for record in caplog.records]
    assert [] == [line for line in formatted + said if MARK in line]
    assert MARK.encode() not in b"".join(row.state for row in await host.events() if row.type != "binding.advanced")


@pytest.mark.contract("DIA-01")
async def test_diagnostics_are_the_counters_by_name_and_numbers(host: Host) -> None:
    """And nothing else."""
    await host.runtime.admit(event(1))
    await host.drain()
    counters = host.journal.diagnostics()

    assert COUNTERS == tuple(counters)
    assert {int} == {type(value) for value in counters.values()}
    assert (1, 1, 1, 0, 0) == tuple(counters[name] for name in ("admitted", "completed", "deliveries", "queued", "active"))


@pytest.mark.contract("DIA-01")
async def test_no_repr_tells_what_it_holds(hosts: Hosts) -> None:
    """Of what hosts handle, and of what a traceback with its locals would show."""
    host = await hosts.open()
    inbound, grant = Inbound(**event(1)), Grant(identity=identity(), aliases=("agent",))
    host.on_authorize = lambda *_: grant
    admission = await host.runtime.admit(inbound)
    await host.drain()
    assert admission.operation_id is not None
    operation_id = admission.operation_id
    found = await host.core.read_async(lambda store: find(store, operation_id))
    scoped = await host.core.read_async(lambda store: store.scope_by_id(found.operation.scope_id))  # type: ignore[union-attr]
    key = await host.core.read_async(lambda store: store.scope_of(identity().scope))
    assert found is not None
    reply = Reply(**dict(host.sent[0]))
    shown = [
        inbound,
        grant,
        identity(),
        identity().scope,
        admission,
        host.turns[0],
        reply,
        AgentAnswer(text=marked("text"), leaf=marked("leaf")),
        DeliveryFailed("failed"),
        NotSent(marked("reason")),
        host.journal,
        host.runtime,
        host.journal.acting_as(identity()),
        host.journal.acting_as(identity())._reach,
        await host.journal.acting_as(identity()).timeline(),
        (await host.journal.acting_as(identity()).timeline(with_text=True)),
        await host.journal.acting_as(identity()).explain(marked("event1"), with_text=True),
        await host.journal.acting_as(identity()).statistics(),
        found,
        scoped,
        key,
        Job("op-1", inbound, grant, "agent"),
        AdmitInbound(inbound, grant, "agent"),
        Settle("op-1", 1, Answer("succeeded", reply=marked("text"), leaf=marked("leaf"))),
        Mark("op-1", 1, Delivery("delivered", message_id=marked("message"))),
        Reconcile(1, True, False, "word", marked("note")),
        Step("op-1", OperationRepeated(), external_id=marked("event"), payload=Payload(b"s" * 32, marked("text").encode())),
    ]
    leaks = [type(value).__name__ for value in shown if MARK in repr(value) or MARK in str(value)]
    keys = [] if key is None else [type(value).__name__ for value in shown if repr(key.key) in repr(value)]

    assert [] == leaks
    assert [] == keys


@pytest.mark.contract("DIA-01")
async def test_no_error_quotes_what_it_refuses(host: Host) -> None:
    """The field and the rule, the type or the length."""
    errors: list[BaseException] = []
    for wrong in (
        {"event_id": marked("x" * 300)},
        {"event_id": f"{MARK}\0"},
        {"actor": f"{MARK}\ud800"},
        {"text": [MARK]},
        {"unknown": MARK},
        {"received_at": MARK},
        {"claims": MARK},
    ):
        with pytest.raises(ValidationError) as refused:
            Inbound(**event(1, **wrong))
        errors.append(refused.value)
    with pytest.raises(Denied) as denied:
        await host.runtime.resume(Identity(tenant=MARK, principal=MARK))
    errors.append(denied.value)
    with pytest.raises(Denied) as denied:
        await host.runtime.resume(identity(), tenant=MARK)
    errors.append(denied.value)
    for options in ({"reason": MARK}, {"note": MARK * 1_000}, {"command_id": MARK * 100}):
        with pytest.raises(CounterfoilError) as invalid:
            await host.runtime.reconcile(identity(), MARK, expected_version=1, **options)  # type: ignore[arg-type]
        errors.append(invalid.value)

    assert [] == [repr(error) for error in errors if MARK in str(error) or MARK in repr(error)]
    assert {None} == {error.__cause__ for error in errors}
