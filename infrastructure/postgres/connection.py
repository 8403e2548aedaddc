"""
A connection of ours to a PostgreSQL server: it waits for an answer no longer than it may, and a forked child gives it up.

A child that kept a copy of the socket would keep the session alive after the death of its parent, and with it an opening. It says
no farewell either, which would end the session of the parent.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Generator
from time import monotonic
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.abc import RV, PQGen

from counterfoil.domain.errors import ForkedError

from ..forks import forking, give_up_in_child
from .faults import Silence

_UNGUARDED_TRIES: Final = 4


class Session(NamedTuple):
    """What names a session of a server for all time: a server that is started anew may give the same number again."""

    backend: int
    began: int
    """Microseconds since 1970."""


class Connection(psycopg.Connection[Any]):
    """A connection that autocommits, and prepares each statement when it is first executed."""

    silence_s: float | None = None
    """How long it waits for the answer to one statement before it takes the server for lost; None for ever."""
    session: Session
    """Known once it was made a session of a journal's."""
    _inherited = False

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Do what psycopg does for each statement, and raise `Silence` and be closed when no answer comes in time."""
        if self._inherited:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")
        if self.silence_s is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_bounded(gen, self.silence_s), *args, **kwargs)
        except Silence:
            self.close()
            raise

    def close(self) -> None:
        """Say farewell and close; in a forked child it is the parent's, and nothing is done."""
        with forking:
            if not self._inherited:
                super().close()

    def forked(self) -> None:
        """Let go of the copy of the socket, in the child; under its number stands one that is closed."""
        self._inherited = True
        if self.closed:
            return
        number = self.pgconn.socket
        one, other = socket.socketpair()
        os.dup2(one.fileno(), number, inheritable=False)
        one.close()
        other.close()

    def __del__(self, *_: Any) -> None:
        """Complain of nothing: whoever lets go of a journal lets go of its connections, and psycopg would name host and user."""

    def __repr__(self) -> str:
        return f"Connection({'closed' if self._inherited or self.closed else 'open'})"


def open_connection(conninfo: str) -> Connection:
    """Connect; no child that is forked meanwhile keeps the session alive. What psycopg raises passes."""
    for _ in range(_UNGUARDED_TRIES):
        before = _forks.count
        connection = _connect(conninfo)
        with forking:
            if _forks.count == before:
                give_up_in_child(connection)
                return connection
        connection.close()  # by a farewell, which ends the session even while a child has the socket
    with forking:
        connection = _connect(conninfo)
        give_up_in_child(connection)
        return connection


def _connect(conninfo: str) -> Connection:
    connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=0)
    connection.prepared_max = 256
    return connection


def _bounded(gen: PQGen[RV], seconds: float) -> Generator[Any, Any, RV]:
    """Pass everything between psycopg's generator and what waits for it, until it has waited for too long."""
    deadline = monotonic() + seconds
    late = False
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                late = False
            elif late:  # not at the first sight: if this process was frozen, the answer may lie in the socket
                raise Silence("no answer came in time")
            else:
                late = monotonic() > deadline
            wanted = gen.send(ready)
    except StopIteration as ended:
        result: RV = ended.value
        return result


class _Forks:
    """How many forks have begun in this process."""

    count = 0

    def begin(self) -> None:
        self.count += 1


_forks: Final = _Forks()

if sys.platform != "win32":
    # Registered after `forking`, so it comes before: whoever has `forking` and finds no fork counted enters before the fork.
    os.register_at_fork(before=_forks.begin)
