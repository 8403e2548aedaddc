"""The connections with which a journal file is read while its writer writes."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .catching_up import catch_up_aside
from .store import SQLiteStore, connect

READERS: Final = 4
"""Connections that are kept open at most; more are opened when more read at once."""


class ReaderPool:
    """Lend read-only connections, each in one snapshot."""

    def __init__(self, path: Path, busy_us: int) -> None:
        """Open nothing yet."""
        self._path = path
        self._busy = busy_us
        self._guard = threading.RLock()  # re-entrant: a snapshot that is collected comes back anywhere
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._pid = os.getpid()

    @contextmanager
    def snapshot(self) -> Iterator[SQLiteStore]:
        """
        Lend a connection for as long as the block lasts; the projections are at the head of its snapshot.

        The caller is inside `gate`.
        """
        connection = self._borrow()
        try:
            connection.execute("BEGIN")
            store = SQLiteStore(connection)
            catch_up_aside(store)
            yield store
        finally:
            if os.getpid() == self._pid:  # in a child it is not the connection any more, and the pool may be locked for good
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)

    def close(self) -> None:
        """Close the connections that are not lent now, and each of the others when it comes back."""
        with self._guard:
            self._closed = True
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _borrow(self) -> sqlite3.Connection:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        return connect(self._path, readonly=True, busy_us=self._busy)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._guard:
            if not self._closed and len(self._idle) < READERS:
                self._idle.append(connection)
                return
        connection.close()
