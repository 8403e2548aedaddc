"""Blocks of an event loop whose lease is lost while they work, and those that are cancelled in the wrong moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import counterfoil
from counterfoil import LeaseLost, LockHeld
from counterfoil.infrastructure.commands.holds import Advance, Hold, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew
from counterfoil.infrastructure.held import HeldLease
from counterfoil.infrastructure.waiting import Seat
from tests.locks.conftest import PATIENCE, Children, Journals, apart, happened, held, is_free, until, waiting, writer_held

TAKER = """
with counterfoil.open(sys.argv[1]) as journal:
    with journal.lock("jobs").hold("k", wait="1m"):
        say("taken")
"""


# A lease that is lost.


@pytest.mark.contract("LCK-05", "LCK-06")
@pytest.mark.parametrize("raises", [None, ZeroDivisionError])
async def test_a_block_that_never_yields_learns_of_the_loss_at_its_end(
    journals: Journals, children: Children, raises: type[Exception] | None
) -> None:
    """Another process has had the key meanwhile; what the block raised itself is the cause."""
    journal = await journals.open(real_time=True)
    taker = children(TAKER, journals.url)

    async def work() -> None:
        async with journal.lock("jobs", ttl="1s").hold("k"):
            assert taker.hear() == "taken"
            if raises is not None:
                raise raises

    with pytest.raises(LeaseLost, match="ttl") as lost:
        await work()
    taker.ended()

    assert raises is None or isinstance(lost.value.__cause__, raises)
    assert ["granted", "expired ttl", "granted", "released"] == await happened(journal.lock("jobs"), "k")


@pytest.mark.contract("LCK-06", "LCK-10")
async def test_a_block_that_awaits_is_cancelled_when_its_lease_is_lost(journals: Journals) -> None:
    """Also when the next holder has let the key go before anybody here looks."""
    journal, other = await journals.open(real_time=True), await journals.open(real_time=True)
    lock, theirs = journal.lock("jobs"), other.lock("jobs")
    cancelled = False

    async def work() -> None:
        nonlocal cancelled
        async with lock.hold("k"):
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled = True
                raise

    holder = apart(work())
    await until(lambda: held(lock, "k"))
    with writer_held(journal.core, Renew):
        assert await theirs.force_release("k")
        assert await is_free(theirs, "k")
    with pytest.raises(LeaseLost, match="revoked"):
        await asyncio.wait_for(holder, PATIENCE)

    assert cancelled
    assert 0 == holder.cancelling()


def also(lease: HeldLease, call: Callable[[], object]) -> None:
    """Have something called right after the block was told of its loss."""
    tell = lease.on_loss
    assert tell is not None

    def both() -> None:
        tell()
        call()

    lease.on_loss = both


@pytest.mark.contract("LCK-06")
async def test_a_cancel_from_outside_at_the_same_time_stays_one(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")
    started = asyncio.Event()

    async def work() -> None:
        async with lock.hold("k") as lease:
            also(lease._held, lambda: task.cancel())
            started.set()
            await asyncio.sleep(PATIENCE)

    task = apart(work())
    await started.wait()
    await lock.force_release("k")
    with pytest.raises(asyncio.CancelledError):
        await task

    assert task.cancelled()


@pytest.mark.contract("LCK-06")
async def test_a_block_that_swallows_the_cancel_ends_in_the_loss_all_the_same(journal: counterfoil.AsyncJournal) -> None:
    """Alone, and with a cancel from outside that it swallows too."""
    lock = journal.lock("jobs")
    for outside in (False, True):
        started = asyncio.Event()

        async def work(started: asyncio.Event = started) -> None:
            async with lock.hold("k"):
                started.set()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(PATIENCE)

        task = apart(work())
        await started.wait()
        (lease,) = journal.core.waiting.of_loop()._kept.values()
        assert isinstance(lease, HeldLease)
        if outside:
            also(lease, task.cancel)
        await lock.force_release("k")
        with pytest.raises(LeaseLost, match="revoked"):
            await task


@pytest.mark.contract("LCK-06")
@pytest.mark.parametrize("yields", [True, False])
async def test_two_holds_around_one_another_are_both_lost(journals: Journals, yields: bool) -> None:
    journal = await journals.open(real_time=True)
    ttl = "30s" if yields else "1s"
    outer, inner = journal.lock("outer", ttl=ttl), journal.lock("inner", ttl=ttl)

    async def work() -> None:
        async with outer.hold("k"), inner.hold("k"):
            if yields:
                assert await outer.force_release("k")
                assert await inner.force_release("k")
                await asyncio.sleep(PATIENCE)
            time.sleep(1.2)  # noqa: ASYNC251 - which is what is tried

    task = apart(work())
    with pytest.raises(LeaseLost) as lost:
        await task

    assert "outer" == lost.value.lock
    assert 0 == task.cancelling()
    assert await is_free(outer, "k")
    assert await is_free(inner, "k")


@pytest.mark.contract("LCK-06")
async def test_the_inner_loss_is_caught_and_the_outer_block_goes_on(journal: counterfoil.AsyncJournal) -> None:
    outer, inner = journal.lock("outer"), journal.lock("inner")

    async def lose(lock: counterfoil.AsyncLock) -> None:
        async with lock.hold("k"):
            await lock.force_release("k")
            await asyncio.sleep(PATIENCE)

    async def work() -> str:
        async with outer.hold("k") as lease:
            with pytest.raises(LeaseLost):
                await lose(inner)
            await asyncio.sleep(0)
            lease.check()
            return "went on"

    assert "went on" == await apart(work())


@pytest.mark.contract("LCK-06")
async def test_a_timeout_around_a_hold_and_one_inside(journal: counterfoil.AsyncJournal) -> None:
    """Each stays what it is; a loss inside a timeout that has not passed is a loss."""
    lock = journal.lock("jobs")

    async def lose() -> None:
        await lock.force_release("k")
        await asyncio.sleep(PATIENCE)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), lock.hold("k"):
            await asyncio.sleep(PATIENCE)
    with pytest.raises(TimeoutError):
        async with lock.hold("k"), asyncio.timeout(0.05):
            await asyncio.sleep(PATIENCE)
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(PATIENCE), lock.hold("k"):
            await lose()
    with pytest.raises(LeaseLost):
        async with lock.hold("k"), asyncio.timeout(PATIENCE):
            await lose()
    await until(lambda: is_free(lock, "k"))


@pytest.mark.contract("LCK-06", "LCK-15")
async def test_a_timeout_ends_a_wait_and_leaves_no_place(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")

    async def ask() -> None:
        async with asyncio.timeout(0.05), lock.hold("k", wait="1h"):
            raise AssertionError("somebody else has it")

    async with lock.hold("k"):
        with pytest.raises(TimeoutError):
            await apart(ask())
        await waiting(lock, 0)


@pytest.mark.contract("LCK-06")
async def test_a_group_of_tasks_inside_a_hold_is_cancelled_with_it(journal: counterfoil.AsyncJournal) -> None:
    """And what a task of a group holds is lost to that task alone."""
    lock = journal.lock("jobs")
    ended = []

    async def work(number: int) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.append(number)

    async def around() -> None:
        async with lock.hold("k"), asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(work(number))
            await asyncio.sleep(0)
            await lock.force_release("k")

    async def inside(key: int) -> None:
        async with lock.hold(key):
            await lock.force_release(key)
            await asyncio.sleep(PATIENCE)

    with pytest.raises(LeaseLost):
        await apart(around())
    assert [0, 1, 2] == sorted(ended)

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(inside(1))
    assert [LeaseLost] == [type(error) for error in group.value.exceptions]


# A lease that is let go.


@pytest.mark.contract("LCK-10")
async def test_a_block_works_on_after_it_has_let_its_lease_go(journals: Journals) -> None:
    """Longer than the ttl, and while somebody else has the key: what it no longer has cannot be lost."""
    journal = await journals.open(real_time=True)
    lock = journal.lock("jobs", ttl="2s")

    async def other() -> None:
        async with lock.hold("k"):
            await asyncio.sleep(2.5)

    async with lock.hold("k") as lease:
        assert await lease.release()
        task = apart(other())
        await asyncio.sleep(2.2)
        assert not task.done()
        assert not await lease.release()
    await task

    assert ["granted", "released"] * 2 == await happened(lock, "k")


@pytest.mark.contract("LCK-05")
async def test_a_renewal_under_way_revives_nothing(journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """The block ends while its renewal is in the writer's hands; nothing is logged about that."""
    journal = await journals.open(real_time=True)
    lock = journal.lock("jobs", ttl="3s")
    with writer_held(journal.core, Renew) as held_writer:

        async def work() -> None:
            async with lock.hold("k"):
                await asyncio.to_thread(held_writer.taken.wait, PATIENCE)

        task = apart(work())
        await asyncio.to_thread(held_writer.taken.wait, PATIENCE)
    await task

    assert await is_free(lock, "k")
    await asyncio.sleep(0.5)
    assert [] == await lock.holders()
    assert [] == [record for record in caplog.records if record.levelname != "DEBUG"]
    assert ["granted", "released"] * 2 == await happened(lock, "k")


async def test_a_cancel_at_the_end_of_the_block_leaves_the_key_free(journal: counterfoil.AsyncJournal) -> None:
    """The release that is under way goes on, and nothing that was begun in the block takes the lease for its own."""
    lock = journal.lock("jobs")
    go = asyncio.Event()

    async def ask() -> bool:
        await go.wait()
        async with lock.try_hold("k") as lease:
            return lease is not None

    async def work() -> None:
        async with lock.hold("k"):
            inside.append(asyncio.create_task(ask()))

    inside: list[asyncio.Task[bool]] = []
    with writer_held(journal.core, ReleaseKey) as held_writer:
        task = apart(work())
        await asyncio.to_thread(held_writer.taken.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: is_free(lock, "k"))
    go.set()
    assert await inside[0]


# A cancel in the instant of the grant.


def seat_of(journal: counterfoil.AsyncJournal) -> Seat:
    (seats,) = journal.core.waiting._seats.values()
    (seat,) = seats.values()
    return seat


def after(steps: int, call: Callable[[], Any]) -> None:
    """Call something so many turns of the event loop from now."""
    if steps:
        asyncio.get_running_loop().call_soon(after, steps - 1, call)
    else:
        call()


async def hold_for_ever(lock: counterfoil.AsyncLock) -> None:
    async with lock.hold("k", wait="1h"):
        await asyncio.sleep(PATIENCE)


async def hold_once(lock: counterfoil.AsyncLock) -> int:
    async with lock.hold("k", wait="1m") as lease:
        return lease.fence


@pytest.mark.contract("LCK-15")
@pytest.mark.parametrize("steps", range(8))
async def test_a_cancel_around_a_grant_from_the_line_gives_the_lease_back(journal: counterfoil.AsyncJournal, steps: int) -> None:
    """At every turn of the event loop after the writer has granted; the next in line gets it."""
    lock, loop = journal.lock("jobs"), asyncio.get_running_loop()
    async with lock.hold("k"):
        task = apart(hold_for_ever(lock))
        await waiting(lock, 1)
        seat_of(journal).granted.add_done_callback(lambda _: loop.call_soon_threadsafe(after, steps, task.cancel))
        following = apart(hold_once(lock))
        await waiting(lock, 2)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
        await following

    assert await is_free(lock, "k")
    assert ["granted", "released"] * 4 == await happened(lock, "k")


@pytest.mark.contract("LCK-15")
@pytest.mark.parametrize("steps", range(8))
async def test_a_cancel_around_an_answer_of_the_writer_gives_the_lease_back(
    journal: counterfoil.AsyncJournal, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The same for a key that is free when it is asked for."""
    lock, committer = journal.lock("jobs"), journal.core.committer
    complete = committer._complete_in_loop

    def completed(requests: list[Any]) -> None:
        if any(isinstance(request.command, Hold) for request in requests):
            after(steps, task.cancel)
        complete(requests)

    with monkeypatch.context() as patch:
        patch.setattr(committer, "_complete_in_loop", completed)
        task = apart(hold_for_ever(lock))
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: is_free(lock, "k"))


@pytest.mark.contract("LCK-15")
@pytest.mark.parametrize("command", [Hold, Advance])
async def test_a_cancel_while_the_writer_grants_gives_the_lease_back(journal: counterfoil.AsyncJournal, command: type) -> None:
    """Whether the key was free or came free."""
    lock, blocker = journal.lock("jobs"), None
    if command is Advance:
        blocker = lock.hold("k")
        await blocker.__aenter__()
        task = apart(hold_for_ever(lock))
        await waiting(lock, 1)
    with writer_held(journal.core, command, after=None if blocker is None else ReleaseKey) as held_writer:
        if blocker is not None:
            await blocker.__aexit__(None, None, None)
        else:
            task = apart(hold_for_ever(lock))
        await asyncio.to_thread(held_writer.taken.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await until(lambda: is_free(lock, "k"))
    assert {"granted", "released"} == set(await happened(lock, "k"))


@pytest.mark.contract("LCK-15")
async def test_a_wait_that_ends_while_the_writer_grants_gives_the_lease_back(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")

    async def ask() -> None:
        async with lock.hold("k", wait="2s"):
            raise AssertionError("the wait was over")

    holder = lock.hold("k")
    await holder.__aenter__()
    task = apart(ask())
    await waiting(lock, 1)
    with writer_held(journal.core, Advance, after=ReleaseKey):
        await holder.__aexit__(None, None, None)
        with pytest.raises(LockHeld, match="is over"):
            await task

    await until(lambda: is_free(lock, "k"))
    await waiting(lock, 0)


# An event loop that ends.


@pytest.mark.contract("LCK-06", "LCK-15")
def test_an_event_loop_that_ends_takes_its_holds_and_waits_with_it(
    journals_apart: Callable[[], counterfoil.AsyncJournal],
) -> None:
    """One journal in two event loops after one another, each of which ends with a task that holds and one that waits."""

    async def leave_behind(journal: counterfoil.AsyncJournal) -> None:
        lock = journal.lock("jobs")
        left.append(apart(hold_for_ever(lock)))
        await until(lambda: held(lock, "k"))
        left.append(apart(hold_for_ever(lock)))
        await waiting(lock, 1)

    async def see(journal: counterfoil.AsyncJournal) -> None:
        lock = journal.lock("jobs")
        await until(lambda: is_free(lock, "k"))
        await waiting(lock, 0)

    left: list[asyncio.Task[None]] = []
    journal = journals_apart()
    asyncio.run(journal.__aenter__())
    for _ in range(2):
        asyncio.run(leave_behind(journal))
    asyncio.run(see(journal))
    asyncio.run(journal.close())

    assert all(task.cancelled() for task in left)


@pytest.mark.contract("LCK-05")
def test_a_lease_of_an_event_loop_that_was_closed_in_the_middle_runs_out(
    journals_apart: Callable[[], counterfoil.AsyncJournal],
) -> None:
    """Nothing renews it, and nobody is told: its ttl is the backstop."""
    journal = journals_apart()
    asyncio.run(journal.__aenter__())
    loop = asyncio.new_event_loop()
    holding = journal.lock("jobs", ttl="1s").hold("k")
    loop.run_until_complete(holding.__aenter__())
    loop.close()

    async def follow() -> list[str]:
        async with journal.lock("jobs").hold("k", wait="1m"):
            return await happened(journal.lock("jobs"), "k")

    assert ["granted", "expired ttl", "granted"] == asyncio.run(follow())
    asyncio.run(journal.close())


@pytest.fixture
def journals_apart(journal_url: str) -> Callable[[], counterfoil.AsyncJournal]:
    """A journal that no event loop has opened yet."""
    return lambda: counterfoil.open_async(journal_url)
