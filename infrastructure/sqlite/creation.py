"""Making an empty journal, and the checks at every opening: what was named is a journal, whole, in a format that is known."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from counterfoil.domain.errors import FormatUnknown, JournalDamaged, JournalRefused, JournalUnavailable, NotAJournal
from counterfoil.domain.framing import GENESIS
from counterfoil.projections.catalogue import BUILT_IN

from ..rows import Head
from .descriptor import side_file
from .rows_of_projections import sql_of
from .store import APPEND, APPLICATION_ID, SCHEMA, UNFINISHED, SQLiteStore

FORMAT: Final = 1
CHECKED_DIGESTS: Final = 64
"""Digests that are recomputed at each opening."""
_LOOK_AGAIN_SECONDS: Final = 0.002
_SMALLEST: Final = 512
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_PAGE: Final = 4_096
"""The page size that a journal is made with."""


def _size(path: Path) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def check_path(path: Path, *, readonly: bool, create: bool = True) -> None:
    """Refuse what cannot be a journal by its name and size alone; nothing of it is opened."""
    if path.is_dir():
        raise JournalRefused(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise JournalRefused(f"{path}: its folder does not exist; create it first")
    size = _size(path)
    if size is None and readonly:
        raise JournalRefused(
            f"{path}: does not exist; a journal is created by opening it for writing, for example by `counterfoil run`"
        )
    if size is None and not create:
        raise JournalRefused(f"{path}: does not exist, and is not to be created here; open it once with create=True")
    if size is not None and not path.is_file():
        raise NotAJournal(f"{path}: is not a regular file")
    if size and size < _SMALLEST:  # SQLite takes a file of one byte for an empty one, and would begin anew in it
        raise NotAJournal(f"{path}: is too short to be a journal ({size} bytes); restore a backup if it was one")
    if size == 0 and readonly:
        raise NotAJournal(f"{path}: is empty; a journal is created by opening it for writing, for example by `counterfoil run`")
    if size == 0 and not create:
        raise NotAJournal(f"{path}: is empty, and no journal is to be created here; open it once with create=True")
    if not size:
        for name in ("epoch", "live", "wal"):
            beside = side_file(path, name)
            if _size(beside) is not None and (size == 0 or name == "wal") and not _size(path):  # nobody is just making it
                raise JournalDamaged(
                    f"{path}: is {'empty' if size == 0 else 'missing'} beside {beside.name}, so a journal was here; "
                    "restore it, or move the files beside it away to begin anew"
                )


def can_become_one(connection: sqlite3.Connection, path: Path | None) -> bool:
    """Tell whether there is nothing yet that could be a journal, or anything else."""
    if connection.execute(SCHEMA.objects).fetchone()[0]:
        return False
    _check_application(connection, path, new=True)
    return True


def use_log(connection: sqlite3.Connection, busy_us: int) -> None:
    """
    Change an empty file to WAL mode, and wait for others that have it locked at this moment.

    SQLite does not wait by itself here. Others of ours hold such a lock while they open the file: to look for what one that was
    killed in the making has left.
    """
    end = time.monotonic() + busy_us / 1_000_000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def create(connection: sqlite3.Connection, journal_key: bytes, busy_us: int) -> None:
    """Make the tables of an empty journal. The caller holds the append lock, so that of many processes one does it."""
    use_log(connection, busy_us)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute(SCHEMA.objects).fetchone()[0]:
            connection.execute("ROLLBACK")
            return
        make_tables(connection, journal_key)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def make_tables(connection: sqlite3.Connection, journal_key: bytes) -> None:
    """Make the tables of an empty journal and their first rows, in the transaction of the caller."""
    for statement in SCHEMA.create.split(";\n"):
        connection.execute(statement)
    connection.execute(APPEND.create_head, (FORMAT, GENESIS, journal_key))
    for projection in BUILT_IN:
        for statement in sql_of(projection).create:
            connection.execute(statement)
        connection.execute(APPEND.add_projection, (projection.NAME, projection.VERSION))


def check(connection: sqlite3.Connection, path: Path | None) -> Head:
    """Check application, format, size, head and the newest digests; raises what names the file and the reason."""
    check_kind(connection, path)
    connection.execute("BEGIN")
    try:
        head = SQLiteStore(connection).head()
        _check_end(connection, head, f"{path or 'the journal'}")
    finally:
        connection.execute("COMMIT")
    return head


def check_kind(connection: sqlite3.Connection, path: Path | None) -> None:
    """Check application, format and size, not what is in it."""
    name = path or "the journal"
    _check_application(connection, path, new=False)
    row = connection.execute(SCHEMA.format).fetchone()
    if row is None:
        raise JournalDamaged(f"{name}: has no head; restore a backup")
    if row[0] != FORMAT:
        raise FormatUnknown(f"{name}: is in format {row[0]}, and this release knows format {FORMAT}; install a newer release")
    if path is not None:
        _check_size(connection, path)


def _check_application(connection: sqlite3.Connection, path: Path | None, *, new: bool) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute(SCHEMA.objects).fetchone()[0]
    if not new and application == 0 and tables == 0:
        raise JournalUnavailable(f"{path or 'the journal'}: is empty, or just being made by another process; try again")
    if application == UNFINISHED:
        raise JournalRefused(f"{path}: is a copy that was not finished; remove the file, and copy again")
    if application != APPLICATION_ID and not (new and application == 0):
        raise NotAJournal(f"{path or 'the journal'}: is an SQLite database of another program, not a journal")


def frames_in_log(path: Path) -> int:
    """Return how many frames the log beside a journal has room for: it never shrinks, so not all of them need be in use."""
    return max(0, (_size(side_file(path, "wal")) or 0) - _WAL_HEADER) // (_PAGE + _FRAME_HEADER)


def _check_size(connection: sqlite3.Connection, path: Path) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    page_size = connection.execute("PRAGMA page_size").fetchone()[0]
    present = (_size(path) or 0) // page_size
    frames = frames_in_log(path)
    if present + frames < pages:
        raise JournalDamaged(f"{path}: is truncated: {present} of {pages} pages are there; restore a backup")


def _check_end(connection: sqlite3.Connection, head: Head, name: str) -> None:
    events = SQLiteStore(connection).newest_events(CHECKED_DIGESTS + 1)
    last = events[-1] if events else None
    if (last.position if last else 0) != head.position or (last.digest if last else GENESIS) != head.digest:
        raise JournalDamaged(f"{name}: its head is at position {head.position}, and its last event is not; restore a backup")
    previous = GENESIS if head.position <= CHECKED_DIGESTS else None
    for event in events:
        if previous is not None and event.chained(previous) != event.digest:
            raise JournalDamaged(
                f"{name}: the digest at position {event.position} does not agree; look at it with `counterfoil verify`"
            )
        previous = event.digest
