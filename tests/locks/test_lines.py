"""Lines of waiters when something goes wrong around them: a frozen opening, a look that fails, a loop that has ended."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from contextvars import Context
from typing import Any

import pytest

import counterfoil
from counterfoil import LeaseLost, LockHeld
from counterfoil.domain.hold import checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.infrastructure.commands.holds import Advance, Advanced, Asked, Granted, Hold, InLine, ReleaseKey
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.postgres import deaths as postgres
from counterfoil.infrastructure.sqlite import deaths as sqlite
from tests.clocks import JournalClock
from tests.locks.conftest import PATIENCE, Journals, Nothing, apart, free, in_thread, is_free, wait_until

TERMS = checked_terms("jobs", "30s", None, None)


class Openings:
    """Openings of one journal, on a clock that is moved, whose commands are run by hand: none of them listens."""

    def __init__(self, url: str, clock: JournalClock, stack: ExitStack) -> None:
        self.clock = clock
        self._open: Callable[[], counterfoil.Journal] = lambda: stack.enter_context(counterfoil.open(url, clock=clock))

    def new(self) -> Core:
        return self._open().core

    @staticmethod
    def key(core: Core) -> str:
        return lock_id(core.engine.journal_key, "jobs", "k")

    def ask(self, core: Core, token: bytes) -> Asked:
        return core.committer.submit(Hold(TERMS, self.key(core), "k", token.ljust(16, b"."), True)).result(PATIENCE)

    def advance(self, core: Core) -> Advanced:
        return core.committer.submit(Advance(self.key(core))).result(PATIENCE)

    def release(self, core: Core, granted: Asked) -> None:
        assert isinstance(granted, Granted)
        assert core.committer.submit(ReleaseKey(granted.ticket)).result(PATIENCE) is None


@pytest.fixture
def openings(journal_url: str, clock: JournalClock) -> Iterator[Openings]:
    with ExitStack() as stack:
        yield Openings(journal_url, clock, stack)


@pytest.mark.contract("LCK-04", "LCK-15")
def test_a_frozen_opening_is_stepped_over_with_all_of_its_places(openings: Openings) -> None:
    """Who waits behind them waits for one offer, and not for one of each."""
    holder, frozen, behind = openings.new(), openings.new(), openings.new()
    lease = openings.ask(holder, b"holder")
    for number in range(20):
        assert isinstance(openings.ask(frozen, b"%d" % number), InLine)
    openings.ask(behind, b"behind")
    openings.release(holder, lease)
    assert openings.advance(behind).granted is None
    openings.clock.advance("30s")

    assert openings.advance(behind).granted is not None


@pytest.mark.contract("LCK-04")
def test_who_wakes_has_its_old_turn_again_though_the_key_is_offered_to_another(openings: Openings) -> None:
    holder, frozen, behind = openings.new(), openings.new(), openings.new()
    lease = openings.ask(holder, b"holder")
    openings.ask(frozen, b"frozen")
    openings.ask(behind, b"behind")
    openings.release(holder, lease)
    openings.clock.advance("30s")
    assert openings.advance(holder).in_the_way is not None
    assert openings.advance(frozen).granted is not None
    assert openings.advance(behind).granted is None


@pytest.mark.contract("LCK-15")
def test_a_look_that_fails_is_taken_again_and_loses_no_ring(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    with counterfoil.open(journals.url) as ours, counterfoil.open(journals.url) as theirs:
        holding = theirs.lock("jobs", ttl="1h").hold("k")
        Context().run(holding.__enter__)
        answer = in_thread(lambda: ours.lock("jobs").hold("k", wait="1m").__enter__().fence)
        wait_until(lambda: len(ours.waiters()) == 1)
        failed = threading.Event()

        def fail(*arguments: Any) -> None:
            failed.set()
            raise counterfoil.JournalUnavailable("the store is away")

        monkeypatch.setattr(ours.core, "read", fail)
        holding.__exit__(None, None, None)
        assert answer()
        monkeypatch.undo()


@pytest.mark.contract("LCK-11")
def test_leases_of_threads_are_renewed_while_the_look_at_waiters_fails(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that has no descriptor left."""
    with counterfoil.open(journals.url) as ours, counterfoil.open(journals.url) as theirs:
        other = theirs.lock("jobs", ttl="1h").hold("other")
        Context().run(other.__enter__)
        with ours.lock("jobs", ttl="1s").hold("k") as lease:
            waiter = in_thread(lambda: ours.lock("jobs").hold("other", wait="1m").__enter__().fence)
            wait_until(lambda: len(ours.waiters()) == 1)
            listener = ours.core.waiting.listener

            def fail(*arguments: Any) -> set[str]:
                raise counterfoil.JournalRefused("no descriptor is left")

            monkeypatch.setattr(listener, "_unrung", fail)
            end = threading.Event()
            end.wait(2.5)
            lease.check()
            monkeypatch.undo()
        other.__exit__(None, None, None)
        assert waiter()


@pytest.mark.contract("LCK-15")
def test_a_grant_to_a_loop_that_has_ended_goes_to_the_next(journals: Journals) -> None:
    """Not when its ttl is over, which is an hour."""
    with counterfoil.open(journals.url) as theirs:
        holding = theirs.lock("jobs").hold("k")
        Context().run(holding.__enter__)
        loop = asyncio.new_event_loop()
        journal = counterfoil.open_async(journals.url)

        async def begin() -> None:
            await journal.__aenter__()

            async def wait() -> None:
                async with journal.lock("jobs", ttl="1h").hold("k", wait="1h"):
                    raise AssertionError("its loop has ended")

            left.append(apart(wait()))
            while not await journal.waiters():  # noqa: ASYNC110 - the writer does it
                await asyncio.sleep(0.005)

        left: list[asyncio.Task[None]] = []
        loop.run_until_complete(begin())
        loop.close()
        holding.__exit__(None, None, None)
        wait_until(lambda: in_thread(lambda: free(theirs.lock("jobs"), "k"))())
        journal.core.close()
        left[0]._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.contract("LCK-06")
async def test_a_key_that_was_lost_by_the_own_clock_alone_is_given_back(journals: Journals) -> None:
    """The renewal landed and was answered too late: nobody needs to wait for the ttl that it gave."""
    journal = await journals.open()
    lock = journal.lock("jobs", ttl="1h")
    with pytest.raises(LeaseLost, match="ttl"):
        async with lock.hold("k") as lease:
            lease._held.at = journals.clock.boot()

    assert await is_free(lock, "k")


@pytest.mark.contract("LCK-06")
async def test_a_journal_that_closes_while_keys_are_taken_cancels_nothing_later(url: str) -> None:
    """A task whose lease ended before its block began is told by an error, and not by a cancel in what it awaits next."""

    async def work(lock: counterfoil.AsyncLock, number: int) -> None:
        with suppress(counterfoil.CounterfoilError):
            async with lock.hold(number):
                pass
        await asyncio.sleep(0)

    for _ in range(10):
        journal = counterfoil.open_async(url)
        async with journal:
            lock = journal.lock("jobs")
            async with lock.hold("first"):
                pass
            tasks = [apart(work(lock, number)) for number in range(20)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)


async def test_two_tasks_cannot_enter_one_holding_at_once(journals: Journals) -> None:
    journal = await journals.open()
    holding = journal.lock("jobs").hold("k")
    first, second = (apart(holding.__aenter__()) for _ in range(2))
    done = await asyncio.gather(first, second, return_exceptions=True)

    assert [RuntimeError] == [type(each) for each in done if isinstance(each, Exception)]
    await holding.__aexit__(None, None, None)


@pytest.mark.contract("LCK-13")
async def test_leases_that_are_lost_are_counted(journals: Journals) -> None:
    journal = await journals.open()
    for ends in ("31s", "0s"):
        with suppress(LeaseLost):
            async with journal.lock("jobs").hold("k"):
                journals.clock.advance(ends)

    assert 1 == journal.diagnostics()["lease_losses"]


def test_a_closed_journal_is_not_kept_by_the_death_that_it_waited_for(journals: Journals) -> None:
    """The thread that waits, in the kernel or for the server, may outlive it, and knows nothing of it."""
    with counterfoil.open(journals.url) as theirs, theirs.lock("jobs", ttl="1h").hold("k"):
        left = []
        for _ in range(3):
            with counterfoil.open(journals.url) as ours:
                with pytest.raises(LockHeld):
                    in_thread(lambda ours=ours: ours.lock("jobs").hold("k", wait="20ms").__enter__())()  # type: ignore[misc]
                left.append(weakref.ref(ours.core))
            del ours
        gc.collect()
        assert not any(sqlite._watches.values())
        assert not any(watch.tells for watch in postgres._watches.values())


def test_what_a_collection_gives_back_in_the_midst_of_a_call_is_taken(journals: Journals) -> None:
    """The writer's queue may be entered again by the thread that is in it."""
    with counterfoil.open(journals.url) as journal:
        with journal.core.committer._lock:
            journal.core.waiting.give_up("lk-" + "0" * 32, b"x" * 16)
        assert in_thread(lambda: free(journal.lock("jobs"), "k"))()


@pytest.mark.sqlite_only("on PostgreSQL the thread comes with the opening, before anybody asks for a key")
@pytest.mark.contract("LCK-04")
def test_a_system_without_threads_answers_and_gives_the_key_back(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next hold tries again."""
    with counterfoil.open(journals.url) as journal:
        journal.core.committer.submit(Nothing()).result(PATIENCE)
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "counterfoil-locks":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            journal.lock("jobs", ttl="1h").hold("k").__enter__()
        monkeypatch.undo()
        with journal.lock("jobs").hold("k", wait="1m") as lease:
            lease.check()
