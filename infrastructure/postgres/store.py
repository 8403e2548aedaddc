"""The journal in a schema of PostgreSQL: what is read of it through one connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson
import psycopg

from counterfoil.projections.projection import Key, Projection

from ..rows import SQLRow
from ..statements import Names, Statement, text_of
from ..store import Store, Values
from .gaps import gap_of
from .lines import PostgresLines
from .projection_tables import sql_of
from .record import as_records

VERIFY: Final = Names("verify")


class PostgresStore(Store):
    """Read a journal through one connection, in a snapshot that the caller holds, or as it is at each statement."""

    UNREADABLE = (
        psycopg.errors.DataCorrupted,
        psycopg.errors.IndexCorrupted,
        psycopg.errors.CharacterNotInRepertoire,
        UnicodeDecodeError,
        TypeError,
    )

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self.reads = 0
        """How often anything was read."""
        self.lines: PostgresLines = PostgresLines(self)

    def rows(self, statement: Statement, values: Values = ()) -> Iterator[SQLRow]:
        self.reads += 1
        return iter(self.connection.execute(text_of("postgres", statement), values, binary=True))

    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        self.reads += 1
        row = self.connection.execute(sql_of(projection, self.schema).select_row, key, binary=True).fetchone()
        return None if row is None else projection.ROW(*row)

    def pending(self, projection: Projection[Any]) -> dict[str, Any]:
        changed = [row for row in gap_of(self, projection).values() if row is not None]
        return {"pending": orjson.dumps(as_records(projection.ROW._fields, changed)).decode()}

    def rows_by_key(self, projection: Projection[Any], keys: list[str]) -> list[Any]:
        """Return those of a projection's rows whose key, a text, is one of these."""
        self.reads += 1
        found = self.connection.execute(sql_of(projection, self.schema).select_rows, (keys,), binary=True)
        return [projection.ROW(*row) for row in found]

    def rows_of(self, projection: Projection[Any]) -> Iterator[SQLRow]:
        return iter(self.connection.execute(sql_of(projection, self.schema).select_all, binary=True))

    def extent(self) -> tuple[str, int, str]:
        return "schema", self.count(VERIFY.tables), "tables"

    def own_difference(self) -> str | None:
        """PostgreSQL checks a page when it reads it, if its cluster has checksums; there is nothing to ask beforehand."""
        return None
