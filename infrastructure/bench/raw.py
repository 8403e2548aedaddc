"""What SQLite does without a journal: one row an event and nothing else, committed in groups or one by one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from statistics import median
from time import perf_counter
from typing import Final, TypeAlias

import orjson

from ..committer import GROUP
from ..statements import statements
from . import workload
from .results import Sample

SQL: Final = statements("sqlite/bench.sql")

Row: TypeAlias = tuple[str, int, str, bytes]
Waiting: TypeAlias = tuple[Row, "asyncio.Future[None]"]


def _rows(count: int) -> Iterator[Row]:
    """Yield the messages as rows that are ready to be stored, under random keys."""
    chance = Random(0)
    for number in range(count):
        yield f"{chance.getrandbits(128):032x}", 1, "bench:Message.Admitted", orjson.dumps(workload.saved_fields(number))


def fresh(path: Path) -> sqlite3.Connection:
    """Make a database with one table, in WAL mode, with a sync at each commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=16)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(SQL.create)
    return connection


class GroupCommit:
    """Insert rows of any number of tasks on one thread, a few hundred in each transaction."""

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
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
            self._connection.executemany(SQL.insert, [row for row, _ in group])
            self._connection.execute(SQL.commit)
            self._loop.call_soon_threadsafe(_complete, [future for _, future in group])


def _complete(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def group_commit(folder: Path, *, callers: int, count: int) -> Sample:
    """Measure the rate at which tasks have rows committed in groups."""
    todo = iter(list(_rows(count)))

    async def run() -> float:
        connection = fresh(folder / "raw-group.sqlite")
        writer = GroupCommit(connection, asyncio.get_running_loop())

        async def caller() -> None:
            for row in todo:
                await writer.insert(row)

        began = perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        took = perf_counter() - began
        writer.close()
        connection.close()
        return took

    return {"rate": count / asyncio.run(run())}


def alone(folder: Path, *, count: int) -> Sample:
    """Measure one row in one transaction, in the calling thread."""
    connection = fresh(folder / "raw-alone.sqlite")
    times = []
    for row in list(_rows(count)):
        began = perf_counter()
        connection.execute(SQL.begin)
        connection.execute(SQL.insert, row)
        connection.execute(SQL.commit)
        times.append(perf_counter() - began)
    connection.close()
    return {"median": median(times) * 1e6}
