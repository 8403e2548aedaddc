"""
The sign of life of an opening: an advisory lock on a connection of its own, which ends with the process and with the connection.

On that connection the opening also hears those who ring for it, and so is told at once when it has ended without its doing: its
server was restarted, somebody has ended its session, or its host was cut off.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import orjson
import psycopg

from counterfoil.domain.errors import Closed, ForkedError, JournalRefused

from .connecting import SESSION, connect
from .connection import Connection
from .faults import Silence, fault
from .naming import Address
from .origin import Origin, where
from .waker import Waker

log = logging.getLogger(__name__)

ALL: Final = b"all"
"""Heard when there was too much to ring for: any key may have come free."""
SILENT_S: Final = 3.0
"""After how long without a word the server is asked for one."""
ANSWER_S: Final = 6.0
"""How long it may take to answer. Together that is less than the time after which it takes this host for dead."""
_TRIES: Final = 1_000
_TRY_S: Final = 0.001


def lock_class(schema_oid: int) -> int:
    """Return the first number of the advisory locks of a journal: the oid of its schema, as a signed number."""
    return schema_oid - (1 << 32) if schema_oid >= 1 << 31 else schema_oid


def channel(schema_oid: int) -> str:
    """Return the channel on which the openings of a journal are rung."""
    return f"cf_{schema_oid}"


def live_openings(connection: Connection, schema_oid: int, opening_ids: Collection[int]) -> set[int]:
    """
    Return those of these openings that live, in any process.

    A standby does not see the locks of its primary, and tells that all live. What psycopg raises passes.
    """
    rows = connection.execute(SESSION.live, (list(opening_ids), schema_oid)).fetchall()
    return {opening_id for (opening_id,) in rows}


class Sign:
    """
    Shows the life of one opening, and hears for it; a `Bell`.

    `hear` is called by one thread again and again from the first `begin` on, or nobody notices that the connection was lost.
    After a loss another opening can begin with the same object. In a child of the process where it was made, `begin` and `hear`
    raise `ForkedError`, and the rest does nothing.
    """

    def __init__(self, address: Address, *, busy_us: int, on_lost: Callable[[int], None]) -> None:
        """
        Connect to nothing yet. `busy_us` is `busy_wait` in microseconds.

        `on_lost` is called with the opening that has ended because its connection was lost, once, by the thread that hears.
        Raises `JournalRefused` if this process may open nothing more.
        """
        self._address = address
        self._busy_us = busy_us
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._closed = False
        self._line: _Line | None = None
        self._guard = threading.RLock()
        """For what the connection is used for, which never takes long; re-entrant, as what is collected may close anything."""
        self._hearing = threading.RLock()
        try:
            self._waker = Waker()
        except OSError as error:
            raise JournalRefused(
                f"{address.name}: this process may open nothing more ({os.strerror(error.errno or 0)})"
            ) from None

    @property
    def opening_id(self) -> int | None:
        """The opening that is shown to live, as far as is known; None before it begins, once it was lost, and when closed."""
        line = self._line
        return None if line is None else line.opening_id

    def begin(self, opening_id: int) -> Origin:
        """
        Show that an opening lives, from now until its connection ends, and return which journal it is in; another ends.

        Raises `JournalUnavailable` when there is no connection to be had, and `JournalRefused` when the opening lives already:
        then the journal was exchanged for an older one while it was open.
        """
        self._check_open()
        connection = connect(self._address, purpose="sign", busy_us=self._busy_us)
        try:
            origin = where(connection, self._address)
            self._take(connection, lock_class(origin.schema_oid), opening_id)
            connection.execute(f"LISTEN {channel(origin.schema_oid)}".encode(), prepare=False)
            line = _Line(connection, opening_id)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise fault(error, self._address.name) from None
            raise
        with self._guard:
            if self._closed:
                line.close()
            else:
                self._replace(line)
        self._waker.wake()
        self._check_open()
        return origin

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """
        Wait for a ring, an interruption, a loss or the timeout, and return what was rung for: keys, or `ALL`.

        None waits for ever. Raises `Closed`, and `ForkedError` in a forked child; returns nothing when it is closed meanwhile.
        """
        self._check_open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._hearing:
            while not self._closed:
                over = deadline is not None and time.monotonic() >= deadline
                heard, done = self._hear_once(deadline)
                if heard or done or over:
                    return heard
            return []

    def interrupt(self) -> None:
        """Have `hear` return now, or the next time at once; never blocks, and does nothing when closed."""
        self._waker.wake()

    def close(self) -> None:
        """Show that the opening has ended, and hear nothing more. Closing again does nothing."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            self._closed = True
            self._replace(None)
        self._waker.wake()
        with self._hearing:  # not before `hear` has left: the number might be that of another file by then
            self._waker.close()

    def _take(self, connection: Connection, lock_of: int, opening_id: int) -> None:
        """Take the lock. Whoever waited for the end of an earlier opening of this number has it, shared, for a moment."""
        for _ in range(_TRIES):
            if (connection.execute(SESSION.show_life, (lock_of, opening_id)).fetchone() or (False,))[0]:
                return
            if live_openings(connection, lock_of % (1 << 32), [opening_id]):
                break
            time.sleep(_TRY_S)
        raise JournalRefused(
            f"{self._address.name}: opening {opening_id} lives already, so the journal was exchanged while it was open; "
            "end every process that has it open, and open it again"
        )

    def _hear_once(self, deadline: float | None) -> tuple[list[bytes], bool]:
        """Wait once; return what was rung for, and whether `hear` is to return in any case."""
        line = self._line
        now = time.monotonic()
        times = [at for at in (deadline, None if line is None else line.due) if at is not None]
        overdue = line is not None and line.is_overdue(now)
        woken, readable = self._waker.wait(None if line is None else line.number, min(times) - now if times else None)
        heard: list[bytes] = []
        with self._guard:
            if line is None or line is not self._line:
                return [], woken
            try:
                if readable:
                    heard = line.take()
                elif overdue:  # not before it was seen once more: if this process was frozen, the answer may lie there
                    raise Silence("no answer came in time")
                else:
                    line.ask_if_due(time.monotonic())
            except psycopg.Error as error:
                self._replace(None)
                log.warning("an opening has lost its connection: %s", type(error).__name__)
            else:
                return heard, woken
        self._tell(line.opening_id)
        return [], True

    def _tell(self, opening_id: int) -> None:
        try:
            self._on_lost(opening_id)
        except Exception as error:
            log.error("telling of the loss of an opening raised %s", type(error).__name__)

    def _replace(self, line: _Line | None) -> None:
        old, self._line = self._line, line
        if old is not None:
            old.close()

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")
        if self._closed:
            raise Closed("the journal is closed; open it again")


class _Line:
    """The connection of one opening, of which only what libpq does without waiting is used."""

    def __init__(self, connection: Connection, opening_id: int) -> None:
        self.opening_id = opening_id
        self._connection = connection
        self.number = connection.pgconn.socket
        self._heard_at = time.monotonic()
        self._asked = False

    @property
    def due(self) -> float:
        """When the server is to be asked for a word, or was to have answered."""
        return self._heard_at + SILENT_S + (ANSWER_S if self._asked else 0)

    def is_overdue(self, now: float) -> bool:
        """Tell whether the server was to have answered by now."""
        return self._asked and now >= self.due

    def ask_if_due(self, now: float) -> None:
        """Ask the server for a word, by a statement that is empty."""
        if not self._asked and now >= self.due:
            self._asked = True
            self._heard_at = now - SILENT_S  # it has its time to answer even if nobody was there to ask it for long
            self._connection.pgconn.send_query(b"")
            self._connection.pgconn.flush()

    def take(self) -> list[bytes]:
        """Take in what has come, and return what this opening was rung for."""
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        self._heard_at = time.monotonic()
        while self._asked and not pgconn.is_busy():
            self._asked = pgconn.get_result() is not None
        heard: list[bytes] = []
        while (notified := pgconn.notifies()) is not None:
            heard += _rings(notified.extra, self.opening_id)
        return heard

    def close(self) -> None:
        self._connection.close()


def _rings(payload: bytes, opening_id: int) -> list[bytes]:
    """Return the keys that an opening is rung for; what is no payload of ours is nothing, as anybody may notify."""
    with suppress(orjson.JSONDecodeError, TypeError, KeyError, ValueError, AttributeError):
        rings = orjson.loads(payload)["rings"]
        if rings == "all":
            return [ALL]
        return [lease_id.encode() for number, lease_id in rings if number == opening_id]
    return []
