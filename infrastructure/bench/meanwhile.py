"""What others do in the database of a journal while it is measured; each fails when it was over too early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from counterfoil.domain.inbound import Inbound

from ..journal import open as open_journal
from ..postgres.ddl import in_schema
from ..statements import statements
from ..tx import Admit
from . import workload

SQL: Final = statements("postgres/bench.sql")
OPEN_FOR: Final = 2.0
"""Seconds that a host's transaction is open, at the least."""
_PAUSE: Final = 0.01
_ROWS: Final = 10


@contextmanager
def slow_reader(conninfo: str, schema: str) -> Iterator[None]:
    """Read all events of one snapshot, a few rows at a time with pauses between."""

    def read(begun: threading.Event, enough: threading.Event) -> None:
        with psycopg.connect(conninfo) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.cursor(name="slow") as cursor:
                cursor.execute(in_schema(SQL.everything, schema).encode())
                while cursor.fetchmany(_ROWS):
                    begun.set()
                    if enough.wait(_PAUSE):
                        return
        raise AssertionError("the reader came to the end of its snapshot while the others were measured")

    with _aside(read):
        yield


@contextmanager
def long_query(conninfo: str, schema: str) -> Iterator[None]:
    """Execute one statement that goes over all events again and again, in parallel where the server does so."""
    with psycopg.connect(conninfo) as connection:

        def analyse(begun: threading.Event, enough: threading.Event) -> None:
            begun.set()
            try:
                connection.execute(in_schema(SQL.long_query, schema).encode())
            except QueryCanceled:
                return
            raise AssertionError("the query was answered while the others were measured")

        with _aside(analyse):
            while connection.info.transaction_status is not TransactionStatus.ACTIVE:
                time.sleep(_PAUSE)
            try:
                yield
            finally:
                connection.cancel_safe()


@contextmanager
def host_that_dawdles(conninfo: str, url: str) -> Iterator[None]:
    """Admit a message of a conversation of its own in a host's transaction, and commit it late."""
    inbound = Inbound(**{**workload.fields(0), "conversation": "chat-of-a-host"})

    def dawdle(begun: threading.Event, enough: threading.Event) -> None:
        with open_journal(url, limits=workload.LIMITS) as journal, psycopg.connect(conninfo) as connection:
            with connection.transaction(), journal.within(connection) as tx:
                tx.append(Admit(inbound, workload.GRANT))
                until = time.monotonic() + OPEN_FOR
                begun.set()
                enough.wait()
                time.sleep(max(0.0, until - time.monotonic()))

    with _aside(dawdle):
        yield


@contextmanager
def _aside(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Do something in a thread, from when it has begun until the block has ended; what it raises is raised."""
    begun, enough = threading.Event(), threading.Event()

    def end(_: Future[Any]) -> None:
        begun.set()

    with ThreadPoolExecutor(1, "counterfoil-bench-aside") as pool:
        done = pool.submit(work, begun, enough)
        done.add_done_callback(end)
        begun.wait()
        try:
            if done.done():
                done.result()
            yield
        finally:
            enough.set()
    done.result()
