"""
The SQLite engine: groups of commands become transactions, in one kernel queue of all processes that share the file.

A group takes the append lock and then SQLite's own, decides, writes once, commits with a sync, and checkpoints, when enough
frames have gathered, before it lets the lock go: no checkpoint ever runs beside another's commit.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from counterfoil.domain.errors import Closed, ForkedError, JournalDamaged, JournalRefused, JournalUnavailable, ReadOnly
from counterfoil.domain.limits import Limits

from ..bell import Bell
from ..caches import Caches
from ..clock import Clock
from ..clocks import Clocks
from ..committer import Committer, Request
from ..engine import Engine
from ..hosting import Hosting, Turns
from ..inside import refuse_inside
from ..rows import Head
from ..unit import OpeningState, Unit
from .bell import new_bell, ring
from .catching_up import catch_up
from .checkpoints import empty_log
from .crossing import gate
from .deaths import watch_death
from .descriptor import side_file
from .faults import fault
from .hosting import SQLiteHosting
from .liveness import FileLiveness, Liveness, MemoryLiveness
from .opening import open_journal
from .outside import Outside
from .reader_pool import ReaderPool
from .store import SQLiteStore
from .taking import TransactionEnded, check_guards, is_alone, parts, run_one

log = logging.getLogger(__name__)

CHECKPOINT_FRAMES: Final = 4_000
"""Frames in the WAL from which a checkpoint runs: 16 MB in pages of 4 KiB."""


class SQLiteEngine(Engine):
    """One opening of one journal."""

    def __init__(
        self, path: Path | None, *, readonly: bool, create: bool, limits: Limits, clock: Clock, keep_inbound: bool
    ) -> None:
        self.path = path
        self.name = str(path) if path is not None else ":memory:"
        self.readonly = readonly
        self.limits = limits
        self._keep_inbound = keep_inbound
        self._busy = limits.duration("busy_wait")
        """How long the writer waits for SQLite's own lock, in microseconds."""
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.RLock()
        self._readers = None if path is None else ReaderPool(path, self._busy)
        self._opening = OpeningState()
        self.liveness = self._new_liveness()
        self.clocks = Clocks(clock, self.is_live)
        with gate.inside(), self._faults():
            self._writer, self._beside = open_journal(path, readonly=readonly, create=create, busy_us=self._busy)
            if path is not None and not readonly:
                # SQLite runs it in the COMMIT that reaches so many frames, whoever wrote them: it alone knows how many there are.
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_FRAMES}")
        self._synced = True
        """Whether a commit is synced: what may wait for the next sync, a release or a renewal, says so by `UNSYNCED`."""
        self._store = SQLiteStore(self._writer)
        self._caches = Caches(self._store)
        self._seen: tuple[Head, int] | None = None
        self._newest = 0
        """The highest position that this opening has seen."""
        self._file = _inode(path)
        self._data_version = 0
        """What SQLite changes whenever somebody else has committed anything, be it rows without an event."""
        self.on_commit: list[Callable[[], None]] = []
        """Called on the writer thread after each commit that appended events; must not block."""
        self.on_rings: Callable[[Sequence[tuple[int, str]]], None] = lambda rings: None
        """Called on the writer thread after a commit with the openings that are to look at a key; must not block."""
        self.on_begun: Callable[[int], None] = lambda opening_id: None
        self.on_lost: Callable[[int], None] = lambda opening_id: None
        self._journal_key = self._key()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise fault(error, self.name) from None
        except UnicodeDecodeError:
            raise JournalDamaged(
                f"{self.name}: is damaged: it holds text that is none; look at it with `counterfoil verify`"
            ) from None

    def _key(self) -> bytes:
        with gate.inside(), self._faults():
            return self._store.head().journal_key

    @property
    def journal_key(self) -> bytes:
        """The key under which ids are made."""
        return self._journal_key

    @property
    def records_showing(self) -> bool:
        """Nobody else is there to do it: the journal records it by a command."""
        return False

    # Other openings.

    def is_live(self, opening_id: int) -> bool:
        return self.liveness.is_live(opening_id)

    def outside(self) -> Outside:
        return Outside(self.path, self._busy)

    def new_bell(self, opening_id: int) -> Bell:
        return new_bell(self.path, opening_id, self.is_live)

    def ring(self, opening_id: int, lease_id: str) -> None:
        if self.path is not None:
            ring(self.path, opening_id, lease_id.encode())

    def watch_death(self, opening_id: int, tell: Callable[[], None]) -> Callable[[], None] | None:
        return None if self.path is None else watch_death(side_file(self.path, "live"), opening_id, tell)

    # Reading.

    @contextmanager
    def reading(self) -> Iterator[SQLiteStore]:
        """Lend a connection to read with, in one snapshot; the projections are at the head of it."""
        refuse_inside()
        self.check_open()
        if self._readers is None:
            with gate.inside(), self._guard, self._faults():
                yield self._store
        else:
            with gate.inside(), self._faults(), self._readers.snapshot() as store:
                yield store

    # Writing.

    def run_group(self, group: list[Request[Any]]) -> None:
        """Decide and commit a group; each request gets its result or its error."""
        if self.readonly:
            raise ReadOnly(f"{self.name}: was opened for reading only; open it without readonly to change it")
        busy = self.limits.duration("busy_wait")
        if not self._beside.queue.acquire(busy):
            raise JournalUnavailable(f"{self.name}: another process holds the journal; try again")
        try:
            with gate.inside(), self._guard:
                if busy != self._busy:  # the limits are others since the connection was opened
                    self._writer.execute(f"PRAGMA busy_timeout = {busy // 1_000}")
                    self._busy = busy
                for part in parts(group):
                    self._transaction_of(part)
        finally:
            self._beside.queue.release()

    def _transaction_of(self, part: list[Request[Any]]) -> None:
        try:
            self._transaction(part)
        except Exception as error:
            for request in part:
                request.result, request.error = None, error

    def _transaction(self, group: list[Request[Any]]) -> None:
        try:
            self._decide_and_commit(group)
        except TransactionEnded as ended:
            if len(group) == 1:
                group[0].result, group[0].error = None, ended.error
            else:
                self._one_by_one(group)
        except sqlite3.IntegrityError as error:
            if len(group) == 1:
                raise fault(error, self.name) from None
            log.error("a group of %d commands clashed and is taken one by one", len(group))
            self._one_by_one(group)
        except sqlite3.Error as error:
            raise fault(error, self.name) from None

    def _one_by_one(self, group: list[Request[Any]]) -> None:
        for request in group:
            self._transaction_of([request])

    def _decide_and_commit(self, group: list[Request[Any]]) -> None:
        synced = not all(getattr(request.command, "UNSYNCED", False) for request in group)
        if synced != self._synced:
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._synced = synced
        self._writer.execute("BEGIN IMMEDIATE")
        unit = None
        try:
            unit = self._begin_unit()
            for request in group:
                run_one(unit, request)
            check_guards(unit, group)
            self._store.write(unit)
            landed = self._commit(unit)
        except BaseException:
            try:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
            finally:
                self._undo(unit)
            raise
        if not landed:
            self._undo(unit)
            raise JournalUnavailable(f"{self.name}: the commit failed, and nothing of it is there; make room and try again")
        unit.commit()
        if unit.changes.events:
            self._seen = unit.head, self._data_version
            self._newest = unit.head.position
        if is_alone(group[0]):
            self._caches.forget()  # what it erased is no longer what the caches hold
            empty_log(self._writer)
        if unit.changes.rings:
            self.on_rings(unit.changes.rings)
        if unit.changes.events:
            self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.on_commit):
            try:
                listener()
            except Exception as error:
                log.error("a listener raised %s after a commit, which stands", type(error).__name__)

    def tidy(self) -> None:
        """Nothing is left to do: every projection is folded in the append."""

    def _undo(self, unit: Unit | None) -> None:
        if unit is not None:
            unit.rollback()
        self._caches.forget()
        self._seen = None

    def _begin_unit(self) -> Unit:
        head = self._store.head()
        self._check_same(head)
        self._data_version = self._writer.execute("PRAGMA data_version").fetchone()[0]
        if self._seen != (head, self._data_version):
            self._caches.forget()
            catch_up(self._store, head.position)
        self._seen = head, self._data_version
        if not self._opening.started and (self._opening.opening_id or 0) <= head.opening_id:
            self._take_opening_id(head.opening_id + 1)
        if not self._opening.started:
            head = head._replace(position=max(head.position, self._beside.highest.read()))
        return Unit(
            store=self._store,
            caches=self._caches,
            head=head,
            opening=self._opening,
            clocks=self.clocks,
            limits=self.limits,
            raise_epoch=self._beside.raise_epoch,
            keep_inbound=self._keep_inbound,
        )

    def _check_same(self, head: Head) -> None:
        """Refuse to go on in a journal that was exchanged while it was open: its positions and fences would come twice."""
        if _inode(self.path) != self._file or head.position < self._newest:
            raise JournalRefused(f"{self.name}: was removed or exchanged while it was open; close it, and open it again")
        self._newest = head.position

    def _take_opening_id(self, least: int) -> None:
        """Take the first id that nobody has begun, with its sign of life; its event follows with the first that is appended."""
        self.liveness.end()
        self.liveness = self._new_liveness()
        while self.liveness.is_live(least):
            least += 1
        self.liveness.begin(least)
        self._opening.opening_id = least

    def _new_liveness(self) -> Liveness:
        return MemoryLiveness() if self.path is None else FileLiveness(side_file(self.path, "live"))

    def _commit(self, unit: Unit) -> bool:
        """
        Commit, and tell whether it landed; when the answer is lost, look.

        The highest position is kept aside before anybody sees it; when nothing landed it is what it was, not what the head is:
        an older copy of the journal may be behind what was seen.
        """
        events = unit.changes.events
        if events:
            self._beside.highest.write(unit.head.position)
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            log.warning("a commit failed: %s", getattr(error, "sqlite_errorname", type(error).__name__))
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            landed = bool(events) and self._store.head().digest == unit.head.digest
            if events and not landed:
                self._beside.highest.write(events[0][0] - 1)
            return landed
        return True

    def hosting(self, committer: Committer, turns: Turns) -> Hosting:
        return SQLiteHosting(committer, turns)

    # The end.

    @property
    def opening_id(self) -> int | None:
        """The id of this opening once it has appended something, None before."""
        return self._opening.opening_id if self._opening.started else None

    @property
    def closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        """Raise `ForkedError` in a forked child, and `Closed` once closed."""
        if os.getpid() != self._pid:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")
        if self._closed:
            raise Closed("the journal is closed; open it again")

    def close(self) -> None:
        """Close the connections, and end the sign of life. In a forked child nothing is touched: it is the parent's."""
        if self._closed or os.getpid() != self._pid:
            return
        with gate.inside(), self._guard:
            self._closed = True
            if self._readers is not None:
                self._readers.close()
            self._writer.close()
        self.liveness.end()
        self._beside.close()


def _inode(path: Path | None) -> int | None:
    """Return what tells the file at a path from another one; None when there is none."""
    if path is None:
        return None
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None
