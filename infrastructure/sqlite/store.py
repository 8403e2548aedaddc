"""The journal in an SQLite file: its connections, what the writer reads in its transaction, and how a group is written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from counterfoil.domain.admission import DAY
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from ..rows import SQLRow
from ..statements import Statement, read_all, statements, text_of
from ..store import Store, Values
from ..unit import Unit
from .crossing import Connection, gate
from .host_statements import HostStatements
from .lines import SQLiteLines
from .rows_of_projections import sql_of

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x63664A31
"""`cfJ1` in the header of the file: this is a journal."""
UNFINISHED: Final = 0x63664A30
"""`cfJ0`: a copy is being made here, or was, and is no journal yet."""
STATEMENT_CACHE: Final = 256

APPEND: Final = statements("sqlite/append.sql")
SCHEMA: Final = statements("sqlite/schema.sql")
VERIFY: Final = statements("sqlite/verify.sql")


def connect(path: Path | None, *, readonly: bool, create: bool = True, busy_us: int) -> sqlite3.Connection:
    """
    Open one connection with the settings that every connection of ours has; None is a journal in memory.

    Raises `ForkedError` for a file that was in use when this process was forked. Whoever uses the connection is inside `gate`.
    """
    with gate.inside():
        if path is not None:
            gate.check_file(path)
        connection = _connect(path, "ro" if readonly else "rwc" if create else "rw", busy_us)
        gate.enter(connection, path)
        return connection


def _connect(path: Path | None, mode: str, busy_us: int) -> Connection:
    target = MEMORY if path is None else f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(
        target,
        uri=path is not None,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENT_CACHE,
        timeout=busy_us / 1_000_000,
        factory=Connection,
    )
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # the engine sets it for who commits under the append lock
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        if mode != "ro":
            connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _json(values: list[Any]) -> str:
    """Return a list as statements compare with it: text by itself, bytes by `hex(column)`."""
    return json.dumps([value.hex().upper() if isinstance(value, bytes) else value for value in values])


read_all("sqlite")


class SQLiteStore(Store):
    """Read and write a journal through one connection, inside a transaction that the caller holds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lines = SQLiteLines(connection)

    @cached_property
    def host(self) -> HostStatements:
        """What executes the host's statements on this connection."""
        return HostStatements(self.connection)

    # What it reads, beyond what every engine does.

    def rows(self, statement: Statement, values: Values = ()) -> Iterator[SQLRow]:
        if isinstance(values, dict):
            values = {name: _json(value) if isinstance(value, list) else value for name, value in values.items()}
        return iter(self.connection.execute(text_of("sqlite", statement), values))

    def one(self, statement: Statement, values: Values = ()) -> SQLRow | None:
        row: SQLRow | None = self.connection.execute(text_of("sqlite", statement), values).fetchone()
        return row

    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        row = self.connection.execute(sql_of(projection).select_row, key).fetchone()
        return None if row is None else projection.ROW(*row)

    def pending(self, projection: Projection[Any]) -> dict[str, Any]:
        return {}

    def rows_of(self, projection: Projection[Any]) -> Iterator[SQLRow]:
        return iter(self.connection.execute(sql_of(projection).select_all))

    UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, TypeError)

    def extent(self) -> tuple[str, int, str]:
        return "file", self.connection.execute("PRAGMA main.page_count").fetchone()[0], "pages"

    def own_difference(self) -> str | None:
        try:
            found = self.connection.execute(VERIFY.pages).fetchone()[0]
        except self.UNREADABLE:
            return "SQLite finds the file malformed; restore a backup"
        return None if found == "ok" else f"SQLite's own check says: {found}"

    # What a group writes.

    def write(self, unit: Unit) -> None:
        """Write everything that the kept commands of a group did."""
        connection, changes, head = self.connection, unit.changes, unit.head
        connection.executemany(APPEND.insert_event, changes.events)
        for name, rows in (
            ("insert_scope", changes.scopes),
            ("insert_subject", changes.subjects),
            ("insert_payload", changes.payloads),
            ("insert_external_id", changes.external_ids),
            ("erase_payload", changes.erased),
        ):
            if rows:
                connection.executemany(getattr(APPEND, name), rows)
        for name, values in changes.actions:
            connection.execute(getattr(APPEND, name), values)
        self.write_rows((projection, unit.caches.rows[projection.NAME].changed()) for projection in BUILT_IN)
        deadlines = list(unit.caches.deadlines.changed())
        if put := [deadline for _, deadline in deadlines if deadline is not None]:
            connection.executemany(APPEND.put_deadline, put)
        if gone := [(lease_id,) for lease_id, deadline in deadlines if deadline is None]:
            connection.executemany(APPEND.delete_deadline, gone)
        kept = [(*key, *value) for key, value in unit.caches.commands.changed() if value is not None]
        if kept:
            connection.executemany(APPEND.insert_command, kept)
            connection.execute(APPEND.forget_commands, (unit.now - unit.limits.command_id_days * DAY,))
        if changes.events:
            connection.execute(APPEND.move_head, (head.position, head.digest, head.recorded_at, head.epoch, head.opening_id))
            self.move_projections(head.position)

    def write_rows(self, changed: Iterable[tuple[Projection[Any], Iterable[tuple[Key, Any | None]]]]) -> None:
        """Write the rows of projections that changed."""
        for projection, rows in changed:
            put, gone = [], []
            for key, row in rows:
                if row is None:
                    gone.append(key)
                else:
                    put.append(row)
            if put:
                self.connection.executemany(sql_of(projection).put, put)
            if gone:
                self.connection.executemany(sql_of(projection).delete, gone)

    def move_projections(self, position: int) -> None:
        self.connection.executemany(
            APPEND.move_projection,
            [(position, projection.NAME, projection.VERSION) for projection in BUILT_IN],
        )
