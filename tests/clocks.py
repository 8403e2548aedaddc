"""A clock that a test moves, and with it the clock that stamps a journal's events, wherever that is."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from counterfoil.infrastructure.clock import SystemClock
from counterfoil.infrastructure.core import Core
from counterfoil.testing import MovableClock

from .rows import database, is_postgres


class JournalClock(MovableClock):
    """
    The clock of a host on whose machine its database runs too: where the server stamps events, it shows what this clock shows.

    That is so of the journals that it drives.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._driven: list[Any] = []

    def drive(self, url: str) -> None:
        """Make the journal, if its server has a clock of its own, and move that from now on."""
        if not is_postgres(url):
            return
        Core(url).close()
        connection = self._stack.enter_context(database(url))
        connection.execute("CREATE TABLE test_clock (microseconds bigint)")
        connection.execute("INSERT INTO test_clock VALUES (0)")
        connection.execute(
            "CREATE OR REPLACE FUNCTION cf_clock() RETURNS bigint LANGUAGE sql"
            " BEGIN ATOMIC SELECT microseconds FROM test_clock; END"  # bound to this table, whatever the caller's search path
        )
        self._driven.append(connection)
        self._show()

    def close(self) -> None:
        """Drive nothing more."""
        self._driven.clear()
        self._stack.close()

    def advance(self, duration: timedelta | str) -> None:
        super().advance(duration)
        self._show()

    def set_back(self, duration: timedelta | str) -> None:
        super().set_back(duration)
        self._show()

    def set_forward(self, duration: timedelta | str) -> None:
        super().set_forward(duration)
        self._show()

    def _show(self) -> None:
        for connection in self._driven:
            connection.execute("UPDATE test_clock SET microseconds = %s", (self.now(),))


class HostClock(SystemClock):
    """The clock of another machine: it was set wrongly, and was started at another time."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def now(self) -> int:
        return super().now() + self._seconds * 1_000_000

    def boot(self) -> int:
        return super().boot() + self._seconds * 1_000_000_000

    def boot_id(self) -> str:
        return f"host-{self._seconds}"
