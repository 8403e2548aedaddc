"""The connections with which a journal is read while its writer writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import psycopg

from ..statements import statements
from .access import Access
from .connection import Connection
from .naming import Address, quoted
from .pool import Pool
from .showing import show_texts
from .store import PostgresStore

SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
ASIDE: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE"
HIDING: Final = statements("postgres/fold.sql").hiding
END: Final = "ROLLBACK"
ALIVE: Final = ""
"""Nothing to execute, which tells whether the connection stands."""


class ReaderPool(Pool):
    """Lend connections, each in one snapshot."""

    def __init__(self, address: Address, busy_us: int) -> None:
        """Open nothing yet."""
        super().__init__(address, busy_us, "reader")
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
    def aside(self) -> Iterator[PostgresStore]:
        """Lend a connection as `snapshot` does, on which temporary tables hide the stored ones of their name."""
        with self._borrowed(ASIDE) as connection:
            try:
                connection.execute(HIDING, (f"pg_temp, {quoted(self.address.schema)}",))
                show = partial(show_texts, self.address, self._busy)
                yield PostgresStore(connection, "pg_temp", self.access, show, stored_in=self.address.schema)
            finally:
                if os.getpid() == self._pid:
                    connection.execute(END)

    @contextmanager
    def lent(self) -> Iterator[PostgresStore]:
        """Lend a connection for one statement."""
        with self._borrowed(ALIVE) as connection:
            yield self._store(connection)

    def _store(self, connection: Connection) -> PostgresStore:
        return PostgresStore(connection, self.address.schema, self.access, partial(show_texts, self.address, self._busy))

    @contextmanager
    def _borrowed(self, first: str) -> Iterator[Connection]:
        connection = self.take(first)
        try:
            yield connection
        except psycopg.Error:
            connection.close()
            raise
        finally:
            self.give_back(connection)
