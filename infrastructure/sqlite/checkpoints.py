"""Emptying the log of an SQLite journal; that it is written back whenever it has grown is SQLite's, see `engine.py`."""

from __future__ import annotations

import logging
import sqlite3

log = logging.getLogger(__name__)


def empty_log(connection: sqlite3.Connection) -> None:
    """
    Write everything back and empty the log, so that what was erased does not stay in it; readers may keep it from that.

    The caller holds the append lock.
    """
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        log.warning("a checkpoint failed: %s", getattr(error, "sqlite_errorname", type(error).__name__))
