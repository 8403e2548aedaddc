"""One lock by several handles, in a journal that is read, put back, erased in, and long."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import counterfoil
from counterfoil import AlreadyHeld, LeaseLost, LockHeld
from counterfoil.domain.hold import LINE_PLACES, checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.infrastructure import reading_locks
from counterfoil.infrastructure.commands.holds import ForceRelease, Granted, Hold, InLine, Leave, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew, Ticket
from counterfoil.infrastructure.places import Place
from counterfoil.infrastructure.store import Store
from tests.locks.conftest import Children, Journals, apart, events, failing, free, in_thread, wait_until, waiting
from tests.rows import rows
from tests.sqlite import sqlite_engine


@pytest.mark.contract("LCK-01", "LCK-05", "LCK-07")
async def test_each_handle_gives_its_own_terms_to_its_leases(journals: Journals) -> None:
    """Also to one that waited in line; the key is the same."""
    journal = await journals.open()
    short, long = journal.lock("jobs", ttl="5s", max_hold="7s"), journal.lock("jobs", ttl="20s")

    async def wait() -> timedelta:
        async with short.hold("k", wait="1h") as lease:
            return lease.remaining

    async with long.hold("k") as lease:
        assert timedelta(seconds=20) == lease.remaining
        assert [timedelta(seconds=20)] == [holder.ttl for holder in await short.holders()]
        task = apart(wait())
        await waiting(short, 1)
    assert timedelta(seconds=5) == await task
    async with short.hold("k") as lease:
        journals.clock.advance("4s")
        await lease.extend()
        assert timedelta(seconds=3) == lease.remaining


@pytest.mark.contract("LCK-01", "LCK-11")
async def test_what_is_written_alike_is_one_key(journal: counterfoil.AsyncJournal) -> None:
    lock = journal.lock("jobs")
    async with lock.hold(7):
        for key in (7, "7", b"7"):
            with pytest.raises(AlreadyHeld):
                await lock.try_hold(key).__aenter__()
        async with lock.try_hold("07") as other:
            assert other is not None
    assert 2 == len((await lock.history(b"7")).rows)


@pytest.mark.contract("LCK-13")
def test_a_journal_that_is_only_read_tells_who_holds_and_waits(journal_url: str) -> None:
    """And holds nothing."""
    with counterfoil.open(journal_url) as journal, journal.lock("jobs").hold("k") as lease:
        waiter = in_thread(lambda: journal.lock("jobs").hold("k", wait="1m").__enter__().fence)
        wait_until(lambda: bool(journal.lock("jobs").waiters()))
        with counterfoil.open(journal_url, readonly=True) as reader:
            lock = reader.lock("jobs")
            assert [lease.fence] == [holder.fence for holder in lock.holders()]
            assert ["k"] == [each.key for each in lock.waiters()]
            assert ["granted"] == events(lock, "k")
            for ask in (lock.hold, lock.try_hold):
                with pytest.raises(counterfoil.ReadOnly):
                    ask("j").__enter__()
        lease.release()
        assert waiter()


@pytest.mark.sqlite_only("a file is put back by copying it")
@pytest.mark.contract("LCK-02", "LCK-03")
@pytest.mark.parametrize("side_files", [True, False])
def test_an_older_copy_that_is_put_in_its_place_gives_larger_fences(tmp_path: Path, side_files: bool) -> None:
    """Than all that were given after the copy was made."""
    path, copy = tmp_path / "journal.sqlite", tmp_path / "copy.sqlite"
    with counterfoil.open(path) as journal, journal.lock("jobs").hold("k"):
        pass
    shutil.copy(path, copy)
    fences = []
    for _ in range(3):
        with counterfoil.open(path) as journal:
            for key in ("k", "j"):
                with journal.lock("jobs").hold(key) as lease:
                    fences.append(lease.fence)
    shutil.copy(copy, path)
    if not side_files:
        for file in tmp_path.glob("journal.sqlite-*"):
            file.unlink()
    with counterfoil.open(path) as journal, journal.lock("jobs").hold("k") as lease:
        assert lease.fence > max(fences)


def test_the_key_of_a_person_who_is_erased_is_forgotten(journal_url: str) -> None:
    """Of every lock; the history stands, and tells of nobody."""
    with counterfoil.open(journal_url) as journal:
        inbound = counterfoil.Inbound(connection="tg", conversation="c1", actor="ann-4711", event_id="1", text="hello")
        grant = counterfoil.Grant(
            identity=counterfoil.Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",)
        )
        journal.admit(inbound, grant)
        for name in ("jobs", "others"):
            for key in ("ann-4711", "bob"):
                assert free(journal.lock(name), key)
        keys = "SELECT key FROM cf_lock_key ORDER BY key"
        assert ["ann-4711", "ann-4711", "bob", "bob"] == [key for (key,) in rows(journal_url, keys)]
        assert journal.acting_as(grant.identity).erase("actor", "ann-4711", connection="tg")
        assert ["bob", "bob"] == [key for (key,) in rows(journal_url, keys)]
        assert ["granted", "released"] == events(journal.lock("jobs"), "ann-4711")
        assert journal.verify().agrees


def make_history(journal: counterfoil.Journal, count: int) -> None:
    """Let a key be taken and let go again and again."""
    lease_id = lock_id(journal.core.engine.journal_key, "jobs", "k")
    terms, submit = checked_terms("jobs", "30s", None, None), journal.core.committer.submit
    answers = []
    for number in range(count // 2):
        token = b"%16d" % number
        submit(Hold(terms, lease_id, "k", token, False))
        answers.append(submit(ReleaseKey(Ticket(lease_id, token, 0))))
    assert not any(answer.result(120) for answer in answers)


def steps(journal: counterfoil.Journal) -> list[int]:
    """Count the steps of SQLite's machine in a hold and in pages of the history, none of which anything was kept for."""
    lock = journal.lock("jobs")
    counts: list[int] = []

    def counted() -> int:
        counts[-1] += 1
        return 0

    writer = sqlite_engine(journal.core)._writer
    sqlite_engine(journal.core)._caches.forget()
    writer.set_progress_handler(counted, 1)
    counts.append(0)
    assert free(lock, "k")
    writer.set_progress_handler(None, 0)
    for newest_first in (True, False):
        counts.append(0)

        def page(store: Store, newest_first: bool = newest_first) -> None:
            store.connection.set_progress_handler(counted, 1)
            lease_id = lock_id(journal.core.engine.journal_key, "jobs", "k")
            reading_locks.history(store, journal.core.limits, lease_id, limit=5, after=None, newest_first=newest_first)
            store.connection.set_progress_handler(None, 0)

        journal._read(page)
    return counts


@pytest.mark.sqlite_only("the cost is counted in steps of SQLite's machine")
@pytest.mark.contract("LCK-13", "LCK-14")
def test_a_key_costs_the_same_however_long_its_history(tmp_path: Path) -> None:
    """To take, to let go, and to look at, after ten events and after twenty thousand."""
    costs = []
    for count in (10, 20_000):
        with counterfoil.open(tmp_path / f"{count}.sqlite") as journal:
            make_history(journal, count)
            costs.append(steps(journal))
    few, many = costs

    assert all(more <= less * 1.1 for less, more in zip(few, many, strict=True)), costs


@pytest.mark.contract("LCK-15")
def test_the_places_of_a_process_that_was_killed_fill_no_line(
    journal_url: str, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of one that is alive and behind them."""
    assert 10_000 == LINE_PLACES
    monkeypatch.setattr("counterfoil.infrastructure.commands.holds.LINE_PLACES", 300)
    with counterfoil.open(journal_url) as journal, journal.lock("jobs").hold("k"):
        child = children(
            """
            from counterfoil.domain.hold import LINE_PLACES, checked_terms
            from counterfoil.domain.ids import lock_id
            from counterfoil.infrastructure.commands.holds import Hold
            journal = counterfoil.open(sys.argv[1])
            terms, lease_id = checked_terms("jobs", "30s", None, None), lock_id(journal.core.engine.journal_key, "jobs", "k")
            submit = journal.core.committer.submit
            last = [submit(Hold(terms, lease_id, "k", b"%16d" % number, True)) for number in range(int(sys.argv[2]))][-1]
            say(type(last.result()).__name__)
            hear()
            """,
            journal_url,
            300,
        )
        assert child.hear() == "InLine"
        lease_id = lock_id(journal.core.engine.journal_key, "jobs", "k")
        mine = Hold(checked_terms("jobs", "30s", None, None), lease_id, "k", b"m" * 16, True)
        with pytest.raises(LockHeld, match="300 wait for it already"):
            journal.core.committer.submit(mine).result()
        child.kill()
        assert isinstance(journal.core.committer.submit(mine).result(), InLine)
        assert 1 == len(journal.lock("jobs").waiters())


@pytest.mark.contract("DIA-01")
def test_no_log_error_or_representation_holds_a_key_or_a_token(
    journal_url: str, children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong, down to debug."""
    caplog.set_level(logging.DEBUG)
    key, shown = "chat-4711-of-ann", []
    with counterfoil.open(journal_url) as journal:
        lock = journal.lock("jobs", ttl="3s", lock_delay="1s")
        holding = lock.hold(key)
        with holding as lease:
            token, lease_id = lease._held.token, lease.lease_id
            shown += [
                holding,
                lock,
                lease,
                ReleaseKey(lease._held.ticket),
                Leave(lease_id, token),
                ForceRelease(lease_id, "stuck"),
            ]
            shown += [Hold(lock._terms, lease_id, key, token, True), lock.holders(), lock.history(key), lock.history(key).rows]
            for ask in (lambda: lock.hold(key), lambda: lock.try_hold(key)):
                with pytest.raises(AlreadyHeld) as refused:
                    ask().__enter__()
                shown.append(refused.value)
            with pytest.raises(LockHeld) as held:
                in_thread(lambda: lock.hold(key, wait="50ms").__enter__())()
            shown += [held.value, journal.core.committer.submit(Hold(lock._terms, lease_id, key, b"x" * 16, True)).result()]
            renewals = [
                Renew([lease._held.ticket]),
                Renew([Ticket(lease_id, b"y" * 16, lease.fence)]),
                Renew((lease._held.ticket,)),
            ]
            shown += [lock.waiters(), *renewals, *(journal.core.committer.submit(each).result() for each in renewals)]
            deadline = journal._read(lambda store: store.deadline(lease_id))
            assert deadline is not None
            shown += [deadline, lease._held.ticket, Granted(lease_id, token, 1, 2, None, 3)]
            shown += [Place(1, lease_id, 2, token, "jobs", 3, None, None, 4, None)]
            journal.core.committer.submit(Leave(lease_id, b"x" * 16)).result()
        with pytest.raises(LeaseLost) as lost, lock.hold(key):
            in_thread(lambda: lock.force_release(key))()
        shown.append(lost.value)
        with suppress(LeaseLost), failing(journal.core, ReleaseKey, Leave, Renew) as failed, lock.hold(key) as lease:
            shown.append(lease)
            assert failed.wait(30)
        wait_until(lambda: not lock.holders())
    with pytest.raises(counterfoil.Closed) as closed:
        lock.hold(key).__enter__()
    shown.append(closed.value)

    written = " ".join([repr(each) + str(each) for each in shown] + [record.getMessage() for record in caplog.records])
    for secret in (key, "4711", *(form for each in (token, b"x" * 16, b"y" * 16) for form in (repr(each)[2:-1], each.hex()))):
        assert secret not in written
    assert any("released" in record.getMessage() or "renew" in record.getMessage() for record in caplog.records)
