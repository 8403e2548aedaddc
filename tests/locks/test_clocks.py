"""Leases on clocks that jump, stand and begin anew; and the delay after a lease that ended by itself."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

import counterfoil
from counterfoil import LeaseLost
from counterfoil.infrastructure.commands.holds import ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew
from counterfoil.infrastructure.holding import AsyncHolding
from tests.locks.conftest import Children, Journals, apart, free, happened, is_free, waiting


async def take(holding: AsyncHolding[counterfoil.AsyncLease, counterfoil.AsyncLease]) -> counterfoil.AsyncLease:
    """Take a key in a task of its own, so that its loss cancels nobody."""
    return await apart(holding.__aenter__())


@pytest.mark.contract("LCK-09")
async def test_the_wall_clock_moves_no_deadline_and_no_wait(journals: Journals) -> None:
    """An hour forward and two back, while somebody holds and somebody waits."""
    journal, other = await journals.open(), await journals.open()
    lock, theirs = journal.lock("jobs", ttl="20s"), other.lock("jobs")

    async def wait() -> int:
        async with theirs.hold("k", wait="30m") as lease:
            return lease.fence

    async with lock.hold("k") as lease:
        task = apart(wait())
        await waiting(lock, 1)
        for move, by in ((journals.clock.set_forward, "1h"), (journals.clock.set_back, "2h")):
            move(by)
            lease.check()
            await lease.extend()
            assert timedelta(seconds=20) == lease.remaining
            assert [timedelta(seconds=20)] == [holder.remaining for holder in await theirs.holders()]
            assert not await is_free(theirs, "k")
            assert not task.done()
    assert await task > lease.fence


@pytest.mark.contract("LCK-05", "LCK-09")
async def test_a_lease_has_expired_when_its_deadline_has_come(journals: Journals) -> None:
    """To the microsecond, for its holder as for all others; and nothing revives it, though nobody has taken the key."""
    journal, other = await journals.open(), await journals.open()
    lock, theirs = journal.lock("jobs", ttl="20s"), other.lock("jobs")
    lease = await take(lock.hold("k"))
    journals.clock.advance(timedelta(seconds=20) - timedelta(microseconds=1))
    lease.check()
    assert not await is_free(theirs, "k")
    assert 1 == len(await theirs.holders())

    journals.clock.advance(timedelta(microseconds=1))
    with pytest.raises(LeaseLost, match="ttl"):
        lease.check()
    with pytest.raises(LeaseLost, match="ttl"):
        await lease.extend()
    assert timedelta(0) == lease.remaining
    assert [] == await theirs.holders()
    submit = journal.core.committer.submit_async
    assert {lease._held.token: "ttl"} == (await submit(Renew([lease._held.ticket]))).lost
    assert "ttl" == await submit(ReleaseKey(lease._held.ticket))
    assert await is_free(theirs, "k")
    assert {lease._held.token: "ttl"} == (await submit(Renew([lease._held.ticket]))).lost
    assert ["granted", "expired ttl", "granted", "released"] == await happened(lock, "k")


@pytest.mark.contract("LCK-05")
async def test_a_renewal_moves_the_deadline_from_then_on(journals: Journals) -> None:
    journal, other = await journals.open(), await journals.open()
    async with journal.lock("jobs", ttl="20s").hold("k") as lease:
        for _ in range(5):
            journals.clock.advance("19s")
            await lease.extend()
        assert not await is_free(other.lock("jobs"), "k")
        lease.check()


@pytest.mark.sqlite_only("on PostgreSQL an opening ends with its connection, whatever its machine does")
@pytest.mark.contract("LCK-08", "LCK-09")
async def test_another_boot_has_ended_every_lease(journals: Journals) -> None:
    """Though its steady clock begins below every deadline; also a key that was held back is free."""
    journal, other = await journals.open(), await journals.open()
    await take(journal.lock("jobs", ttl="1h").hold("k"))
    await take(journal.lock("late", ttl="1s", lock_delay="1h").hold("k"))
    journals.clock.advance("1s")
    assert not await is_free(other.lock("late"), "k")
    assert not await is_free(other.lock("jobs"), "k")
    journals.clock.reboot("boot-2")

    assert await is_free(other.lock("jobs"), "k")
    assert await is_free(other.lock("late"), "k")
    assert [] == await other.lock("jobs").holders()


@pytest.mark.contract("LCK-07")
async def test_no_renewal_moves_a_lease_past_its_max_hold(journals: Journals) -> None:
    journal, other = await journals.open(), await journals.open()
    lock = journal.lock("jobs", ttl="20s", max_hold="50s")
    lease = await take(lock.hold("k"))
    for left in (20, 20, 5):
        journals.clock.advance("15s")
        await lease.extend()
        assert timedelta(seconds=left) == lease.remaining
    journals.clock.advance("5s")
    with pytest.raises(LeaseLost, match="max_hold"):
        await lease.extend()
    assert await is_free(other.lock("jobs"), "k")
    assert ["granted", "expired max_hold", "granted", "released"] == await happened(lock, "k")


@pytest.mark.contract("LCK-07")
async def test_the_shortest_max_hold_is_a_millisecond(journals: Journals) -> None:
    """On a clock that stands it is held until that has passed; on the machine's its block ends in the loss."""
    journal, real = await journals.open(), await journals.open(real_time=True)
    lease = await take(journal.lock("jobs", max_hold="1ms").hold("k"))
    assert timedelta(milliseconds=1) == lease.remaining
    journals.clock.advance("1ms")
    with pytest.raises(LeaseLost, match="max_hold"):
        lease.check()

    async def hold() -> None:
        async with real.lock("others", max_hold="1ms").hold("k"):
            time.sleep(0.002)  # noqa: ASYNC251 - the block is to last longer, and not to yield

    with pytest.raises(LeaseLost, match="max_hold"):
        await hold()
    assert await is_free(real.lock("others"), "k")


@pytest.mark.contract("LCK-08")
@pytest.mark.parametrize("limit", ["ttl", "max_hold"])
async def test_the_lock_delay_holds_a_key_back_after_a_lease_that_ran_out(journals: Journals, limit: str) -> None:
    """From its end, whenever that was looked at; and though the one who looked has gone and another looks."""
    journal, observer = await journals.open(), await journals.open()
    options = {"ttl": "10s"} if limit == "ttl" else {"ttl": "1m", "max_hold": "10s"}
    await take(journal.lock("jobs", lock_delay="20s", **options).hold("k"))
    journals.clock.advance("15s")
    assert not await is_free(observer.lock("jobs"), "k")
    assert ["granted", f"expired {limit}"] == await happened(observer.lock("jobs"), "k")
    await observer.close()
    await journal.close()

    later = await journals.open()
    journals.clock.advance(timedelta(seconds=15) - timedelta(microseconds=1))
    assert not await is_free(later.lock("jobs"), "k")
    journals.clock.advance(timedelta(microseconds=1))
    assert await is_free(later.lock("jobs"), "k")


@pytest.mark.contract("LCK-04", "LCK-08")
async def test_who_waits_gets_a_key_when_its_delay_is_over(journals: Journals) -> None:
    journal, other = await journals.open(), await journals.open()
    await take(journal.lock("jobs", ttl="10s", lock_delay="20s").hold("k"))
    lock = other.lock("jobs")

    async def wait() -> int:
        async with lock.hold("k", wait="1h") as lease:
            return lease.fence

    task = apart(wait())
    await waiting(lock, 1)
    journals.clock.advance("29s")
    assert not await is_free(lock, "k")
    assert not task.done()
    journals.clock.advance("1s")
    assert await task


@pytest.mark.contract("LCK-08", "LCK-10")
async def test_nothing_holds_a_key_back_that_was_let_go_or_taken_away(journals: Journals) -> None:
    journal, other = await journals.open(), await journals.open()
    lock = journal.lock("jobs", lock_delay="1h")
    async with lock.hold("k"):
        pass
    assert await is_free(other.lock("jobs"), "k")
    await take(lock.hold("k"))
    assert await other.lock("jobs").force_release("k")
    assert await is_free(other.lock("jobs"), "k")


@pytest.mark.contract("LCK-08")
def test_the_lock_delay_holds_a_key_back_after_a_death(journal_url: str, children: Children) -> None:
    """Counted from when somebody saw it; the waiter gets the key by itself."""
    child = children(
        """
        journal = counterfoil.open(sys.argv[1])
        with journal.lock("jobs", ttl="1h", lock_delay="1s").hold("k"):
            say("holds")
            hear()
        """,
        journal_url,
    )
    child.hear()
    with counterfoil.open(journal_url) as journal:
        lock = journal.lock("jobs")
        child.kill()
        killed = time.monotonic()
        assert not free(lock, "k")
        with lock.hold("k", wait="1m"):
            assert time.monotonic() - killed >= 1.0
        assert ["granted", "expired opening_ended", "granted", "released"] == [
            event.happened + (f" {event.reason}" if event.reason else "") for event in lock.history("k").rows
        ]
