"""Connections that are lent, and kept open for the next who wants one."""

from __future__ import annotations

import os
import threading
from typing import Final

import psycopg

from .connecting import Purpose, connect
from .connection import Connection
from .naming import Address

KEPT: Final = 4
"""Connections that are kept open at most; more are opened when more are wanted at once."""


class Pool:
    """Lend connections for one purpose."""

    def __init__(self, address: Address, busy_us: int, purpose: Purpose) -> None:
        """Open nothing yet."""
        self.address = address
        self._busy = busy_us
        self._purpose = purpose
        self._guard = threading.RLock()  # re-entrant: what is lent may be collected, and comes back, anywhere
        self._idle: list[Connection] = []
        self._closed = False
        self._pid = os.getpid()

    def take(self, first: str) -> Connection:
        """Lend a connection on which a statement was executed; one that was lost while it lay idle is replaced."""
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = connect(self.address, purpose=self._purpose, busy_us=self._busy)
                connection.execute(first)
                return connection
            try:
                connection.execute(first)
                return connection
            except psycopg.OperationalError:
                connection.close()

    def give_back(self, connection: Connection) -> None:
        """Take a connection back; one that is not as it was lent is closed before. In a forked child it is the parent's."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            if not connection.closed and not self._closed and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are not lent now, and each of the others when it comes back."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
