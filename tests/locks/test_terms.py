"""What a lock gives its leases besides a ttl: `max_hold`, and a `lock_delay` after a lease that ended by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import counterfoil
from counterfoil import LeaseLost
from tests.locks.conftest import PATIENCE, Journals, apart, happened, held, is_free, until


@pytest.mark.contract("LCK-07")
async def test_no_renewal_carries_a_lease_past_its_max_hold(journals: Journals) -> None:
    """It ends that long after its grant, with its reason, and is free for others."""
    journal = await journals.open()
    lock = journal.lock("jobs", ttl="20s", max_hold="50s")

    async def work() -> None:
        async with lock.hold("k") as lease:
            for left in (20, 20, 20, 5):
                await lease.extend()
                assert timedelta(seconds=left) == lease.remaining
                journals.clock.advance("15s" if left == 20 else "5s")
            await lease.extend()

    with pytest.raises(LeaseLost) as lost:
        await work()

    assert "max_hold" == lost.value.reason
    assert await is_free(lock, "k")
    assert ["granted", "expired max_hold", "granted", "released"] == await happened(lock, "k")


@pytest.mark.contract("LCK-08")
async def test_a_lock_delay_holds_a_key_back_after_a_lease_that_ended_by_itself(journals: Journals) -> None:
    """Its holder may still be at work; the delay counts from the end of the ttl."""
    first, second = await journals.open(), await journals.open()
    lock = second.lock("jobs", lock_delay="10s")

    async def work() -> None:
        async with first.lock("jobs", ttl="5s", lock_delay="10s").hold("k"):
            await asyncio.sleep(PATIENCE)

    holder = apart(work())
    await until(lambda: held(lock, "k"))
    for passes, free in (("5s", False), ("9s", False), ("1s", True)):
        journals.clock.advance(passes)
        assert free == await is_free(lock, "k")
    with pytest.raises(LeaseLost):
        await holder

    assert ["granted", "expired ttl", "granted", "released"] == await happened(lock, "k")


@pytest.mark.contract("LCK-08")
async def test_a_key_that_was_let_go_or_taken_away_is_not_held_back(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs", lock_delay="1h")
    async with lock.hold("k"):
        pass
    assert await is_free(lock, "k")
    with pytest.raises(LeaseLost):
        async with lock.hold("k"):
            assert await lock.force_release("k")

    assert await is_free(lock, "k")
