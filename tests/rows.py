"""Look at the rows of a journal, and damage them, past the journal: by SQL that both engines understand, with `?` for values."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.sql import SQL, Identifier

from counterfoil.infrastructure.store import Store

Row = tuple[Any, ...]
T = TypeVar("T")


def is_postgres(url: str) -> bool:
    """Tell which engine a journal is on, by its name."""
    return url.startswith("postgresql://")


def spelled(url: str, sql: str) -> str:
    """
    Return a statement whose values are marked `?` or `:name`, and whose bytes are written as for SQLite, as the driver of a
    journal's engine wants it.
    """
    if not is_postgres(url):
        return sql
    sql = re.sub(r"\bx'([0-9a-f]*)'", r"'\\x\1'::bytea", sql).replace("AS BLOB", "AS bytea")
    sql = re.sub(r"zeroblob\((\d+)\)", lambda found: f"'\\x{'00' * int(found[1])}'::bytea", sql)
    return re.sub(r"(?<!:):(\w+)(?!\w*:)", r"%(\1)s", sql.replace("%", "%%")).replace("?", "%s")


@contextmanager
def database(url: str) -> Iterator[Any]:
    """
    Connect to the database of a journal, as a host does that has its own tables there: to the file, or with the schema first in
    the search path. Each statement commits, unless a transaction is begun.
    """
    if not is_postgres(url):
        with closing(sqlite3.connect(url, isolation_level=None)) as file:
            yield file
        return
    plain, schema = divided(url)
    with psycopg.connect(plain, autocommit=True, application_name="tests") as connection:
        connection.execute(SQL("SET search_path TO {}").format(Identifier(schema)))
        yield connection


def divided(url: str) -> tuple[str, str]:
    """Return the name of the database, as drivers know it, and the schema of a journal."""
    parts = urlsplit(url)
    words = dict(parse_qsl(parts.query))
    schema = words.pop("schema")
    return urlunsplit(parts._replace(query=urlencode(words))), schema


def tables(url: str) -> set[str]:
    """Return the names of the tables beside and of a journal."""
    sqlite = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    postgres = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    return {name for (name,) in rows(url, postgres if is_postgres(url) else sqlite)}


def is_there(url: str) -> bool:
    """Tell whether anybody has made the journal."""
    return rows(url, "SELECT to_regclass('cf_head')") != [(None,)] if is_postgres(url) else Path(url).exists()


def sessions(url: str, name: str) -> int:
    """
    Return how many connections the server knows whose `application_name` this is. One that waits in the server for a lock does
    not count: it does not hear whether its client is still there.
    """
    known = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND wait_event_type IS DISTINCT FROM 'Lock'"
    ((number,),) = rows(url, known, name)
    return int(number)


def rows(url: str, sql: str, *values: Any) -> list[Row]:
    """Return the rows of a query."""
    with database(url) as connection:
        return [tuple(row) for row in connection.execute(spelled(url, sql), values).fetchall()]


def change(url: str, sql: str, *values: Any) -> int:
    """Execute a statement and return how many rows it changed."""
    with database(url) as connection:
        return int(connection.execute(spelled(url, sql), values).rowcount)


class Reads(Protocol):
    """An opening: a `Core`, or the `core` of a journal."""

    def read(self, function: Callable[[Store], T]) -> T: ...


def rows_in(core: Reads, sql: str) -> list[Row]:
    """Return the rows of a query through an opening, which alone can look into a journal in memory."""
    return core.read(lambda store: [tuple(row) for row in store.connection.execute(sql).fetchall()])


def all_rows_in(core: Reads) -> list[str]:
    """Return all that lies in the database of a journal, row by row, to look for what is not to be there."""

    def read(store: Store) -> list[str]:
        connection = store.connection
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            if isinstance(connection, sqlite3.Connection)
            else "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        tables = [name for (name,) in connection.execute(names).fetchall()]
        return [f"{table}: {row!r}" for table in tables for row in connection.execute(f'SELECT * FROM "{table}"').fetchall()]

    return core.read(read)
