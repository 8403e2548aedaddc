"""Askings whose answer is lost or asked for again, and a store that fails while keys are held: nothing is left behind."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pytest

import counterfoil
from counterfoil import JournalUnavailable, LeaseLost
from counterfoil.domain.hold import checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.infrastructure.commands.holds import Granted, Hold, InLine, Leave, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew
from tests.locks.conftest import PATIENCE, Journals, events, failing, free, in_thread, wait_until
from tests.sqlite import sqlite_engine


@pytest.fixture
def journal(url: str) -> Iterator[counterfoil.Journal]:
    with counterfoil.open(url) as journal:
        yield journal


def asking(journal: counterfoil.Journal, token: bytes, *, waits: bool = True) -> Hold:
    lease_id = lock_id(journal.core.engine.journal_key, "jobs", "k")
    return Hold(checked_terms("jobs", "1h", None, None), lease_id, "k", token * 16, waits)


def run(journal: counterfoil.Journal, command: Any) -> Any:
    return journal.core.committer.submit(command).result(PATIENCE)


# Asked again.


@pytest.mark.contract("LCK-01", "LCK-04")
def test_an_asking_that_comes_twice_gets_one_lease_or_one_place(journal: counterfoil.Journal) -> None:
    """In line it keeps its place; once it has its turn, asking again gives the lease."""
    lock = journal.lock("jobs")
    first = run(journal, asking(journal, b"a"))
    assert isinstance(first, Granted)
    assert first == run(journal, asking(journal, b"a"))
    assert ["granted"] == events(lock, "k")
    for token in (b"b", b"c", b"b"):
        assert isinstance(run(journal, asking(journal, token)), InLine)
    assert [1, 2] == [waiter.place for waiter in lock.waiters()]
    run(journal, ReleaseKey(first.ticket))
    assert not isinstance(run(journal, asking(journal, b"c")), Granted)
    second = run(journal, asking(journal, b"b"))
    assert isinstance(second, Granted)
    assert second.fence > first.fence
    assert ["granted", "released", "granted"] == events(lock, "k")
    assert 1 == len(lock.waiters())


class Failing:
    """A connection whose next COMMIT fails, or whose answer to it is lost."""

    def __init__(self, connection: sqlite3.Connection, *, landed: bool) -> None:
        self._connection = connection
        self._landed = landed
        self.failed = 0
        self.armed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT" and self.armed:
            self.armed = False
            self.failed += 1
            if self._landed:
                self._connection.execute(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *values)


@pytest.mark.sqlite_only("the connection whose COMMIT fails is SQLite's; tests/postgres cuts the wire instead")
@pytest.mark.contract("LCK-01", "LCK-15")
@pytest.mark.parametrize("landed", [True, False])
def test_a_grant_whose_answer_is_lost_leaves_no_lease_behind(journal: counterfoil.Journal, landed: bool) -> None:
    """If it landed the block has it; if not, the asking fails and the key is free."""
    lock = journal.lock("jobs")
    assert free(lock, "other")
    store = Failing(sqlite_engine(journal.core)._writer, landed=landed)
    sqlite_engine(journal.core)._writer = store  # type: ignore[assignment]
    if landed:
        with lock.hold("k") as lease:
            lease.check()
            assert not in_thread(lambda: free(lock, "k"))()
    else:
        with pytest.raises(JournalUnavailable):
            lock.hold("k").__enter__()
    assert 1 == store.failed
    wait_until(lambda: free(lock, "k"))
    assert journal.verify().agrees


@pytest.mark.sqlite_only("the connection whose COMMIT fails is SQLite's; tests/postgres cuts the wire instead")
@pytest.mark.contract("LCK-15")
@pytest.mark.parametrize("landed", [True, False])
def test_a_place_whose_answer_is_lost_is_given_up(journal: counterfoil.Journal, landed: bool) -> None:
    """A place is no event by which the journal could find out whether it landed."""
    lock = journal.lock("jobs")
    with lock.hold("k"):
        store = Failing(sqlite_engine(journal.core)._writer, landed=landed)
        sqlite_engine(journal.core)._writer = store  # type: ignore[assignment]
        with pytest.raises(JournalUnavailable):
            in_thread(lambda: lock.hold("k", wait="1h").__enter__())()
        assert 1 == store.failed
        wait_until(lambda: not lock.waiters())
    assert free(lock, "k")


# A store that fails.


@pytest.mark.sqlite_only("a pragma makes the disk of one journal full")
@pytest.mark.contract("LCK-04", "LCK-15")
@pytest.mark.parametrize("waits", [True, False])
def test_a_full_disk_refuses_the_asking_and_leaves_nothing(journal: counterfoil.Journal, waits: bool) -> None:
    lock, writer = journal.lock("jobs"), sqlite_engine(journal.core)._writer
    assert free(lock, "k")
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    refused = 0
    for number in range(200):
        key = f"{number:03d}" * 300
        try:
            with lock.hold(key, wait="1m") if waits else lock.try_hold(key):
                pass
        except JournalUnavailable:
            refused += 1
            if refused == 3:
                break
    assert 3 == refused
    writer.execute("PRAGMA max_page_count = 1000000")
    wait_until(lambda: not lock.holders() and not lock.waiters())
    for count in range(number + 1):
        assert free(lock, f"{count:03d}" * 300)
    assert journal.verify().agrees


@pytest.mark.contract("LCK-10")
def test_a_release_that_the_store_does_not_take_is_made_good(journal: counterfoil.Journal) -> None:
    """The block ends without an error; the key is free soon after the store is back."""
    lock = journal.lock("jobs", ttl="1h")
    with failing(journal.core, ReleaseKey, Leave) as failed:
        with lock.hold("k"):
            pass
        assert failed.is_set()
        failed.clear()
        assert failed.wait(PATIENCE)  # it was told again
        assert 1 == len(lock.holders())
    wait_until(lambda: not lock.holders())
    assert free(lock, "k")


async def test_a_release_that_the_store_does_not_take_is_made_good_in_an_event_loop(journals: Journals) -> None:
    """Also when the block is cancelled while it lets go."""
    journal = await journals.open(real_time=True)
    lock = journal.lock("jobs", ttl="1h")
    for cancels in (False, True):
        with failing(journal.core, ReleaseKey, Leave) as failed:
            holding = lock.hold("k")
            await holding.__aenter__()
            leaving = asyncio.create_task(holding.__aexit__(None, None, None))
            if cancels:
                await asyncio.sleep(0)
                leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            assert cancels == leaving.cancelled()
            assert await asyncio.to_thread(failed.wait, PATIENCE)
        async with lock.hold("k", wait="1m"):
            pass


@pytest.mark.contract("LCK-05", "LCK-06")
def test_renewals_that_fail_for_a_ttl_lose_the_lease(journal: counterfoil.Journal) -> None:
    """One that fails for less does not."""
    lock = journal.lock("jobs", ttl="2s")

    def hold_while_failing(seconds: float) -> None:
        with lock.hold("k") as lease:
            with failing(journal.core, Renew) as failed:
                assert failed.wait(PATIENCE)
                time.sleep(seconds)
            time.sleep(1.5)
            lease.check()

    hold_while_failing(0.2)
    with pytest.raises(LeaseLost, match="ttl"):
        hold_while_failing(2.0)
    assert free(lock, "k")


@pytest.mark.contract("LCK-05", "LCK-06")
async def test_renewals_that_fail_for_a_ttl_cancel_the_block(journals: Journals) -> None:
    journal = await journals.open(real_time=True)
    lock = journal.lock("jobs", ttl="1s")

    async def work() -> None:
        async with lock.hold("k"):
            await asyncio.sleep(PATIENCE)

    with failing(journal.core, Renew) as failed:
        with pytest.raises(LeaseLost, match="ttl"):
            await work()
        assert failed.is_set()
