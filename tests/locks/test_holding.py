"""Holding a key in asyncio: given, refused, waited for, and let go."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import counterfoil
from counterfoil import AlreadyHeld, InvalidValue, LeaseLost, LockHeld
from tests.engines import Engine
from tests.locks.conftest import PATIENCE, Journals, apart, happened, held, is_free, until, waiting


@pytest.mark.contract("LCK-01", "LCK-04")
async def test_one_at_a_time_has_a_key(journal: counterfoil.AsyncJournal) -> None:
    """Others get None at once, and the key as soon as it is let go."""
    lock = journal.lock("summaries")
    async with lock.try_hold("chat-1") as lease:
        assert lease is not None
        assert not await is_free(lock, "chat-1")
        assert await is_free(lock, "chat-2")

    assert await is_free(lock, "chat-1")
    assert ["granted", "released"] * 2 == await happened(lock, "chat-1")


async def test_two_locks_and_two_keys_have_nothing_to_do_with_each_other(journal: counterfoil.AsyncJournal) -> None:
    async with journal.lock("a").try_hold("x") as first, journal.lock("b").try_hold("x") as second:
        async with journal.lock("a").try_hold("y") as third:
            assert first is not None
            assert second is not None
            assert third is not None
            assert first.fence < second.fence < third.fence


@pytest.mark.contract("LCK-02")
async def test_fences_grow_over_locks_keys_openings_and_clocks(journals: Journals) -> None:
    """As numbers, and as texts of forty digits."""
    fences, texts = [], []
    for name in ("a", "b"):
        journal = await journals.open()
        for key in ("x", "y", "x"):
            async with journal.lock(name).hold(key) as lease:
                fences.append(lease.fence)
                texts.append(lease.fence_text)
        await journal.close()
        journals.clock.set_back("10h")

    assert fences == sorted(set(fences))
    assert texts == sorted(f"{fence:040d}" for fence in fences)


@pytest.mark.contract("LCK-11")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_holder_that_asks_for_its_own_key_is_refused_at_once(journal: counterfoil.AsyncJournal, waits: bool) -> None:
    """Also in a task that was begun in its block, and with another handle; another key is fine, and so is the key afterwards."""
    lock, again = journal.lock("jobs"), journal.lock("jobs", ttl="5s")

    async def ask(key: str | int) -> None:
        async with again.hold(key, wait="1h") if waits else again.try_hold(key):
            pass

    async with lock.hold(4711):
        with pytest.raises(AlreadyHeld) as refused:
            await ask("4711")
        with pytest.raises(AlreadyHeld):
            await asyncio.create_task(ask(4711))
        await ask(8)
    await ask(4711)

    assert ("jobs", "4711") == (refused.value.lock, refused.value.key)
    assert "4711" not in str(refused.value)


@pytest.mark.contract("LCK-04", "LCK-13", "LCK-15")
async def test_who_waits_is_served_in_order_and_nobody_overtakes(journal: counterfoil.AsyncJournal) -> None:
    """Whoever asks in between gets None: the line comes first."""
    lock = journal.lock("jobs")
    order: list[int] = []

    async def wait(number: int) -> None:
        async with lock.hold("k", wait="1m"):
            order.append(number)
            if number < 19:
                assert not await is_free(lock, "k")

    async with lock.hold("k"):
        tasks = []
        for number in range(20):
            tasks.append(apart(wait(number)))
            await waiting(lock, number + 1)
        assert [row.place for row in await lock.waiters()] == list(range(1, 21))
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks)

    assert list(range(20)) == order
    assert [] == await lock.waiters()


@pytest.mark.contract("LCK-04")
@pytest.mark.parametrize("wait", ["0s", "50ms", timedelta(milliseconds=50)])
async def test_a_wait_that_is_over_raises_and_leaves_no_place(journal: counterfoil.AsyncJournal, wait: str | timedelta) -> None:
    lock = journal.lock("jobs")

    async def ask() -> None:
        async with lock.hold("key-1", wait=wait):
            raise AssertionError("somebody else has it")

    async with lock.hold("key-1"):
        with pytest.raises(LockHeld, match=r"^lock jobs, key #[0-9a-f]{8}: somebody else has it") as refused:
            await apart(ask())
        await waiting(lock, 0)

    assert "key-1" == refused.value.key
    assert await is_free(lock, "key-1")


@pytest.mark.contract("LCK-15")
async def test_a_wait_that_is_cancelled_leaves_no_place(journal: counterfoil.AsyncJournal) -> None:
    """Who waits behind it is not kept from the key by it."""
    lock = journal.lock("jobs")

    async def wait() -> int:
        async with lock.hold("k", wait="1h") as lease:
            return lease.fence

    async with lock.hold("k") as held:
        first = apart(wait())
        await waiting(lock, 1)
        second = apart(wait())
        await waiting(lock, 2)
        first.cancel()
        await waiting(lock, 1)
    async with asyncio.timeout(PATIENCE):
        assert held.fence < await second
        await asyncio.gather(first, return_exceptions=True)

    assert first.cancelled()
    assert await is_free(lock, "k")


@pytest.mark.contract("LCK-13")
async def test_who_holds_and_who_waits_can_be_seen(journals: Journals) -> None:
    """With the key, since when, and for how long still; the representation shows no key."""
    journal = await journals.open()
    lock = journal.lock("jobs", ttl="20s")

    async def wait() -> None:
        async with lock.hold("chat-9", wait="1h"):
            pass

    async with lock.hold("chat-9") as lease, journal.lock("other").hold(3):
        journals.clock.advance("5s")
        task = apart(wait())
        await waiting(lock, 1)
        (holder,), (waiter,) = await lock.holders(), await lock.waiters()
        assert ["jobs", "other"] == [each.lock for each in await journal.holders()]
        assert ["jobs"] == [each.lock for each in await journal.waiters()]
    await task

    assert ("jobs", "chat-9", lease.fence, timedelta(seconds=15)) == (holder.lock, holder.key, holder.fence, holder.remaining)
    assert timedelta(seconds=4.9) < waiter.since - holder.since < timedelta(seconds=5.1)
    assert ("jobs", "chat-9", 1) == (waiter.lock, waiter.key, waiter.place)
    assert "chat-9" not in f"{holder!r} {waiter!r} {lease!r}"
    assert lease.fence_text == holder.to_json()["fence"]
    assert [] == await lock.holders()


@pytest.mark.contract("LCK-13")
async def test_the_history_of_a_key_comes_in_pages_both_ways(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")
    fences = []
    for _ in range(5):
        async with lock.hold("k") as lease:
            fences.append(lease.fence)
    pages = []
    for newest_first in (False, True):
        events: list[counterfoil.KeyEvent] = []
        after = None
        while True:
            page = await lock.history("k", limit=3, after=after, newest_first=newest_first)
            assert len(page.rows) <= 3
            events += page.rows
            after = page.next
            if after is None:
                break
        pages.append(events)

    assert pages[0] == pages[1][::-1]
    assert ["granted", "released"] * 5 == [event.happened for event in pages[0]]
    assert [fence for fence in fences for _ in range(2)] == [event.fence for event in pages[0]]
    assert sorted({event.position for event in pages[0]}) == [event.position for event in pages[0]]
    assert () == (await lock.history("another")).rows


async def test_what_a_block_raises_passes_through_and_the_key_is_free(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")
    with pytest.raises(ZeroDivisionError):
        async with lock.hold("k"):
            raise ZeroDivisionError

    assert await is_free(lock, "k")


@pytest.mark.contract("LCK-10")
async def test_a_lease_can_be_let_go_before_its_block_ends(journal: counterfoil.AsyncJournal) -> None:
    """Letting go tells whether it was held; the end of the block is none of the next holder's business."""
    lock = journal.lock("jobs")
    async with lock.hold("k") as lease:
        assert await lease.release()
        assert not await lease.release()
        assert timedelta(0) == lease.remaining
        with pytest.raises(LeaseLost, match="released"):
            lease.check()
        async with lock.hold("k") as again:
            assert again.fence > lease.fence

    assert ["granted", "released"] * 2 == await happened(lock, "k")


@pytest.mark.contract("LCK-10", "LCK-05")
async def test_extending_moves_the_deadline(journals: Journals) -> None:
    journal = await journals.open()
    async with journal.lock("jobs", ttl="20s").hold("k") as lease:
        journals.clock.advance("15s")
        assert timedelta(seconds=5) == lease.remaining
        await lease.extend()
        assert timedelta(seconds=20) == lease.remaining
        lease.check()

    assert ["granted", "released"] == await happened(journal.lock("jobs"), "k")


@pytest.mark.contract("LCK-10", "LCK-06")
async def test_force_release_frees_the_key_and_fences_the_holder_out(journal: counterfoil.AsyncJournal) -> None:
    """The block is cancelled at once, and ends in `LeaseLost`; who waits gets the key."""
    lock = journal.lock("jobs")
    olga = counterfoil.Identity(tenant="acme", principal="olga", verified=True)
    assert not await lock.force_release("k")

    async def wait() -> int:
        async with lock.hold("k", wait="1h") as lease:
            return lease.fence

    fences = []

    async def work() -> None:
        async with lock.hold("k") as lease:
            fences.append(lease.fence)
            await asyncio.sleep(PATIENCE)

    holder = apart(work())
    await until(lambda: held(lock, "k"))
    waiter = apart(wait())
    await waiting(lock, 1)
    assert await lock.force_release("k", reason="stuck", operator=olga)
    with pytest.raises(LeaseLost) as lost:
        await holder

    assert "revoked" == lost.value.reason
    assert await waiter > fences[0]
    assert ["granted", "revoked stuck", "granted", "released"] == await happened(lock, "k")
    assert ["system", "operator"] == [event.actor_kind for event in (await lock.history("k")).rows[:2]]


@pytest.mark.parametrize("reason", ["", "two words", "ünï", "a" * 65, None, 7])
async def test_a_reason_is_a_class_word(journal: counterfoil.AsyncJournal, reason: str) -> None:
    async with journal.lock("jobs").hold("k"):
        with pytest.raises(InvalidValue, match=r"^reason must be a word of 1 to 64"):
            await journal.lock("jobs").force_release("k", reason=reason)


async def test_a_holding_is_entered_once_at_a_time(journal: counterfoil.AsyncJournal) -> None:
    holding = journal.lock("jobs").hold("k")
    async with holding:
        with pytest.raises(RuntimeError, match="entered already"):
            await holding.__aenter__()
    async with holding as lease:
        lease.check()


async def test_closing_the_journal_ends_leases_and_waits(journals: Journals) -> None:
    """Who holds is told, who waits is answered, and the key is free."""
    journal, other = await journals.open(), await journals.open()
    lock, outside = journal.lock("jobs"), other.lock("jobs")

    async def hold(key: str) -> None:
        async with lock.hold(key, wait="1h"):
            await asyncio.sleep(PATIENCE)

    async with outside.hold("theirs"):
        waiter, holder = apart(hold("theirs")), apart(hold("ours"))
        await waiting(outside, 1)
        await until(lambda: held(outside, "ours"))
        await journal.close()
        with pytest.raises(LeaseLost, match="opening_ended"):
            await holder
        with pytest.raises(counterfoil.Closed):
            await waiter

    assert await is_free(outside, "ours")
    assert ["granted", "expired opening_ended", "granted", "released"] == await happened(outside, "ours")


@pytest.mark.contract("LCK-10")
async def test_force_release_of_a_fence_takes_the_key_from_nobody_else(journal: counterfoil.AsyncJournal) -> None:
    """Who got the key meanwhile keeps it, and nothing is appended."""
    lock = journal.lock("jobs")
    async with lock.hold("k") as before:
        pass
    assert not await lock.force_release("k", fence=before.fence)
    async with lock.hold("k") as lease:
        position = await journal.position()
        for fence in (before.fence, 0, lease.fence + (1 << 64)):
            assert not await lock.force_release("k", fence=fence)
        assert position == await journal.position()
        await lease.extend()

    async def lose() -> None:
        async with lock.hold("k") as lease:
            assert await lock.force_release("k", fence=lease.fence)
            await asyncio.sleep(PATIENCE)

    with pytest.raises(LeaseLost, match="revoked"):
        await lose()


@pytest.mark.parametrize("fence", ["7", b"7", 7.0, True])
async def test_what_is_no_fence_is_refused(journal: counterfoil.AsyncJournal, fence: Any) -> None:
    """Text is, which would never be found."""
    with pytest.raises(InvalidValue, match="fence must be a number"):
        await journal.lock("jobs").force_release("k", fence=fence)


@pytest.mark.contract("LCK-11")
async def test_waiters_take_nothing_that_renewals_and_releases_need(journals: Journals, engine: Engine) -> None:
    """Two thousand of them on one key, half of that on PostgreSQL, with a short ttl: no thread and no connection for each."""
    import threading

    journal, many = await journals.open(real_time=True), 2_000 if engine == "sqlite" else 1_000
    lock = journal.lock("jobs", ttl="6s")
    done: list[int] = []

    async def wait(number: int) -> None:
        async with lock.hold("k", wait="10m"):
            done.append(number)

    async with lock.hold("k") as lease:
        tasks = [apart(wait(number)) for number in range(many)]
        await waiting(lock, many)
        threads = threading.active_count()
        end = asyncio.get_running_loop().time() + 8
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.1)
            lease.check()
    async with asyncio.timeout(240):
        await asyncio.gather(*tasks)

    assert list(range(many)) == done
    assert threads < 20
