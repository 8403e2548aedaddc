"""What SQLite raises, in the journal's words. The driver's error is never chained: its text may quote values."""

from __future__ import annotations

import sqlite3

from counterfoil.domain.errors import (
    CounterfoilError,
    JournalDamaged,
    JournalRefused,
    JournalUnavailable,
    NotAJournal,
)

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def fault(error: sqlite3.Error, name: str) -> CounterfoilError:
    """Return what to raise for a driver's error; `name` is the file as the caller named it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _BUSY:
        return JournalUnavailable(f"{name}: another process holds the journal; try again")
    if code == sqlite3.SQLITE_FULL:
        return JournalUnavailable(f"{name}: the disk is full, or the file may not grow; make room and try again")
    if getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_CANTINIT":
        return JournalRefused(
            f"{name}: its folder may not be written, which SQLite needs for reading too; copy the journal into another folder"
        )
    if code == sqlite3.SQLITE_READONLY:
        return JournalRefused(f"{name}: the file or its folder may not be written; open it read-only, or change its permissions")
    if code == sqlite3.SQLITE_NOTADB:
        return NotAJournal(f"{name}: is not a journal: it is not an SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return JournalDamaged(f"{name}: is damaged: SQLite finds it malformed; restore a backup")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return JournalRefused(f"{name}: cannot be opened; check that the folder exists and that this user may read and write it")
    if code == sqlite3.SQLITE_IOERR:
        return JournalUnavailable(f"{name}: reading or writing failed (SQLite code {getattr(error, 'sqlite_errorname', code)})")
    return JournalUnavailable(f"{name}: SQLite could not do it ({getattr(error, 'sqlite_errorname', type(error).__name__)})")
