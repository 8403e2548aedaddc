"""What is measured of journals on PostgreSQL: which measurement is taken how, and what it is compared with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from secrets import token_hex
from typing import Any, Final

import psycopg

from ..postgres.ddl import in_schema
from ..postgres.faults import fault
from ..postgres.naming import parse, with_schema
from ..statements import statements
from . import admissions, application, locks, meanwhile, parties, raw_server, together, turns
from .lines import CellName
from .results import Sample
from .rounds import Say
from .sizes import Sizes

SQL: Final = statements("postgres/bench.sql")


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection that commits each statement; what the driver raises meanwhile is raised in the journal's words."""
    address = parse(url)
    try:
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        raise fault(error, address.name) from None


class Schemas:
    """Journals in one database, each measurement in a schema of its own, which is dropped. Other schemas are not touched."""

    def __init__(self, url: str, connection: psycopg.Connection[Any]) -> None:
        """`connection` commits each statement; whichever schema the URL names is not looked at."""
        self._url = url
        self._connection = connection
        self._conninfo = parse(url).conninfo

    def machine(self) -> dict[str, Any]:
        """Return what the figures depend on beside the processors."""
        return {"psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})", "libpq": psycopg.pq.version()}

    def settings(self) -> dict[str, Any]:
        """Return those settings of the server on which the costs of a commit depend."""
        return dict(self._connection.execute(SQL.settings.encode()).fetchall())

    def prepare(self, cells: tuple[CellName, ...], sizes: Sizes, say: Say) -> dict[str, Any]:
        """Build nothing: each measurement makes what it needs."""
        return {}

    def sample(self, cell: CellName, sizes: Sizes) -> Sample:
        """Measure it once."""
        with self._scratch() as schema:
            return self._sample(cell, schema, with_schema(self._url, schema), sizes)

    @contextmanager
    def _scratch(self) -> Iterator[str]:
        schema = f"counterfoil_bench_{token_hex(6)}"
        try:
            yield schema
        finally:
            self._connection.execute(in_schema(SQL.drop_schema, schema).encode())

    def _sample(self, cell: CellName, schema: str, url: str, sizes: Sizes) -> Sample:
        callers, count = sizes.callers, sizes.admissions
        match cell:
            case "admissions":
                return admissions.concurrent(url, callers=callers, count=count)
            case "application":
                return self._application(schema, sizes)
            case "together":
                return together.admit(url, processes=sizes.processes, callers=callers, count=count)
            case "alone":
                return admissions.alone(url, count=sizes.alone)
            case "raw alone":
                return raw_server.alone(self._connection, self._conninfo, schema, count=sizes.alone, autocommit=False)
            case "raw autocommit":
                return raw_server.alone(self._connection, self._conninfo, schema, count=sizes.alone, autocommit=True)
            case "turns":
                rate = turns.turns(url, routes=sizes.routes, turns_per_route=sizes.turns_per_route)
                return {**rate, "bytes": self._size(schema) / (sizes.routes * sizes.turns_per_route)}
            case "beside nothing":
                return admissions.beside(url, nullcontext(), callers=callers, count=count, before=sizes.before)
            case "beside a reader":
                reader = meanwhile.slow_reader(self._conninfo, schema)
                return admissions.beside(url, reader, callers=callers, count=count, before=sizes.before)
            case "beside a query":
                query = meanwhile.long_query(self._conninfo, schema)
                return admissions.beside(url, query, callers=callers, count=count, before=sizes.before)
            case "beside a host":
                host = meanwhile.host_that_dawdles(self._conninfo, url)
                return admissions.beside(url, host, callers=callers, count=count, before=sizes.before)
            case "lock alone":
                return locks.alone(url, count=sizes.lock_takes)
            case "locks":
                return locks.at_once(url, tasks=sizes.lock_keys, each=sizes.takes_per_key)
            case "handover":
                return parties.handover(url, processes=sizes.line_processes, waiters=sizes.line_waiters, passes=sizes.line_passes)
            case "kill":
                return parties.kill(url, count=sizes.kills)
            case "idle":
                return parties.idle(url, seconds=sizes.idle_seconds)
        raise ValueError(cell)

    def _application(self, schema: str, sizes: Sizes) -> Sample:
        self._connection.execute(in_schema(SQL.create_schema, schema).encode())
        told = self._connection.info
        env = {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": told.dbname,
            "POSTGRES_HOST": told.host,
            "POSTGRES_PORT": str(told.port),
            "POSTGRES_USER": told.user,
            "POSTGRES_PASSWORD": told.password,
            "POSTGRES_SCHEMA": schema,
        }
        with _level_kept("psycopg"):
            return application.create_and_save(env, threads=sizes.threads, count=sizes.saves)

    def _size(self, schema: str) -> int:
        """Return the bytes of a journal, but for those of the texts that it keeps."""
        (size,) = self._connection.execute(in_schema(SQL.size, schema).encode(), (schema,)).fetchone() or (0,)
        return int(size)


@contextmanager
def _level_kept(logger: str) -> Iterator[None]:
    """Put back the level of a logger, which importing the library's recorder of PostgreSQL changes."""
    level = logging.getLogger(logger).level
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(level)
