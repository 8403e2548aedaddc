"""
The end of other openings, heard at once: a connection waits in the server for the lock that is an opening's sign of life.

There is one connection, with a thread, for each opening that anybody in this process watches through the same address, however
many watch it; and a few in all, because connections are dear. It is given back when nobody watches the opening any more.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import psycopg
from psycopg import pq

from counterfoil.domain.errors import CounterfoilError

from .connecting import SESSION, connect
from .connection import Connection
from .naming import Address
from .sign import lock_class
from .waker import Waker

log = logging.getLogger(__name__)

WATCHED: Final = 16
"""Openings that a process watches at once; those who wait for others look by themselves, once a second."""
_CONNECT_US: Final = 5_000_000
_CANCEL_S: Final = 5.0

Tell: TypeAlias = Callable[[], None]
_Watched: TypeAlias = tuple[Address, int, int]
"""The journal, the oid of its schema, and the opening."""

_guard = threading.RLock()
_watches: Final[dict[_Watched, _Watch]] = {}


def watch_death(address: Address, schema_oid: int, opening_id: int, tell: Tell) -> Callable[[], None]:
    """
    Have `tell` called once, on a thread of its own, when an opening has ended; soon, if it has already.

    Returns what takes the watch back, which never blocks: afterwards `tell` is not called, unless it is being called right then.
    Beyond `WATCHED` openings, and where no connection is to be had, `tell` is not called; the latter is logged.
    """
    asked = object()
    watched = (address, schema_oid, opening_id)
    with _guard:
        watch = _watches.get(watched)
        if watch is None:
            if len(_watches) >= WATCHED:
                return _nothing
            try:
                watch = _Watch(watched)
            except OSError as error:
                _cannot_watch(error)
                return _nothing
            watch.tells[asked] = tell
            _watches[watched] = watch
            try:
                threading.Thread(target=watch.run, name="counterfoil-watch", daemon=True).start()
            except BaseException:
                del _watches[watched]
                raise
        else:
            watch.tells[asked] = tell
    return lambda: watch.take_back(asked)


def _nothing() -> None:
    """Taking back what is not watched."""


class _Watch:
    """One opening that is watched."""

    def __init__(self, watched: _Watched) -> None:
        self._watched = watched
        self._waker = Waker()
        self.tells: dict[object, Tell] = {}

    def take_back(self, asked: object) -> None:
        with _guard:
            self.tells.pop(asked, None)
            if not self.tells and _watches.get(self._watched) is self:
                del _watches[self._watched]  # whoever watches the opening from now on has a thread and a connection of its own
                self._waker.wake()

    def run(self) -> None:
        """Wait for the end of the opening, or until nobody watches it."""
        ended = False
        try:
            ended = self._wait()
        except (CounterfoilError, psycopg.Error, OSError) as error:
            _cannot_watch(error)
        finally:
            with _guard:
                if _watches.get(self._watched) is self:
                    del _watches[self._watched]
            self._waker.close()
        if ended:
            self._tell()

    def _wait(self) -> bool:
        """Tell whether the opening has ended."""
        address, schema_oid, opening_id = self._watched
        connection = connect(address, purpose="watch", busy_us=_CONNECT_US)
        try:
            pgconn = connection.pgconn
            numbers = [str(number).encode() for number in (lock_class(schema_oid), opening_id)]
            pgconn.send_query_params(SESSION.wait_for_end.encode(), numbers)
            pgconn.flush()
            while self.tells:
                _, readable = self._waker.wait(pgconn.socket, None)
                if readable:
                    pgconn.consume_input()
                    if not pgconn.is_busy():
                        return _is_granted(connection)
            with suppress(psycopg.Error):  # its server may be gone
                connection.cancel_safe(timeout=_CANCEL_S)
            return False
        finally:
            connection.close()

    def _tell(self) -> None:
        for asked in list(self.tells):
            tell = self.tells.pop(asked, None)
            if tell is None:
                continue
            try:
                tell()
            except Exception as error:
                log.error("telling of the end of an opening raised %s", type(error).__name__)


def _is_granted(connection: Connection) -> bool:
    """Take in the answer to the wait; the lock goes with the connection."""
    result = connection.pgconn.get_result()
    if result is not None and result.status == pq.ExecStatus.TUPLES_OK:
        return True
    raise psycopg.OperationalError("the wait for a lock was ended")


def _cannot_watch(error: Exception) -> None:
    """Nobody is told of an end that nobody saw: whoever waits looks by itself, once a second."""
    log.warning("an opening cannot be watched: %s", type(error).__name__)


def _in_child() -> None:
    """The threads are the parent's, and so are the connections."""
    global _guard
    _guard = threading.RLock()
    _watches.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
