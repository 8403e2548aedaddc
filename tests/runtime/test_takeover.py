"""A route whose holder lives and does nothing: the ttl of its lease is the backstop. One whose lease was revoked ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.identity import EVERY_TENANT
from counterfoil.infrastructure import routes
from counterfoil.infrastructure.commands.leases import Renew
from tests.runtime.conftest import OPERATOR

if TYPE_CHECKING:
    from tests.runtime.conftest import Hosts


@pytest.mark.contract("LCK-05", "LCK-08", "RUN-03")
async def test_what_waits_takes_the_route_over_when_the_lease_of_a_frozen_holder_runs_out(hosts: Hosts) -> None:
    """Without a new event or a death: the ttl alone."""
    first, second = await hosts.open(lease_ttl="300s"), await hosts.open(lease_ttl="300s")
    held = first.held()
    stuck = await first.accept("m1")
    await held.started.wait()
    await second.accept("m2", text="two")
    hosts.clock.advance("299s")
    assert not await second.runtime.drain("200ms")
    hosts.clock.advance("1s")
    await second.drain()

    assert ["re: two"] == [reply.text for reply in second.sent]
    assert ["ttl"] == [event.cause for event in await second.states("lock.expired")]
    assert [stuck] == list(await second.unresolved())
    held.go.set()


@pytest.mark.contract("LCK-05", "RUN-06")
async def test_a_renewal_that_came_meanwhile_moves_the_end_that_is_waited_for(hosts: Hosts) -> None:
    """It is told anew, and taken over only then."""
    first, second = await hosts.open(lease_ttl="300s"), await hosts.open(lease_ttl="300s")
    held = first.held()
    await first.accept("m1")
    await held.started.wait()
    await second.accept("m2", text="two")
    assert not await second.runtime.drain("100ms")
    hosts.clock.advance("200s")
    await first.renew()
    hosts.clock.advance("299s")
    assert not await second.runtime.drain("200ms")
    assert [] == second.turns
    hosts.clock.advance("1s")
    await second.drain()

    assert ["re: two"] == [reply.text for reply in second.sent]
    held.go.set()


@pytest.mark.contract("LCK-05", "LCK-08", "RUN-03")
async def test_the_ttl_is_the_backstop_on_the_clock_of_the_machine(hosts: Hosts) -> None:
    """The holder's renewals do not come through."""
    first, second = [await hosts.open(real_time=True, lease_ttl="1s") for _ in range(2)]
    held = first.held(stubborn=True)
    with first.failing(Renew):
        await first.accept("m1")
        await held.started.wait()
        await second.accept("m2", text="two")
        await second.drain()

    assert ["re: two"] == [reply.text for reply in second.sent]
    assert ["ttl"] == [event.cause for event in await second.states("lock.expired")]
    held.go.set()


@pytest.mark.contract("RUN-06", "RUN-05", "RCN-04")
@pytest.mark.parametrize("whose", ["own runtime", "own desk", "other runtime", "other desk"])
async def test_a_run_whose_lease_was_revoked_is_aborted(hosts: Hosts, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    """Long before a third of the ttl: at once by the runtime that filed it, at the next look elsewhere."""
    if whose == "own runtime":
        monkeypatch.setattr(routes, "WATCH_SECONDS", 3_600)
    host, other = await hosts.open(lease_ttl="300s"), await hosts.open(lease_ttl="300s")
    held, neighbour = host.held(), host.held()
    host.on_resolve = lambda alias, identity, inbound: held if inbound.event_id == "m1" else neighbour
    operation_id = await host.accept("m1")
    await held.started.wait()
    await host.accept("n1", "c2")
    await neighbour.started.wait()
    acting = host if whose.startswith("own") else other
    options: dict[str, Any] = {
        "expected_version": (await host.operation(operation_id)).version,
        "acknowledge_duplicate_risk": True,
        "force": True,
    }
    if whose.endswith("desk"):
        answer = await acting.desk.reconcile(operation_id, **options)
    else:
        answer = await acting.runtime.reconcile(OPERATOR, operation_id, tenant=EVERY_TENANT, **options)
    async with asyncio.timeout(5):
        await held.aborted.wait()
    await host.until_event("operation.late_refused")
    neighbour.go.set()
    await host.drain()

    assert "execution_unknown" == answer.outcome
    assert 1 == host.journal.diagnostics()["lease_losses"]
    assert not neighbour.aborted.is_set()
    assert ["n1"] == [reply.in_reply_to for reply in host.sent]
    assert "execution_unknown" == (await host.operation(operation_id)).phase


@pytest.mark.contract("RUN-06")
async def test_a_look_that_fails_is_taken_again(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away for a moment does not end the looking."""
    host, other = await hosts.open(lease_ttl="300s"), await hosts.open(lease_ttl="300s")
    held = host.held()
    operation_id = await host.accept("m1")
    await held.started.wait()
    look, failed = host.runtime._routes.look_at_leases, asyncio.Event()

    async def away() -> None:
        if not failed.is_set():
            failed.set()
            raise JournalUnavailable("the store is away")
        await look()

    monkeypatch.setattr(host.runtime._routes, "look_at_leases", away)
    version = (await host.operation(operation_id)).version
    await other.desk.reconcile(operation_id, expected_version=version, acknowledge_duplicate_risk=True, force=True)
    async with asyncio.timeout(5):
        await held.aborted.wait()

    assert failed.is_set()
