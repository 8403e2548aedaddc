"""Copies from a file and into one. What is written is refused as unfinished until all of it is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from counterfoil.domain.errors import JournalDamaged, JournalRefused
from counterfoil.domain.limits import Limits
from counterfoil.projections.projection import Projection

from ..copying import PASSED_OVER, Rows, Source, Table, Target
from ..rows import Head, SQLRow
from ..statements import statements
from .beside import beside_file
from .creation import check_kind, check_path, make_tables, use_log
from .crossing import gate
from .descriptor import side_file
from .faults import fault
from .kept_aside import EpochFile
from .store import APPEND, APPLICATION_ID, SCHEMA, UNFINISHED, SQLiteStore, connect

INTO: Final = statements("sqlite/copy.sql")
BUSY_US: Final = Limits().duration("busy_wait")
_PUT: Final = {
    "events": APPEND.insert_event,
    "payloads": APPEND.insert_payload,
    "external_ids": APPEND.insert_external_id,
    "scopes": APPEND.insert_scope,
    "subjects": APPEND.insert_subject,
    "lock_keys": INTO.put_lock_key,
    "commands": APPEND.insert_command,
    "repeats": INTO.put_repeat,
}
_MADE_BESIDE: Final = ("append", "epoch", "head", "journal", "wal", "shm")
"""What comes to lie beside a file that is being made."""


@contextmanager
def reading_file(path: Path) -> Iterator[Source]:
    """Lend a journal in one snapshot."""
    check_path(path, readonly=True)
    with _faults(path), gate.inside(), closing(connect(path, readonly=True, busy_us=BUSY_US)) as connection:
        check_kind(connection, path)
        connection.execute("BEGIN")
        yield Source(SQLiteStore(connection), EpochFile(side_file(path, "epoch")).read())


@contextmanager
def writing_file(path: Path) -> Iterator[Target]:
    """Lend a journal that is being made in a new file; unless it was finished, nothing of it stays."""
    if path.exists() and not (path.is_file() and path.stat().st_size == 0):
        raise JournalRefused(
            f"{path}: is there already; copy into a new file, or remove it if it is a copy that was not finished"
        )
    check_path(path, readonly=False)
    with gate.inside(), closing(FileTarget(path)) as target:
        yield target


class FileTarget(Target):
    """A journal that is being made, under a lock that keeps everybody else out of the file."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self._path = path
        self._beside = [each for each in (side_file(path, name) for name in _MADE_BESIDE) if not each.exists()]
        """What is made beside it, and was not kept there of a journal that was removed."""
        self._connection: sqlite3.Connection | None = None
        self._is_ours = self._finished = False

    def begin(self, journal_key: bytes) -> None:
        with _faults(self._path):
            self._connection = connection = connect(self._path, readonly=False, busy_us=BUSY_US)
            self.store = SQLiteStore(connection)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            if connection.execute(SCHEMA.objects).fetchone()[0]:
                raise JournalRefused(f"{self._path}: is there already; somebody else has just made it")
            self._is_ours = True
            connection.execute(f"PRAGMA application_id = {UNFINISHED}")
            make_tables(connection, journal_key)
            connection.execute("COMMIT")
            connection.execute("PRAGMA synchronous = OFF")  # the last commit syncs all of it

    def put(self, table: Table, rows: Sequence[SQLRow]) -> None:
        with self._transaction() as connection:
            connection.executemany(_PUT[table.name], rows)

    def put_rows(self, projection: Projection[Any], rows: Rows) -> None:
        with self._transaction():
            self.store.write_rows([(projection, rows.items())])

    def put_head(self, head: Head, passed_over: int) -> None:
        """The highest position and epoch are kept beside the file, so that the first opening goes on above them."""
        self._open.execute("PRAGMA synchronous = FULL")
        with self._transaction() as connection:
            connection.execute(APPEND.move_head, (head.position, head.digest, head.recorded_at, head.epoch, head.opening_id))
            self.store.move_projections(head.position)
        with closing(beside_file(self._path)) as beside:
            beside.epochs.raise_to(head.epoch)
            beside.highest.write(max(beside.highest.read(), passed_over + PASSED_OVER))

    def finish(self) -> None:
        """Say that it is a journal, now that all of it is there to stay."""
        with _faults(self._path):
            self._open.execute("PRAGMA locking_mode = NORMAL")
            use_log(self._open, BUSY_US)
            self._open.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._finished = True

    def close(self) -> None:
        """Close the file, and remove it unless it is finished."""
        if self._is_ours and not self._finished:
            for path in (self._path, *self._beside):
                path.unlink(missing_ok=True)  # while the lock is held, so that it is nobody else's
        if self._connection is not None:
            self._connection.close()

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._open
        with _faults(self._path):
            connection.execute("BEGIN")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise fault(error, str(path)) from None
    except UnicodeDecodeError:
        raise JournalDamaged(f"{path}: is damaged: it holds text that is none; restore a backup") from None
