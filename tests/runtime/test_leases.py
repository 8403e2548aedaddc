"""The lease of a route: who holds it, how it is lost, and what comes too late under it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import Closed, JournalDamaged, JournalRefused
from counterfoil.domain.exchange import Turn
from counterfoil.infrastructure.commands.leases import Renew
from counterfoil.infrastructure.commands.turn import Mark, Release

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts


@pytest.mark.contract("RUN-05", "RUN-06", "LCK-05")
async def test_a_lease_that_ran_out_aborts_the_run_and_its_result_is_refused(hosts: Hosts) -> None:
    """The machine slept past the ttl: the renewal finds it run out, and never revives it."""
    host = await hosts.open(lease_ttl="1s")
    held = host.held()
    operation_id = await host.accept("m1")
    await held.started.wait()
    hosts.clock.advance("1s")
    async with asyncio.timeout(20):
        await held.aborted.wait()
    await host.drain()
    refused = (await host.states("operation.late_refused"))[0]

    assert "executing" == (await host.operation(operation_id)).phase
    assert "cancelled" == refused.outcome
    assert 40 == len(refused.fence)
    assert 1 == host.journal.diagnostics()["lease_losses"]
    assert [] == host.sent
    host.on_turn = host._echo
    await host.answer("m2")
    assert ["ttl"] == [event.cause for event in await host.states("lock.expired")]
    assert ["m2"] == [reply.in_reply_to for reply in host.sent]
    row = (await host.unresolved())[operation_id]
    assert "executing" == row.state


@pytest.mark.contract("RUN-06", "LCK-05")
@pytest.mark.parametrize("error", [JournalRefused, JournalDamaged, Closed, ValueError])
async def test_a_renewal_that_cannot_succeed_loses_the_leases(
    hosts: Hosts, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """Nothing runs on as if it held its route, and what happened is said by its type."""
    host = await hosts.open(lease_ttl="1s")
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    with host.failing(Renew, error=lambda: error("a secret")):
        async with asyncio.timeout(20):
            await held.aborted.wait()
    await host.drain()

    assert 1 == host.journal.diagnostics()["lease_losses"]
    assert f"the leases are lost: their renewal failed with {error.__name__}" in caplog.text
    assert "a secret" not in caplog.text
    host.on_turn = host._echo
    await host.answer("m2", "c2")


@pytest.mark.contract("RUN-05", "LCK-05")
async def test_a_result_that_comes_after_the_ttl_is_refused_though_nobody_took_the_route(hosts: Hosts) -> None:
    """Expired means now >= deadline, whoever looks."""
    host = await hosts.open(lease_ttl="300s")
    held = host.held()
    operation_id = await host.accept("m1")
    await held.started.wait()
    hosts.clock.advance("300s")
    held.go.set()
    await host.drain()

    assert ["succeeded"] == [event.outcome for event in await host.states("operation.late_refused")]
    assert "executing" == (await host.operation(operation_id)).phase
    assert [] == host.sent


@pytest.mark.contract("RUN-05", "RUN-03", "LCK-01", "LCK-02", "LCK-10")
async def test_a_frozen_worker_cannot_settle_what_another_took_over(hosts: Hosts) -> None:
    """The next holder has a larger fence, and its lease is not touched by what comes late."""
    first = await hosts.open(lease_ttl="300s")
    held = first.held()
    stuck = await first.accept("m1")
    await held.started.wait()
    hosts.clock.advance("300s")
    second = await hosts.open(lease_ttl="300s")
    again = second.held()
    await second.accept("m2", text="two")
    await again.started.wait()
    held.go.set()
    await first.until_event("operation.late_refused")
    await first.drain()
    assert 2 == (await second.types()).count("lock.granted")
    assert 0 == (await second.types()).count("lock.released")
    again.go.set()
    await second.drain()

    assert [] == first.sent
    assert ["re: two"] == [reply.text for reply in second.sent]
    assert [stuck] == list(await second.unresolved())
    fences = [event.fence for event in await second.states("operation.settled") + await second.states("operation.late_refused")]
    assert fences[0] > fences[1]


@pytest.mark.contract("RUN-06", "LCK-05")
async def test_one_renewal_extends_all_leases_while_turns_run(hosts: Hosts) -> None:
    """It is no event, and moves the deadlines of all routes together."""
    host = await hosts.open(lease_ttl="1s")
    held = host.held()
    for number in range(3):
        await host.accept(f"m{number}", f"c{number}")
    renewed = asyncio.Event()
    renewals: list[int] = []
    run_group = host.core.committer._run_group
    loop = asyncio.get_running_loop()

    def watch(group: Any) -> None:
        hosts.clock.advance("300ms")
        run_group(group)
        renewals.extend(len(request.result.standing) for request in group if isinstance(request.command, Renew))
        if len(renewals) >= 5:
            loop.call_soon_threadsafe(renewed.set)

    await held.started.wait()
    await host.until(lambda: claimed(host, 3))
    before = await host.types()
    host.core.committer._run_group = watch
    async with asyncio.timeout(20):
        await renewed.wait()
    assert [3] * 5 == renewals[:5]
    assert before == await host.types()
    held.go.set()
    await host.drain()

    assert 3 == len(host.sent)
    assert 0 == host.journal.diagnostics()["lease_losses"]


@pytest.mark.contract("RUN-06", "LCK-06")
async def test_a_route_and_a_key_of_the_host_are_renewed_together(hosts: Hosts) -> None:
    """One renewal a process extends all of its leases."""
    host = await hosts.open(lease_ttl="1s")
    held = host.held()
    renewed = asyncio.Event()
    run_group = host.core.committer._run_group
    loop = asyncio.get_running_loop()
    lengths: list[int] = []

    def watch(group: Any) -> None:
        run_group(group)
        lengths.extend(len(request.result.standing) for request in group if isinstance(request.command, Renew))
        if lengths:
            loop.call_soon_threadsafe(renewed.set)

    async with host.journal.lock("jobs", ttl="1s").hold("k"):
        await host.accept("m1")
        await held.started.wait()
        host.core.committer._run_group = watch
        async with asyncio.timeout(20):
            await renewed.wait()
    assert 2 == lengths[0]
    held.go.set()
    await host.drain()


@pytest.mark.contract("RUN-06")
async def test_the_lease_of_a_route_whose_entry_waits_for_a_slot_is_renewed(hosts: Hosts) -> None:
    """Between two turns of a route that has it; the one slot is another route's."""
    host = await hosts.open(lease_ttl="1s", max_active_sessions=1)
    first, second = host.held(), host.held()
    host.on_resolve = lambda alias, identity, inbound: second if inbound.event_id == "n1" else first
    await host.accept("m1", "c1")
    await first.started.wait()
    await host.accept("n1", "c2")
    await host.accept("m2", "c1")
    renewed = asyncio.Event()
    run_group = host.core.committer._run_group
    loop = asyncio.get_running_loop()
    lengths: list[int] = []

    def watch(group: Any) -> None:
        run_group(group)
        lengths.extend(len(request.result.standing) for request in group if isinstance(request.command, Renew))
        if lengths:
            loop.call_soon_threadsafe(renewed.set)

    first.go.set()
    await second.started.wait()
    host.core.committer._run_group = watch
    async with asyncio.timeout(20):
        await renewed.wait()
    assert 2 == lengths[0]
    second.go.set()
    await host.drain()

    assert ["m1", "n1", "m2"] == [reply.in_reply_to for reply in host.sent]
    assert 2 == (await host.types()).count("lock.granted")


@pytest.mark.contract("RUN-06")
async def test_a_renewal_that_fails_is_tried_again_until_the_ttl_is_over(hosts: Hosts) -> None:
    """While the lease may stand the run goes on; afterwards it is aborted without asking the store."""
    host = await hosts.open(lease_ttl="1s")
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    with host.failing(Renew) as failed:
        await failed.wait()
        assert not held.aborted.is_set()
        hosts.clock.advance("1s")
        async with asyncio.timeout(20):
            await held.aborted.wait()
        await host.drain()

    assert 1 == host.journal.diagnostics()["lease_losses"]
    assert ["cancelled"] == [event.outcome for event in await host.states("operation.late_refused")]


@pytest.mark.contract("RUN-06", "LCK-08", "LCK-09")
async def test_wall_clock_jumps_end_no_lease(hosts: Hosts) -> None:
    """Deadlines follow the boot clock."""
    host = await hosts.open(lease_ttl="300s")
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    hosts.clock.set_forward("1d")
    await host.accept("m2", text="two")
    hosts.clock.set_back("2d")
    held.go.set()
    await host.drain()

    assert ["re: hello", "re: two"] == [reply.text for reply in host.sent]
    assert "lock.expired" not in await host.types()


@pytest.mark.contract("RUN-09", "RUN-03", "ADM-05", "LCK-08")
@pytest.mark.parametrize("death", ["killed", "closed"])
async def test_a_waiting_event_takes_the_route_over_when_its_holder_ends(hosts: Hosts, death: str) -> None:
    """Not when a ttl has passed: no clock moves here."""
    first, second = await hosts.open(lease_ttl="300s"), await hosts.open(lease_ttl="300s")
    held = first.held(stubborn=True)
    stuck = await first.accept("m1")
    await held.started.wait()
    await second.accept("m2", text="two")
    await second.accept("m3", text="three")
    assert not await second.runtime.drain("100ms")
    assert [] == second.turns
    if death == "killed":
        first.die()
    else:
        held.go.set()
        await first.close()
    await second.drain()

    answered = [reply.text for reply in first.sent + second.sent]
    expected = ["re: two", "re: three"]
    assert expected == answered if death == "killed" else ["re: hello", *expected] == answered
    assert ([stuck] if death == "killed" else []) == list(await second.unresolved())
    held.go.set()


@pytest.mark.contract("RUN-03", "ADM-05")
async def test_the_holder_runs_what_others_admit_behind_it(hosts: Hosts) -> None:
    """One queue in order of admission, whoever admitted; nothing overtakes."""
    first, second = await hosts.open(), await hosts.open()
    held = first.held()
    await first.accept("a0")
    await held.started.wait()
    order = ["a0"]
    for number in range(1, 6):
        host = first if number % 2 else second
        await host.accept(f"a{number}", text=f"text {number}")
        order.append(f"a{number}")
    held.go.set()
    await first.drain()
    await second.drain()

    turns = {"a0": 0} | {turn.event_id: number for number, turn in enumerate(held.turns)}
    both = [*first.sent, *second.sent]
    assert sorted(order) == sorted(reply.in_reply_to for reply in both)
    claims = [row.correlation for row in await first.events() if row.type == "operation.claimed"]
    assert claims == [row.correlation for row in await first.events() if row.type == "operation.admitted"]
    assert turns["a0"] == 0
    assert 0 == second.journal.diagnostics()["queued"] == first.journal.diagnostics()["queued"]


@pytest.mark.contract("RUN-03")
async def test_two_processes_hammer_one_route_and_keep_its_order(hosts: Hosts) -> None:
    """At most one turn runs at a time over both, in the order of the admissions."""
    both = [await hosts.open(max_pending_per_binding=32) for _ in range(2)]
    running: list[str] = []
    order: list[str] = []

    async def agent(turn: Turn) -> str:
        running.append(turn.event_id)
        assert 1 == len(running)
        await asyncio.sleep(0)
        running.remove(turn.event_id)
        order.append(turn.event_id)
        return turn.event_id

    for host in both:
        host.on_turn = agent
    for number in range(12):
        await asyncio.gather(*(host.accept(f"{name}{number}") for name, host in zip("ab", both, strict=True)))
    for host in both * 2:
        await host.drain()
    admitted = await both[0].rows(
        "SELECT external_id FROM cf_external_id JOIN cf_event USING (position)"
        " WHERE type = 'operation.admitted' ORDER BY position"
    )

    assert [event_id for (event_id,) in admitted] == order
    assert 24 == len(both[0].sent) + len(both[1].sent)
    assert 0 == await both[0].count("cf_queues_v1")


@pytest.mark.contract("RUN-07")
async def test_a_failed_notice_does_not_overtake_the_route(hosts: Hosts) -> None:
    """An entry that cannot be run ends when it is its turn, also behind another process's."""
    first, second = await hosts.open(), await hosts.open()
    held = first.held()
    await first.accept("m1")
    await held.started.wait()
    second.on_resolve = first.on_resolve = lambda alias, identity, inbound: None
    await second.accept("m2")
    assert not await second.runtime.drain("100ms")
    assert [] == second.sent
    held.go.set()
    await first.drain()
    await second.drain()

    assert ["m1", "m2"] == [reply.in_reply_to for reply in [*first.sent, *second.sent]]


@pytest.mark.contract("RUN-14", "LCK-10")
async def test_a_release_that_fails_keeps_the_lease_and_is_tried_again(hosts: Hosts) -> None:
    """The route is not treated as free before: another process waits for it."""
    first, second = await hosts.open(), await hosts.open()
    with first.failing(Mark, Release) as failed:
        await first.accept("m1")
        await failed.wait()
        await second.accept("m2", text="two")
        assert not await second.runtime.drain("100ms")
        assert "lock.released" not in await first.types()
    await first.drain()
    await second.drain()

    assert ["m1", "m2"] == [reply.in_reply_to for reply in [*first.sent, *second.sent]]
    assert 0 == await first.count("cf_deadline")


@pytest.mark.contract("RUN-14", "RUN-13")
async def test_a_release_that_fails_at_stop_is_tried_again_by_the_next_stop(hosts: Hosts) -> None:
    """And the opening's end frees the route in any case."""
    host, other = await hosts.open(stop_deadline="20ms"), await hosts.open()
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    await host.accept("m2", text="two")
    with host.failing(Release):
        await host.runtime.stop(keep_queued=True)
        assert 1 == host.journal.diagnostics()["storage_failures"]
        assert await lease_held(host)
    await host.runtime.stop(keep_queued=True)

    assert not await lease_held(host)
    await other.answer("m3")
    assert "lock.expired" not in await other.types()


async def claimed(host: Host, times: int) -> bool:
    return (await host.types()).count("operation.claimed") == times


async def lease_held(host: Host) -> bool:
    return await host.count("cf_deadline") == 1


@pytest.mark.contract("RUN-05", "RUN-06", "RUN-02")
@pytest.mark.parametrize("stubborn", [False, True], ids=["heeds the abort", "goes on"])
async def test_a_worker_that_took_its_lease_for_lost_settles_nothing_though_it_stands(hosts: Hosts, stubborn: bool) -> None:
    """The renewal landed, and its answer came too late to be believed: what was cut off is no answer, and stays listed."""
    host = await hosts.open(lease_ttl="300s", stop_deadline="1s")
    held = host.held(stubborn=stubborn)
    operation_id = await host.accept("m1")
    await held.started.wait()
    (worker,) = host.runtime._routes._workers.values()
    assert worker.lease is not None
    worker.lease.passed()
    await host.drain()
    assert "executing" == (await host.unresolved())[operation_id].state
    held.go.set()
    await host.until_event("operation.late_refused")
    host.on_turn = host._echo
    await host.answer("m2")

    assert ["m2"] == [reply.in_reply_to for reply in host.sent]
    assert [operation_id] == list(await host.unresolved())
    assert [] == await host.states("operation.execution_unknown")
    assert 1 == host.journal.diagnostics()["lease_losses"]
