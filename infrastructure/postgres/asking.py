"""
Doing what a host's transaction asks for, in both colours.

Nothing that the host has set on its connection has a say in it: not its row factory, cursors and adapters, nor how it prepares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeAlias, TypeVar, cast

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.rows import tuple_row

from ..committer import Command, Committer
from .host_transaction import Ask, Do, Steps, Submit

T = TypeVar("T")

Row: TypeAlias = tuple[bytes | None, ...]
Run: TypeAlias = Callable[[Command[Any]], Any]
"""Has the writer run a command, and waits for its answer."""


class _Value(bytes):
    """A value as it is sent."""


class _Verbatim(Dumper):
    """Send a value as it is, as text whose type the server infers."""

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


def answer(steps: Steps[T], connection: psycopg.Connection[Any], run: Run) -> T:
    """Do what is asked for, one thing after the other, and return what comes of it."""
    given, raised = None, None
    while True:
        try:
            asked = steps.send(given) if raised is None else steps.throw(raised)
        except StopIteration as done:
            result: T = done.value
            return result
        given, raised = None, None
        try:
            match asked:
                case Ask(sql, values):
                    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
                        _adapt(cursor)
                        given = _rows(cursor.execute(cast(Any, sql), [_Value(value) for value in values], prepare=False))
                case Do(function):
                    given = function()
                case Submit(command):
                    given = run(command)
        except BaseException as error:
            raised = error


async def answer_async(steps: Steps[T], connection: psycopg.AsyncConnection[Any], committer: Committer, threads: Executor) -> T:
    """Do what is asked for, beside the running event loop where it may take a moment."""
    given, raised = None, None
    while True:
        try:
            asked = steps.send(given) if raised is None else steps.throw(raised)
        except StopIteration as done:
            result: T = done.value
            return result
        given, raised = None, None
        try:
            match asked:
                case Ask(sql, values):
                    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
                        _adapt(cursor)
                        given = _rows(await cursor.execute(cast(Any, sql), [_Value(value) for value in values], prepare=False))
                case Do(function):
                    given = await asyncio.get_running_loop().run_in_executor(threads, function)
                case Submit(command):
                    given = await committer.submit_async(command)
        except BaseException as error:
            raised = error


def _adapt(context: AdaptContext) -> None:
    context.adapters.register_dumper(_Value, _Verbatim)


def _rows(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> list[Row]:
    """Return the rows of a result as they were sent."""
    result = cursor.pgresult
    assert result is not None
    return [tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]
