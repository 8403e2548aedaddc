"""The connections with which a journal is read while its writer writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import psycopg

from .access import Access
from .connecting import connect
from .connection import Connection
from .naming import Address
from .showing import show_texts
from .store import PostgresStore

READERS: Final = 4
"""Connections that are kept open at most; more are opened when more read at once."""
SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
END: Final = "ROLLBACK"
ALIVE: Final = ""
"""Nothing to execute, which tells whether the connection stands."""


class ReaderPool:
    """Lend connections, each in one snapshot."""

    def __init__(self, address: Address, busy_us: int) -> None:
        """Open nothing yet."""
        self._address = address
        self._busy = busy_us
        self._guard = threading.RLock()  # re-entrant: a snapshot that is collected comes back anywhere
        self._idle: list[Connection] = []
        self._closed = False
        self._pid = os.getpid()
        self.access: Access | None = None
        """What the role of the connections may read, once that is known."""

    @contextmanager
    def snapshot(self) -> Iterator[PostgresStore]:
        """Lend a connection for as long as the block lasts, in one snapshot."""
        with self._borrowed(SNAPSHOT) as connection:
            try:
                yield self._store(connection)
            finally:
                if os.getpid() == self._pid:
                    connection.execute(END)

    @contextmanager
    def lent(self) -> Iterator[PostgresStore]:
        """Lend a connection for one statement."""
        with self._borrowed(ALIVE) as connection:
            yield self._store(connection)

    def _store(self, connection: Connection) -> PostgresStore:
        return PostgresStore(connection, self._address.schema, self.access, partial(show_texts, self._address, self._busy))

    def close(self) -> None:
        """Close the connections that are not lent now, and each of the others when it comes back."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _borrowed(self, first: str) -> Iterator[Connection]:
        """Lend a connection on which a statement was executed; one that was lost while it lay idle is replaced."""
        connection = self._take(first)
        try:
            yield connection
        except psycopg.Error:
            connection.close()
            raise
        finally:
            if os.getpid() == self._pid:
                self._give_back(connection)

    def _take(self, first: str) -> Connection:
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = connect(self._address, purpose="reader", busy_us=self._busy)
                connection.execute(first)
                return connection
            try:
                connection.execute(first)
                return connection
            except psycopg.OperationalError:
                connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._guard:
            if not connection.closed and not self._closed and len(self._idle) < READERS:
                self._idle.append(connection)
                return
        connection.close()
