"""A route whose holder lives and does nothing: the ttl of its lease is the backstop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.infrastructure.commands.leases import Renew

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
    await first.core.committer.submit_async(Renew())
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
