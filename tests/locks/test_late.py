"""A holder that comes back when its lease has run out, and somebody else has had the key and let it go."""

from __future__ import annotations

import asyncio
import threading

import pytest

import counterfoil
from counterfoil import LeaseLost
from tests.locks.conftest import PATIENCE, Journals, happened


def take_meanwhile(journals: Journals) -> None:
    """Let the lease of `k` run out, and let another opening have the key and let it go, while the event loop stands still."""

    def work() -> None:
        with counterfoil.open(journals.url, clock=journals.clock) as other, other.lock("jobs").hold("k"):
            pass

    journals.clock.advance("31s")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)


@pytest.mark.contract("LCK-05", "LCK-06")
@pytest.mark.parametrize("yields", [True, False])
async def test_a_late_block_ends_in_the_loss_of_its_own_lease(journals: Journals, yields: bool) -> None:
    """The release that the journal tells of is not its own: it does not end as one that let the key go."""
    lock = (await journals.open()).lock("jobs")

    async def work() -> None:
        async with lock.hold("k"):
            take_meanwhile(journals)
            if yields:
                await asyncio.sleep(PATIENCE)

    with pytest.raises(LeaseLost) as lost:
        await asyncio.create_task(work())

    assert "ttl" == lost.value.reason
    assert ["granted", "expired ttl", "granted", "released"] == await happened(lock, "k")


@pytest.mark.contract("LCK-05", "LCK-10")
async def test_a_late_release_tells_that_it_was_not_held(journals: Journals) -> None:
    """And leaves alone what others did with the key."""
    lock = (await journals.open()).lock("jobs")

    async def work() -> bool:
        async with lock.hold("k") as lease:
            take_meanwhile(journals)
            released = await lease.release()
            assert "ttl" == lease._held.reason
            with pytest.raises(LeaseLost):
                await lease.extend()
            return released

    with pytest.raises(LeaseLost) as lost:
        await asyncio.create_task(work())

    assert "ttl" == lost.value.reason
    assert ["granted", "expired ttl", "granted", "released"] == await happened(lock, "k")
