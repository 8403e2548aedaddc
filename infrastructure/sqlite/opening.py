"""Opening a journal: its first connection, and what lies beside it; nothing is left open beside what is refused."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from counterfoil.domain.errors import JournalUnavailable

from .append_lock import AppendQueue
from .beside import Beside, beside_file, beside_memory
from .creation import can_become_one, check, check_kind, check_path, create
from .descriptor import side_file
from .liveness import check_locking
from .store import SCHEMA, connect
from .version import check_version


def open_journal(path: Path | None, *, readonly: bool, busy_us: int) -> tuple[sqlite3.Connection, Beside]:
    """
    Open a journal, and create it where there is none; None is one in memory.

    Raises what says why it is refused; the driver's errors pass.
    """
    check_version()
    if path is not None:
        check_path(path, readonly=readonly)
    connection = connect(path, readonly=readonly, busy_us=busy_us)
    beside = beside_memory()
    try:
        if readonly or not can_become_one(connection, path):
            check_kind(connection, path)
        if path is not None and not readonly:  # from here on files are made beside it
            beside = beside_file(path)
        if not readonly:
            _create_if_empty(connection, beside.queue, busy_us, f"{path or 'the journal'}")
        if path is not None and not readonly:
            check_locking(side_file(path, "live"))
        check(connection, path)
    except BaseException:
        connection.close()
        beside.close()
        raise
    return connection, beside


def _create_if_empty(connection: sqlite3.Connection, queue: AppendQueue, busy_us: int, name: str) -> None:
    if connection.execute(SCHEMA.objects).fetchone()[0]:
        return
    if not queue.acquire(busy_us):
        raise JournalUnavailable(f"{name}: another process holds the journal; try again")
    try:
        create(connection, os.urandom(32))
    finally:
        queue.release()
