"""Those who append to one journal, each deciding by itself and without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from counterfoil.domain.event import Header
from counterfoil.domain.framing import GENESIS
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.caches import Caches
from counterfoil.infrastructure.clock import SystemClock
from counterfoil.infrastructure.clocks import Clocks
from counterfoil.infrastructure.postgres import ddl
from counterfoil.infrastructure.postgres.appending import Appended, Appender
from counterfoil.infrastructure.postgres.connection import open_connection
from counterfoil.infrastructure.postgres.lines import PostgresLines
from counterfoil.infrastructure.postgres.naming import quoted
from counterfoil.infrastructure.postgres.record import Standpoint, record
from counterfoil.infrastructure.rows import EventRow, Head, SQLRow
from counterfoil.infrastructure.statements import Statement
from counterfoil.infrastructure.store import Store, Values
from counterfoil.infrastructure.unit import OpeningState, Unit
from counterfoil.projections.projection import Key, Projection
from tests.postgres_server import Postgres

FORMAT = 1


class Nothing(Store):
    """An empty journal, as a unit reads it: what a test wants to be there it puts into the caches."""

    UNREADABLE = ()

    def __init__(self) -> None:
        self.lines: Any = PostgresLines(cast(Any, self))

    def rows(self, statement: Statement, values: Values = ()) -> Iterator[SQLRow]:
        return iter(())

    def pending(self, projection: Projection[Any]) -> dict[str, Any]:
        return {}

    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        return None

    def rows_of(self, projection: Projection[Any]) -> Iterator[SQLRow]:
        return iter(())

    def extent(self) -> tuple[str, int, str]:
        return "nothing", 0, "tables"

    def own_difference(self) -> str | None:
        return None


class Side:
    """One who appends to the journal of a schema, by a connection of its own."""

    def __init__(self, postgres: Postgres, schema: str, opening_id: int) -> None:
        self.schema = schema
        self.connection = open_connection(postgres.database_url)
        self.appender = Appender(self.connection, schema)
        self.store = Nothing()
        self.caches = Caches(self.store)
        self.opening = OpeningState()
        self.opening.opening_id, self.opening.started = opening_id, True
        self.look()

    def look(self) -> None:
        """Take the head as it is, and forget what was cached: what is decided from now on stands on it."""
        self.caches.forget()
        newest = self.one("SELECT position, recorded_at FROM {}.cf_event ORDER BY position DESC LIMIT 1") or (0, 0)
        epoch, self.erasures = self.one("SELECT epoch, erasures FROM {}.cf_head") or (0, 0)
        self.head = Head(FORMAT, newest[0], GENESIS, newest[1], epoch, 0, bytes(32))

    def unit(self) -> Unit:
        """Begin a group."""
        unit = Unit(
            store=self.store,
            caches=self.caches,
            head=self.head,
            opening=self.opening,
            clocks=Clocks(SystemClock(), lambda opening_id: True),
            limits=Limits(),
            raise_epoch=lambda epoch: epoch,
            keep_inbound=False,
            ahead=True,
        )
        self.store.lines.begin(unit.changes)
        return unit

    def standpoint(self, unit: Unit, goes_on: int = 0) -> Standpoint:
        return Standpoint(self.head.position, unit.now, self.head.epoch, self.erasures, goes_on)

    def record(self, unit: Unit, **words: Any) -> bytes:
        return record(unit, self.standpoint(unit), **words)

    def append(self, unit: Unit, **words: Any) -> Appended:
        """Append what a group has decided; the head is looked at no more, so the next group may be decided on an old one."""
        appended = self.appender.append(self.record(unit, **words))
        if appended.status == "appended":
            unit.commit()
        else:
            unit.rollback()
        return appended

    def happens(self, stream: str = "a", version: int = 1, **header: Any) -> Appended:
        """Append one event by itself."""
        unit = self.unit()
        happen(unit, stream, version, **header)
        return self.append(unit)

    def one(self, sql: str, *values: Any) -> SQLRow | None:
        return self.connection.execute(spelled(sql, self.schema, values), values or None, prepare=False).fetchone()

    def close(self) -> None:
        self.connection.close()


class Journal:
    """A journal that was made in a schema, and those who append to it."""

    def __init__(self, postgres: Postgres, schema: str) -> None:
        self.postgres, self.schema = postgres, schema
        self._sides: list[Side] = []
        with postgres.connect() as connection, connection.transaction():
            connection.execute(spelled("CREATE SCHEMA {}", schema, ()))
            ddl.make(connection, schema)

    def side(self) -> Side:
        """Return another who appends to it."""
        self._sides.append(Side(self.postgres, self.schema, len(self._sides) + 1))
        return self._sides[-1]

    def rows(self, sql: str, *values: Any) -> list[SQLRow]:
        """Return the rows of a query, which names the schema by {}."""
        return self.postgres.execute(spelled(sql, self.schema, values).decode(), values or None)

    def change(self, sql: str, *values: Any) -> None:
        self.rows(sql, *values)

    def events(self) -> list[EventRow]:
        columns = ", ".join(map(quoted, EventRow._fields))
        return [EventRow(*row) for row in self.rows(f"SELECT {columns} FROM {{}}.cf_event ORDER BY position")]

    def everything(self) -> dict[str, list[SQLRow]]:
        """Return all rows of all tables."""
        tables = self.postgres.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'raw' ORDER BY 1", (self.schema,)
        )
        return {name: sorted(self.rows(f"SELECT * FROM {{}}.{name}"), key=repr) for (name,) in tables}

    def close(self) -> None:
        for side in self._sides:
            side.close()


def spelled(sql: str, schema: str, values: tuple[Any, ...]) -> bytes:
    """Return a statement with the name of the schema in the place of {}."""
    name = quoted(schema)
    return sql.replace("{}", name.replace("%", "%%") if values else name).encode()


def happen(unit: Unit, stream: str = "a", version: int = 1, **header: Any) -> int:
    """Decide one event in a group, and return its provisional position."""
    recorded = unit.write_event(stream, version, "test.happened", 1, Header(opening_id=unit.opening_id, **header), b"{}", None)
    unit.keep()
    return recorded.position
