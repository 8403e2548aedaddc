"""Opening a journal: its first connection, and what lies beside it; nothing is left open beside what is refused."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from counterfoil.domain.errors import JournalDamaged, JournalRefused, JournalUnavailable

from .beside import Beside, beside_file, beside_memory
from .creation import can_become_one, check, check_kind, check_path, create
from .descriptor import side_file
from .liveness import check_locking
from .store import SCHEMA, connect
from .version import check_version


def open_journal(path: Path | None, *, readonly: bool, create: bool, busy_us: int) -> tuple[sqlite3.Connection, Beside]:
    """
    Open a journal, and create it where there is none, unless it is for reading only or `create` is off; None is one in memory.

    Raises what says why it is refused; the driver's errors pass. The caller is inside `gate`.
    """
    check_version()
    if path is not None:
        check_path(path, readonly=readonly, create=create)
    elif not create:
        raise JournalRefused("a journal in memory is always new, so it is not there unless it may be created")
    connection = connect(path, readonly=readonly, create=create, busy_us=busy_us)
    beside = beside_memory()
    try:
        if readonly or not create or not can_become_one(connection, path):
            check_kind(connection, path)
        if path is not None and not readonly:  # from here on files are made beside it
            beside = beside_file(path)
        if create and not readonly:
            _create_if_empty(connection, beside, busy_us, path)
        if path is not None and not readonly:
            check_locking(side_file(path, "live"))
        check(connection, path)
    except BaseException:
        connection.close()
        beside.close()
        raise
    return connection, beside


def _create_if_empty(connection: sqlite3.Connection, beside: Beside, busy_us: int, path: Path | None) -> None:
    if connection.execute(SCHEMA.objects).fetchone()[0]:
        return
    if not beside.queue.acquire(busy_us):
        raise JournalUnavailable(f"{path or 'the journal'}: another process holds the journal; try again")
    try:
        if connection.execute(SCHEMA.objects).fetchone()[0]:
            return  # another process has made it meanwhile
        if path is not None and connection.execute("PRAGMA page_count").fetchone()[0] and beside.highest.read():
            raise JournalDamaged(
                f"{path}: is empty, and {side_file(path, 'head').name} beside it says that a journal was here; restore it, "
                "or move the files beside it away to begin anew"
            )
        create(connection, os.urandom(32), busy_us)
    finally:
        beside.queue.release()
