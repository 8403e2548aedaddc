"""Holding a key in threads, `with`: what differs from an event loop is that a thread is told by `check` and at its end."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

import counterfoil
from counterfoil import AlreadyHeld, LeaseLost, LockHeld, WrongThread
from counterfoil.infrastructure.commands.holds import Advance, Hold, ReleaseKey
from tests.clocks import JournalClock
from tests.locks.conftest import PATIENCE, events, free, in_thread, wait_until, writer_held


@pytest.fixture
def journal(url: str) -> Iterator[counterfoil.Journal]:
    with counterfoil.open(url) as journal:
        yield journal


def in_line(lock: counterfoil.Lock, count: int) -> None:
    wait_until(lambda: count == len(lock.waiters()))


@pytest.mark.contract("LCK-01", "LCK-04")
def test_one_thread_at_a_time_has_a_key(journal: counterfoil.Journal) -> None:
    lock = journal.lock("jobs")
    with lock.try_hold("k") as lease:
        assert lease is not None
        assert not in_thread(lambda: free(lock, "k"))()
        assert in_thread(lambda: free(lock, "other"))()
    assert free(lock, "k")
    assert ["granted", "released"] * 2 == events(lock, "k")


@pytest.mark.contract("LCK-11")
@pytest.mark.parametrize("waits", [True, False])
def test_a_holder_that_asks_for_its_own_key_is_refused_at_once(journal: counterfoil.Journal, waits: bool) -> None:
    """Another thread is not refused: it waits for the key, and gets it."""
    lock = journal.lock("jobs")

    def ask() -> int:
        with lock.hold("k", wait="1h") if waits else lock.try_hold("k") as lease:
            assert lease is not None
            return lease.fence

    with lock.hold("k") as lease:
        with pytest.raises(AlreadyHeld):
            ask()
        other = in_thread(lambda: lock.hold("k", wait="1m").__enter__().fence)
        in_line(lock, 1)
    assert lease.fence < other()


@pytest.mark.contract("LCK-04", "LCK-11", "LCK-15")
def test_two_hundred_threads_get_one_key_in_the_order_in_which_they_came(journal: counterfoil.Journal) -> None:
    lock = journal.lock("jobs")
    order: list[int] = []
    fences: list[int] = []

    def work(number: int) -> None:
        with lock.hold("k", wait="10m") as lease:
            order.append(number)
            fences.append(lease.fence)

    with lock.hold("k"):
        answers = []
        for number in range(200):
            answers.append(in_thread(lambda number=number: work(number)))  # type: ignore[misc]
            in_line(lock, number + 1)
    for answer in answers:
        answer()

    assert list(range(200)) == order
    assert sorted(set(fences)) == fences
    assert [] == lock.waiters()


@pytest.mark.contract("LCK-04")
@pytest.mark.parametrize("wait", ["0s", "50ms", timedelta(milliseconds=50)])
def test_a_wait_that_is_over_raises_and_leaves_no_place(journal: counterfoil.Journal, wait: str | timedelta) -> None:
    lock = journal.lock("jobs")

    def ask() -> None:
        with lock.hold("k", wait=wait):
            raise AssertionError("somebody else has it")

    with lock.hold("k"):
        with pytest.raises(LockHeld):
            in_thread(ask)()
        in_line(lock, 0)
    assert free(lock, "k")


@pytest.mark.contract("LCK-06")
def test_the_thread_beside_renews_what_works_longer_than_its_ttl(journal: counterfoil.Journal) -> None:
    """More than twice as long, in a block that never calls the journal."""
    lock = journal.lock("jobs", ttl="2s")
    with lock.hold("k") as lease:
        time.sleep(4.5)
        lease.check()
        assert not in_thread(lambda: free(lock, "k"))()

    assert ["granted", "released"] == events(lock, "k")


@pytest.mark.contract("LCK-06")
def test_a_lease_that_comes_while_the_thread_beside_looks_around_is_renewed(
    journal: counterfoil.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen nothing to do and is about to sleep until somebody comes."""
    lock, looked, go = journal.lock("jobs", ttl="2s"), threading.Event(), threading.Event()
    with lock.hold("first"):
        wait_until(lambda: journal.core.waiting.listener._armed is not None)
    look_around = journal.core.waiting.listener._look_around

    def look(*arguments: Any) -> int | None:
        at = look_around(*arguments)
        if at is None and not looked.is_set():
            looked.set()
            assert go.wait(PATIENCE)
        return at

    monkeypatch.setattr(journal.core.waiting.listener, "_look_around", look)
    journal.core.waiting.listener._wake()
    assert looked.wait(PATIENCE)
    with lock.hold("k") as lease:
        go.set()
        time.sleep(2.5)
        lease.check()


@pytest.mark.contract("LCK-06", "LCK-10")
def test_a_lost_lease_is_told_by_check_and_at_the_end_of_the_block(journal: counterfoil.Journal) -> None:
    """What the block raises itself is the cause; a block that does not look is told at its end."""
    lock = journal.lock("jobs")

    def work(looks: bool) -> None:
        with lock.hold("k") as lease:
            assert in_thread(lambda: lock.force_release("k"))()
            if looks:
                wait_until(lambda: timedelta(0) == lease.remaining)
                with pytest.raises(LeaseLost, match="revoked"):
                    lease.check()
                raise ZeroDivisionError

    with pytest.raises(LeaseLost, match="revoked") as lost:
        work(looks=False)
    assert lost.value.__cause__ is None
    with pytest.raises(LeaseLost, match="revoked") as lost:
        work(looks=True)
    assert isinstance(lost.value.__cause__, ZeroDivisionError)
    assert free(lock, "k")


@pytest.mark.contract("LCK-06", "LCK-10")
def test_a_revocation_is_told_also_when_the_next_holder_has_let_the_key_go(journal: counterfoil.Journal) -> None:
    lock = journal.lock("jobs")

    def work() -> None:
        with lock.hold("k"), writer_held(journal.core, ReleaseKey) as held:
            held.let_go()
            assert in_thread(lambda: lock.force_release("k"))()
            assert in_thread(lambda: free(lock, "k"))()

    with pytest.raises(LeaseLost, match="revoked"):
        work()


@pytest.mark.contract("LCK-10")
def test_a_lease_can_be_let_go_before_its_block_ends(journal: counterfoil.Journal) -> None:
    """And the block works on past the ttl, while the next holder works."""
    lock = journal.lock("jobs", ttl="2s")

    def follow() -> None:
        with lock.hold("k") as lease:
            time.sleep(2.5)
            lease.check()

    with lock.hold("k") as lease:
        assert lease.release()
        assert not lease.release()
        answer = in_thread(follow)
        time.sleep(2.2)
        with pytest.raises(LeaseLost, match="released"):
            lease.check()
    answer()

    assert ["granted", "released"] * 2 == events(lock, "k")


@pytest.mark.contract("LCK-10", "LCK-05")
def test_extending_moves_the_deadline(journal_url: str, clock: JournalClock) -> None:
    with counterfoil.open(journal_url, clock=clock) as journal, journal.lock("jobs", ttl="20s").hold("k") as lease:
        clock.advance("15s")
        lease.extend()
        assert timedelta(seconds=20) == lease.remaining


def test_what_a_block_raises_passes_through_and_the_key_is_free(journal: counterfoil.Journal) -> None:
    lock = journal.lock("jobs")
    with pytest.raises(ZeroDivisionError), lock.hold("k"):
        raise ZeroDivisionError
    assert free(lock, "k")


class Stop(BaseException):
    """What a signal's handler raises, wherever the thread is."""


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """
    Yield what another thread calls to have `Stop` raised here, once.

    The signal is sent until it is heard: one that comes when this thread is just about to wait is heard when the wait is over.
    """
    here, heard = threading.get_ident(), threading.Event()

    def stop(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise Stop

    def interrupt() -> None:
        while not heard.is_set():
            signal.pthread_kill(here, signal.SIGUSR1)
            heard.wait(0.1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.contract("LCK-15")
@pytest.mark.parametrize("command", [Hold, Advance, None])
def test_an_interruption_of_the_wait_gives_the_place_or_the_lease_back(
    journal: counterfoil.Journal, monkeypatch: pytest.MonkeyPatch, command: type | None
) -> None:
    """While the writer decides, while it grants, and in line."""
    lock = journal.lock("jobs")
    holder = lock.hold("k")
    if command is not Hold:
        in_thread(holder.__enter__)()

    def interrupt_in_time() -> None:
        if command is None:
            in_line(lock, 1)
        else:
            if command is Advance:
                in_line(lock, 1)
                journal.core.committer.submit(ReleaseKey(mine))
            assert held.taken.wait(PATIENCE)
        interrupt()

    if command is Advance:
        assert holder._held is not None
        mine = holder._held.ticket
    after = ReleaseKey if command is Advance else None
    with interruptible() as interrupt, writer_held(journal.core, command or Stop, after=after) as held:
        done = in_thread(interrupt_in_time)
        with pytest.raises(Stop):
            lock.hold("k", wait="1h").__enter__()
        done()
    in_line(lock, 0)
    if command is None:
        in_thread(lambda: holder.__exit__(None, None, None))()
    wait_until(lambda: free(lock, "k"))


def test_an_interruption_of_the_release_leaves_the_key_free(journal: counterfoil.Journal) -> None:
    lock = journal.lock("jobs")

    def interrupt_in_time() -> None:
        assert held.taken.wait(PATIENCE)
        interrupt()

    with interruptible() as interrupt, writer_held(journal.core, ReleaseKey) as held:
        holding = lock.hold("k")
        holding.__enter__()
        done = in_thread(interrupt_in_time)
        with pytest.raises(Stop):
            holding.__exit__(None, None, None)
        done()
    wait_until(lambda: free(lock, "k"))


async def test_a_thread_with_an_event_loop_is_refused(journal_url: str) -> None:
    """And beside it, in a thread of its own, a hold is fine."""

    def hold() -> int:
        with lock.hold("k") as lease:
            return lease.fence

    with counterfoil.open(journal_url) as journal:
        lock = journal.lock("jobs")
        with pytest.raises(WrongThread):
            lock.hold("k").__enter__()
        assert await asyncio.to_thread(hold)
        assert await asyncio.to_thread(free, lock, "k")


@pytest.mark.contract("LCK-06")
def test_closing_the_journal_ends_leases_and_waits(journal_url: str) -> None:
    """Who holds is told, who waits is answered, who asks later is refused, and the key is free."""
    journal = counterfoil.open(journal_url)
    lock = journal.lock("jobs")
    go = threading.Event()

    def hold() -> None:
        with lock.hold("k"):
            assert go.wait(PATIENCE)

    def wait() -> None:
        with lock.hold("k", wait="1h"):
            pass

    holder = in_thread(hold)
    wait_until(lambda: bool(lock.holders()))
    waiter = in_thread(wait)
    in_line(lock, 1)
    journal.close()
    with pytest.raises(counterfoil.Closed):
        waiter()
    go.set()
    with pytest.raises(LeaseLost, match="opening_ended"):
        holder()
    with pytest.raises(counterfoil.Closed):
        wait()
    with counterfoil.open(journal_url) as again:
        assert free(again.lock("jobs"), "k")


@pytest.mark.contract("LCK-06")
def test_a_lease_that_is_granted_while_the_journal_closes_is_not_held_on(journal: counterfoil.Journal) -> None:
    """The end of the opening comes behind the grant, and before its caller has it."""
    lock = journal.lock("jobs")
    with lock.hold("first"):
        pass
    with writer_held(journal.core, Hold) as held:
        answer = in_thread(lambda: lock.hold("k").__enter__())
        assert held.taken.wait(PATIENCE)
        closing = in_thread(journal.close)
        wait_until(lambda: journal.core.waiting._closing)
    with pytest.raises(LeaseLost, match="opening_ended"):
        answer()
    closing()
