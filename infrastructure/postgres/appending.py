"""The call by which a record is appended, and its answer."""

from __future__ import annotations

import select
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from ..statements import statements
from .connection import Connection
from .ddl import in_schema
from .faults import Silence

_APPEND: Final = statements("postgres/append.sql")
_PREPARED: Final = b"cf_append"
_TEXT: Final = 0

Status: TypeAlias = Literal["appended", "conflict", "behind"]
Conflict: TypeAlias = Literal[
    "head", "record", "erasure", "epoch", "conversation", "stream", "deadline", "command", "scope", "projection", "guard"
]
"""
What no longer stands. `head` is behind the standpoint: the history that was seen is not there any more. `record` is one that this
one goes on from, and that is not there. `projection` is one that the record folds, and that is behind: it has to be caught up.
`guard` stands for a lease that the record would end or give away, while a host's transaction holds its key.
"""


class Appended(NamedTuple):
    """What has become of a record. Unless it was appended nothing was changed."""

    status: Status
    conflict: Conflict | None
    head: int
    """The position of the newest event before."""
    position: int | None
    """The position of its first event; None when it has no events or was not appended."""
    recorded_at: int | None
    """The time of its first event, or that its rows go by where it has none; None when it was not appended."""
    epoch: int
    """The epoch that stands now."""
    clock: int
    """The server's clock once it was the record's turn, in microseconds since 1970."""


def staging(schema: str) -> str:
    """Return the statement by which a host's transaction stages a record, as text, to be appended by its COMMIT."""
    return in_schema(_APPEND.stage, schema)


class Appender:
    """
    Append records through one connection, which is in autocommit and this thread's alone.

    libpq is called without what psycopg does around it: for one event that is a third of the time.
    """

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._pgconn = pgconn = connection.pgconn
        self._readable, self._either = select.poll(), select.poll()
        self._readable.register(pgconn.socket, select.POLLIN)
        self._either.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        call = in_schema(_APPEND.call, schema).encode()
        self._check(self._answer_to(lambda: pgconn.send_prepare(_PREPARED, call)), pq.ExecStatus.COMMAND_OK)

    def append(self, record: bytes, meanwhile: Callable[[], None] = lambda: None) -> Appended:
        """
        Append a record, or tell why it does not stand; `meanwhile` is called once it was sent.

        Raises psycopg's errors; after `Silence`, and when the connection was lost, nobody knows here whether it was appended.
        """
        result = self._answer_to(lambda: self._pgconn.send_query_prepared(_PREPARED, [record], [_TEXT], _TEXT), meanwhile)
        self._check(result, pq.ExecStatus.TUPLES_OK)
        status, conflict, *numbers = [result.get_value(0, column) for column in range(7)]
        assert status is not None
        word: Any = None if conflict is None else conflict.decode()
        kind: Any = status.decode()
        head, position, recorded_at, epoch, clock = [None if number is None else int(number) for number in numbers]
        assert head is not None and epoch is not None and clock is not None
        return Appended(kind, word, head, position, recorded_at, epoch, clock)

    def _answer_to(self, send: Callable[[], None], meanwhile: Callable[[], None] = lambda: None) -> pq.abc.PGresult:
        pgconn = self._pgconn
        end = self._end()
        send()
        while pgconn.flush():  # more is sent once the server has read, which it may not before its own words are read
            self._wait(self._either, end)
            pgconn.consume_input()
        try:
            meanwhile()
        except BaseException:
            self._connection.close()  # nobody waits for the answer
            raise
        end = self._end()
        while pgconn.is_busy():
            self._wait(self._readable, end)
            pgconn.consume_input()
        result = pgconn.get_result()
        assert result is not None
        while pgconn.get_result() is not None:
            pass
        return result

    def _end(self) -> float | None:
        """Return until when an answer is waited for that is asked for now."""
        silence = self._connection.silence_s
        return None if silence is None else monotonic() + silence

    def _wait(self, ready: select.poll, end: float | None) -> None:
        """Wait for the server, and take it for lost when it has been silent for too long."""
        left = None if end is None else max(0.0, end - monotonic()) * 1_000
        if not ready.poll(left):
            self._connection.close()
            raise Silence("no answer came in time")

    def _check(self, result: pq.abc.PGresult, expected: pq.ExecStatus) -> None:
        if result.status == expected:
            return
        if self._pgconn.status != pq.ConnStatus.OK:
            self._connection.close()
            raise psycopg.OperationalError("the connection is lost")
        raise error_from_result(result)
