"""Both ways of stopping, and what a stop leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import JournalRefused
from counterfoil.domain.exchange import Turn
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.turn import GiveUp, Mark, Release, Settle, SettleUnclaimed
from tests.runtime.conftest import route_tasks

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts


async def phases(host: Host, *operations: str) -> list[str]:
    return [(await host.operation(operation_id)).phase for operation_id in operations]


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize("keep_queued", [False, True])
async def test_stop_aborts_what_runs_and_cancels_or_keeps_what_waits(hosts: Hosts, keep_queued: bool) -> None:
    """A clean stop never loses what a kill would keep."""
    host = await hosts.open(max_active_sessions=2)
    held = host.held()
    running = [await host.accept("r1", "c1"), await host.accept("r2", "c2")]
    await held.started.wait()
    waiting = [await host.accept("w1", "c1"), await host.accept("w2", "c1"), await host.accept("w3", "c3")]
    await host.runtime.stop(keep_queued=keep_queued)

    assert ["cancelled", "cancelled"] == await phases(host, *running)
    assert ["accepted" if keep_queued else "cancelled"] * 3 == await phases(host, *waiting)
    codes = {event.code for event in await host.states("operation.settled")}
    assert {"cancelled_at_shutdown"} == codes
    assert 0 == await host.count("cf_deadline")
    assert [] == host.sent
    counters = host.journal.diagnostics()
    assert (0, 0, 2 if keep_queued else 5) == (counters["queued"], counters["active"], counters["cancelled"])
    await host.close()
    after = await hosts.open()
    await after.resume()
    await after.drain()
    assert (["w1", "w2"] if keep_queued else []) == [t.event_id for t in after.turns if t.conversation == "c1"]
    assert (3 if keep_queued else 0) == len(after.sent)
    assert {} == await after.unresolved()


@pytest.mark.contract("RUN-13", "RUN-05")
async def test_a_run_that_ignores_the_abort_is_unknown_and_its_late_result_refused(hosts: Hosts) -> None:
    """When the deadline passes, not before."""
    host = await hosts.open(stop_deadline="20ms")
    held = host.held(stubborn=True)
    operation_id = await host.accept("m1")
    await held.started.wait()
    await host.runtime.stop()

    assert ["execution_unknown"] == await phases(host, operation_id)
    assert ["cancelled_at_shutdown"] == [event.reason for event in await host.states("operation.execution_unknown")]
    assert 0 == await host.count("cf_deadline") == await host.count("cf_queues_v1")
    held.go.set()
    await host.until_event("operation.late_refused")
    assert ["execution_unknown"] == await phases(host, operation_id)
    assert [] == host.sent
    assert {} == await host.unresolved()


@pytest.mark.contract("RUN-13")
async def test_an_agent_in_a_thread_is_waited_for(hosts: Hosts) -> None:
    """A thread cannot be told to end; one that returns in time has succeeded, and is answered."""
    host = await hosts.open()
    started, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def agent(turn: Turn) -> str:
        loop.call_soon_threadsafe(started.set)
        assert go.wait(20)
        return "in time"

    host.on_turn = agent
    operation_id = await host.accept("m1")
    await started.wait()
    stopping = asyncio.create_task(host.runtime.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    go.set()
    await stopping

    assert ["succeeded"] == await phases(host, operation_id)
    assert ["in time"] == [reply.text for reply in host.sent]


@pytest.mark.contract("RUN-13")
async def test_an_agent_in_a_thread_that_does_not_return_is_unknown(hosts: Hosts) -> None:
    """Its result is refused when it comes."""
    host = await hosts.open(stop_deadline="20ms")
    started, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def agent(turn: Turn) -> str:
        loop.call_soon_threadsafe(started.set)
        assert go.wait(20)
        raise ValueError("too late to matter")

    host.on_turn = agent
    operation_id = await host.accept("m1")
    await started.wait()
    await host.runtime.stop()
    assert ["execution_unknown"] == await phases(host, operation_id)
    go.set()
    await host.until_event("operation.late_refused")

    assert ["failed"] == [event.outcome for event in await host.states("operation.late_refused")]


@pytest.mark.contract("RUN-13")
async def test_a_plain_agent_that_gives_an_awaitable_can_be_aborted(hosts: Hosts) -> None:
    """As a lambda around a coroutine function does."""
    host = await hosts.open()
    held = host.held()
    host.on_turn = lambda turn: held(turn)
    operation_id = await host.accept("m1")
    await held.started.wait()
    await host.runtime.stop()

    assert held.aborted.is_set()
    assert ["cancelled"] == await phases(host, operation_id)


@pytest.mark.contract("RUN-13")
async def test_a_run_that_answers_when_told_to_end_is_answered(hosts: Hosts) -> None:
    """It honoured the abort in its own way."""
    host = await hosts.open()
    started = asyncio.Event()

    async def agent(turn: Turn) -> str:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "as far as I came"
        return "never"

    host.on_turn = agent
    await host.accept("m1")
    await started.wait()
    await host.runtime.stop()

    assert ["as far as I came"] == [reply.text for reply in host.sent]
    assert {} == await host.unresolved()


@pytest.mark.contract("RUN-13", "ADM-01")
async def test_stop_twice_and_at_once(hosts: Hosts) -> None:
    """The second finds nothing to do, and nothing is admitted any more."""
    host = await hosts.open()
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    await asyncio.gather(host.runtime.stop(), host.runtime.stop())
    before = await host.types()
    await host.runtime.stop()

    assert before == await host.types()
    assert "stopped" == (await host.admit("m2")).reason


@pytest.mark.contract("RUN-13")
async def test_a_cancellation_that_the_store_refuses_is_tried_again_by_the_next_stop(hosts: Hosts) -> None:
    """And the rest of the stop is done all the same."""
    host = await hosts.open()
    held = host.held()
    running = await host.accept("m1", "c1")
    await held.started.wait()
    waiting = [await host.accept("m2", "c1"), await host.accept("m3", "c1")]
    with host.failing(SettleUnclaimed):
        await host.runtime.stop()
        assert ["cancelled", "accepted", "accepted"] == await phases(host, running, *waiting)
        assert host.journal.diagnostics()["storage_failures"]
    await host.runtime.stop()

    assert ["cancelled", "cancelled"] == await phases(host, *waiting)


@pytest.mark.contract("RUN-13")
async def test_what_could_not_be_recorded_at_the_deadline_is_recorded_by_the_next_stop(hosts: Hosts) -> None:
    """While the store is away nothing is known of the run."""
    host = await hosts.open(stop_deadline="1ms")
    held = host.held(stubborn=True)
    operation_id = await host.accept("m1")
    await held.started.wait()
    with host.failing(GiveUp):
        await host.runtime.stop()
        assert ["executing"] == await phases(host, operation_id)
    await host.runtime.stop()

    assert ["execution_unknown"] == await phases(host, operation_id)
    assert 0 == await host.count("cf_deadline")
    held.go.set()


@pytest.mark.contract("RUN-13", "RUN-01")
@pytest.mark.parametrize("keep_queued", [False, True])
async def test_a_stop_while_the_agent_is_being_found_claims_nothing(hosts: Hosts, keep_queued: bool) -> None:
    """What was not claimed yet was waiting."""
    host = await hosts.open()
    asked, go = asyncio.Event(), asyncio.Event()

    async def resolve(*_: Any) -> Any:
        asked.set()
        await go.wait()
        return host._echo

    host.on_resolve = resolve
    operation_id = await host.accept("m1")
    await asked.wait()
    stopping = asyncio.create_task(host.runtime.stop(keep_queued=keep_queued))
    await asyncio.sleep(0)
    go.set()
    await stopping

    assert ["accepted" if keep_queued else "cancelled"] == await phases(host, operation_id)
    assert [] == host.turns
    assert "operation.claimed" not in await host.types()


@pytest.mark.contract("RUN-13", "ADM-05")
async def test_a_stop_cancels_nothing_that_another_process_admitted(hosts: Hosts) -> None:
    """It waits on this process's route, and is run by its own when the lease is given back."""
    first, second = await hosts.open(), await hosts.open()
    asked, go = asyncio.Event(), asyncio.Event()
    held = first.held()

    async def resolve(alias: str, identity: object, inbound: Any) -> Any:
        if inbound.event_id == "theirs":
            asked.set()
            await go.wait()
        return held

    first.on_resolve = resolve
    await first.accept("ours")
    await held.started.wait()
    theirs = await second.accept("theirs")
    held.go.set()
    await asked.wait()
    stopping = asyncio.create_task(first.runtime.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    await second.drain()

    assert ["succeeded"] == await phases(second, theirs)
    assert ["theirs"] == [reply.in_reply_to for reply in second.sent]


@pytest.mark.contract("RUN-13", "RPL-02")
async def test_a_send_that_outlasts_the_stop_is_unknown(hosts: Hosts) -> None:
    """It was begun, and nobody knows how it ends."""
    host = await hosts.open(stop_deadline="1ms")
    sending = asyncio.Event()

    async def deliver(_: object) -> None:
        sending.set()
        await asyncio.Event().wait()

    host.on_deliver = deliver
    operation_id = await host.accept("m1")
    await sending.wait()
    await host.runtime.stop()

    operation = await host.operation(operation_id)
    assert ("succeeded", "delivery_unknown") == (operation.phase, operation.reply)
    assert ["stop_deadline"] == [event.reason for event in await host.states("reply.delivery_unknown")]
    assert [operation_id] == list(await host.unresolved())
    assert {"delivered": 0, "delivery_failed": 0, "delivery_unknown": 1} == host.runtime.sendings


@pytest.mark.contract("RUN-13")
async def test_leaving_the_context_keeps_what_waits(hosts: Hosts) -> None:
    """As `counterfoil run` does."""
    host = await hosts.open()
    held = host.held()
    async with host.runtime:
        await host.accept("m1")
        await held.started.wait()
        waiting = await host.accept("m2")

    assert ["accepted"] == await phases(host, waiting)


@pytest.mark.contract("RUN-13", "RUN-05")
@pytest.mark.parametrize("command", [Settle, Mark])
async def test_what_the_writer_has_in_hand_at_the_deadline_is_not_told_twice(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, command: type
) -> None:
    """It lands after all, is counted, and is neither refused as late nor marked again."""
    monkeypatch.setattr("counterfoil.infrastructure.routes.GRACE_SECONDS", 0.0)
    host = await hosts.open(stop_deadline="1ms")
    taken, go = host.hold(command)
    operation_id = await host.accept("m1")
    await taken.wait()
    stopping = asyncio.create_task(host.runtime.stop())
    await asyncio.wait(route_tasks())
    go.set()
    await stopping
    types = await host.types(operation_id)

    assert ["operation.settled", "reply.staged", "reply.delivered"][: 2 if command is Settle else 3] == types[2:]
    assert 1 == host.journal.diagnostics()["completed"]
    assert 0 == await host.count("cf_deadline")


@pytest.mark.contract("RUN-13")
async def test_a_result_that_the_store_did_not_take_is_counted_when_it_does(hosts: Hosts) -> None:
    """By the next stop, once."""
    host = await hosts.open(stop_deadline="1ms")
    with host.failing(Settle) as failed:
        operation_id = await host.accept("m1")
        await failed.wait()
        await host.runtime.stop()
        assert 0 == host.journal.diagnostics()["completed"]
    await asyncio.gather(host.runtime.stop(), host.runtime.stop())

    assert ["succeeded"] == await phases(host, operation_id)
    assert "operation.late_refused" not in await host.types()
    assert 1 == host.journal.diagnostics()["completed"]


@pytest.mark.contract("RUN-13")
async def test_a_route_whose_task_is_cancelled_does_not_begin_anew(hosts: Hosts) -> None:
    """As at the end of an event loop that nobody stopped the runtime in: what waits is left."""
    host = await hosts.open()
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    waiting = await host.accept("m2")
    tasks = route_tasks()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert set() == route_tasks()
    assert ["accepted"] == await phases(host, waiting)
    held.go.set()


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize("keep_queued", [False, True])
async def test_a_stop_that_meets_an_error_does_the_rest_and_then_raises_it(hosts: Hosts, keep_queued: bool) -> None:
    """The first of all; the next stop does what is left."""
    host = await hosts.open()
    held = host.held()
    running = [await host.accept("m1", "c1"), await host.accept("m2", "c2")]
    await held.started.wait()
    waiting = [await host.accept("m3", "c1"), await host.accept("m4", "c2")]
    errors = iter([JournalRefused("one"), *(JournalRefused("another") for _ in range(9))])
    with host.failing(SettleUnclaimed, Release, error=lambda: next(errors)), pytest.raises(JournalRefused, match="one"):
        await host.runtime.stop(keep_queued=keep_queued)
    assert ["cancelled", "cancelled", "accepted", "accepted"] == await phases(host, *running, *waiting)
    assert {"counterfoil-renewal", "counterfoil-route"}.isdisjoint(task.get_name() for task in asyncio.all_tasks())
    await host.runtime.stop(keep_queued=keep_queued)

    assert ["accepted" if keep_queued else "cancelled"] * 2 == await phases(host, *waiting)
    assert 0 == await host.count("cf_deadline")


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize("keep_queued", [False, True])
async def test_what_is_being_admitted_when_a_stop_begins_is_cancelled_or_kept_too(hosts: Hosts, keep_queued: bool) -> None:
    """The journal has them in hand, and takes them after the stop has begun."""
    host = await hosts.open()
    taken, go = host.hold(AdmitInbound)
    admitting = [asyncio.create_task(host.admit(f"m{number}", f"c{number % 20}")) for number in range(100)]
    await taken.wait()
    gone = admitting[7]
    gone.cancel()
    stopping = asyncio.create_task(host.runtime.stop(keep_queued=keep_queued))
    await asyncio.sleep(0)
    go.set()
    await stopping
    answers = [await each for each in admitting if each is not gone]
    operations = [answer.operation_id for answer in answers if answer.operation_id is not None]

    assert 99 == len(operations)
    assert {"accepted" if keep_queued else "cancelled"} == set(await phases(host, *operations))
    assert (100 if keep_queued else 0) == len(await host.unresolved())
    assert 0 == host.journal.diagnostics()["queued"]
    assert set() == route_tasks()
