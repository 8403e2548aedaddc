"""What SQLite does without a journal: one row an event and nothing else, committed in groups or one by one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from ..committer import GROUP
from ..sqlite.store import APPEND, SCHEMA
from ..statements import statements
from . import workload
from .results import Sample

SQL: Final = statements("sqlite/bench.sql")

Row: TypeAlias = tuple[Any, ...]
Waiting: TypeAlias = tuple[Row, "asyncio.Future[None]"]


class Kind(NamedTuple):
    """What a raw writer inserts: the table, the statement, and how a caller makes a row."""

    create: str
    insert: str
    row: Callable[[Random, int], Row]


def _bare_row(chance: Random, number: int) -> Row:
    return f"{chance.getrandbits(128):032x}", 1, "bench:Message.Admitted", orjson.dumps(workload.saved_fields(number))


def _event_row(chance: Random, number: int) -> Row:
    """Make a message a row with what an event has: its columns, with random bytes for pseudonyms and digests."""
    fields = workload.saved_fields(number)
    pseudonyms = [chance.randbytes(16) for _ in range(4)]
    return (
        number + 1,
        number,
        f"op-{chance.getrandbits(128):032x}",
        1,
        "operation.admitted",
        1,
        1,
        "person",
        pseudonyms[0],
        fields["connection"],
        pseudonyms[1],
        None,
        pseudonyms[2],
        None,
        pseudonyms[3],
        None,
        orjson.dumps(fields),
        chance.randbytes(32),
    )


BARE: Final = Kind(SQL.create, SQL.insert, _bare_row)
"""A key and JSON, in the columns of the eventsourcing library."""
EVENT: Final = Kind(SCHEMA.create, APPEND.insert_event, _event_row)
"""A row of `cf_event`, with its indexes."""


def fresh(path: Path, kind: Kind) -> sqlite3.Connection:
    """Make a database with the table of a kind, in WAL mode, with a sync at each commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(kind.create)
    return connection


class GroupCommit:
    """Insert rows of any number of tasks on one thread, a few hundred in each transaction."""

    def __init__(self, connection: sqlite3.Connection, insert: str, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._insert = insert
        self._loop = loop
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="counterfoil-bench-raw", daemon=True)
        self._thread.start()

    def insert(self, row: Row) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((row, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            try:
                while len(group) < GROUP and (more := self._queue.get_nowait()) is not None:
                    group.append(more)
            except Empty:
                pass
            self._connection.execute(SQL.begin)
            self._connection.executemany(self._insert, [row for row, _ in group])
            self._connection.execute(SQL.commit)
            self._loop.call_soon_threadsafe(_complete, [future for _, future in group])


def _complete(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def group_commit(folder: Path, kind: Kind, *, callers: int, count: int) -> Sample:
    """Measure the rate at which tasks make rows and have them committed in groups."""
    chance, todo = Random(0), iter(range(count))

    async def run() -> float:
        connection = fresh(folder / "raw-group.sqlite", kind)
        writer = GroupCommit(connection, kind.insert, asyncio.get_running_loop())

        async def caller() -> None:
            for number in todo:
                await writer.insert(kind.row(chance, number))

        began = perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        took = perf_counter() - began
        writer.close()
        connection.close()
        return took

    return {"rate": count / asyncio.run(run())}


def alone(folder: Path, *, count: int) -> Sample:
    """Measure one bare row in one transaction, in the calling thread."""
    connection = fresh(folder / "raw-alone.sqlite", BARE)
    chance = Random(0)
    times = []
    for row in [BARE.row(chance, number) for number in range(count)]:
        began = perf_counter()
        connection.execute(SQL.begin)
        connection.execute(SQL.insert, row)
        connection.execute(SQL.commit)
        times.append(perf_counter() - began)
    connection.close()
    return {"median": median(times) * 1e6}
