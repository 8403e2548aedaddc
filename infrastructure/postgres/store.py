"""The journal in a schema of PostgreSQL: what is read of it through one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
import psycopg

from counterfoil.domain.decision import Payload
from counterfoil.domain.event import Committed
from counterfoil.projections.projection import Key, Projection

from ..rows import Head, SQLRow
from ..statements import Names, Statement, read_all, text_of
from ..store import READ, Store, Values
from .access import Access, access_of
from .gaps import gap_of
from .lines import PostgresLines
from .projection_tables import sql_of
from .record import as_records

VERIFY: Final = Names("verify")
TEXTS: Final = Names("texts")
LOCKS: Final = "locks"
_WITHOUT_IDS: Final = {name: Statement("blind", name) for name in ("holders", "waiters")}
"""What a role reads in the place of these that sees no ids."""

read_all("postgres")


class Busy(Exception):
    """Something is to be read while an append is under way."""


class PostgresStore(Store):
    """Read a journal through one connection, in a snapshot that the caller holds, or as it is at each statement."""

    UNREADABLE = (
        psycopg.errors.DataCorrupted,
        psycopg.errors.IndexCorrupted,
        psycopg.errors.CharacterNotInRepertoire,
        UnicodeDecodeError,
        TypeError,
    )

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        access: Access | None = None,
        show: Callable[[list[int]], dict[int, bytes]] | None = None,
        stored_in: str | None = None,
    ) -> None:
        """
        `stored_in` names the schema of the journal where `schema` is one of tables that hide its own.

        `access` is asked for unless it is known; `show` gives texts to a role that may not read them, and records that.
        """
        self.connection = connection
        self.schema = schema
        self._stored_in = stored_in or schema
        self._access = access
        self._show = show
        self.reads = 0
        """How often anything was read."""
        self.busy = False
        """Whether an append is under way, and nothing can be read."""
        self.lines: PostgresLines = PostgresLines(self)

    def rows(self, statement: Statement, values: Values = ()) -> Iterator[SQLRow]:
        self._read()
        if statement.file == LOCKS and not self.access.names:
            statement = _WITHOUT_IDS.get(statement.name, statement)
        return iter(self.connection.execute(text_of("postgres", statement), values, binary=True))

    def _read(self) -> None:
        if self.busy:
            raise Busy
        self.reads += 1

    @property
    def access(self) -> Access:
        """What its role may read."""
        if self._access is None:
            self._access = access_of(self.connection)
        return self._access

    def head(self) -> Head:
        return Head._make((*self._the(READ.head), self.access.journal_key or b""))

    # Texts, and whom pseudonyms stand for: nothing, where the role may not know.

    def payload(self, position: int) -> Payload | None:
        return super().payload(position) if self.access.texts else None

    def texts(self, positions: list[int]) -> dict[int, bytes]:
        return super().texts(positions) if self._show is None or self.access.texts else self._show(positions)

    def commitments_after(self, position: int, limit: int) -> list[tuple[int, Committed]]:
        if self.access.texts:
            return super().commitments_after(position, limit)
        rows = self.rows(TEXTS.commitments_after, (position, limit))
        return [(place, Committed(length=length, commitment=commitment)) for place, length, commitment in rows]

    def external_id(self, position: int) -> str | None:
        return super().external_id(position) if self.access.names else None

    def subject(self, pseudonym: bytes) -> str | None:
        return super().subject(pseudonym) if self.access.names else None

    # Projections.

    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        self._read()
        row = self.connection.execute(sql_of(projection, self.schema).select_row, key, binary=True).fetchone()
        return None if row is None else projection.ROW(*row)

    def pending(self, projection: Projection[Any]) -> dict[str, Any]:
        changed = [row for row in gap_of(self, projection).values() if row is not None]
        return {"pending": orjson.dumps(as_records(projection.ROW._fields, changed)).decode()}

    def rows_by_key(self, projection: Projection[Any], keys: list[str]) -> list[Any]:
        """Return those of a projection's rows whose key, a text, is one of these."""
        self._read()
        found = self.connection.execute(sql_of(projection, self.schema).select_rows, (keys,), binary=True)
        return [projection.ROW(*row) for row in found]

    def rows_of(self, projection: Projection[Any]) -> Iterator[SQLRow]:
        return iter(self.connection.execute(sql_of(projection, self._stored_in).select_all, binary=True))

    def extent(self) -> tuple[str, int, str]:
        return "schema", self.count(VERIFY.tables), "tables"

    def own_difference(self) -> str | None:
        """PostgreSQL checks a page when it reads it, if its cluster has checksums; there is nothing to ask beforehand."""
        return None
