"""The journal in an SQLite file: its connections, what the writer reads in its transaction, and how a group is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from counterfoil.domain.admission import DAY
from counterfoil.domain.decision import Payload
from counterfoil.domain.event import REGISTRY, Event, Recorded
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import Operation
from counterfoil.domain.route import Queue
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection
from counterfoil.projections.queues import QueueRow

from ..caches import fold_operation
from ..rows import EventRow, Head, Scoped
from ..statements import statements
from ..unit import Unit
from .crossing import Connection, gate
from .host_statements import HostStatements
from .lines import SQLiteLines
from .rows_of_projections import sql_of

MEMORY: Final = ":memory:"
APPLICATION_ID: Final = 0x63664A31
"""`cfJ1` in the header of the file: this is a journal."""
STATEMENT_CACHE: Final = 256

APPEND: Final = statements("sqlite/append.sql")
READ: Final = statements("sqlite/read.sql")
SCHEMA: Final = statements("sqlite/schema.sql")


def connect(path: Path | None, *, readonly: bool, busy_us: int) -> sqlite3.Connection:
    """
    Open one connection with the settings that every connection of ours has; None is a journal in memory.

    Raises `ForkedError` for a file that was in use when this process was forked. Whoever uses the connection is inside `gate`.
    """
    with gate.inside():
        if path is not None:
            gate.check_file(path)
        connection = _connect(path, readonly=readonly, busy_us=busy_us)
        gate.enter(connection, path)
        return connection


def _connect(path: Path | None, *, readonly: bool, busy_us: int) -> Connection:
    target = MEMORY if path is None else f"file:{quote(str(path.absolute()))}?mode={'ro' if readonly else 'rwc'}"
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
        if not readonly:
            connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


class SQLiteStore:
    """Read and write a journal through one connection, inside a transaction that the caller holds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lines = SQLiteLines(connection)

    @cached_property
    def host(self) -> HostStatements:
        """What executes the host's statements on this connection."""
        return HostStatements(self.connection)

    # What a unit reads.

    def _one(self, sql: str, *values: Any) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def head(self) -> Head:
        return Head(*self._one(APPEND.read_head))

    def stream(self, originator_id: str) -> list[Recorded]:
        if not self.has_event(originator_id, 1):  # most are looked for because they are new, and the index knows that at once
            return []
        return [EventRow(*row).recorded for row in self.connection.execute(READ.stream, (originator_id,))]

    def stream_version(self, originator_id: str) -> int:
        return self._one(READ.stream_version, originator_id)[0] or 0

    def operation(self, operation_id: str) -> Operation | None:
        """Return an operation folded from its events."""
        return fold_operation(self.stream(operation_id)) if operation_id.startswith("op-") else None

    def event_at(self, position: int) -> Event | None:
        """Return the event at a position, decoded."""
        row = self._one(READ.event_state, position)
        return None if row is None else REGISTRY.decode(*row)

    def event_of(self, originator_id: str, version: int) -> Event | None:
        """Return the event of an aggregate with this version, decoded."""
        row = self._one(READ.event_of, originator_id, version)
        return None if row is None else REGISTRY.decode(*row)

    def grant_at(self, lease_id: str, position: int) -> tuple[int, int] | None:
        """Return the opening that was given a lease at a position, and the version of the grant; None when none was."""
        row: tuple[int, int] | None = self._one(READ.grant_at, position, lease_id)
        return row

    def unresolved_of_subject(self, pseudonym: bytes) -> list[str]:
        """Return the unresolved operations that a pseudonym belongs to, as actor, conversation or thread."""
        return [operation_id for (operation_id,) in self.connection.execute(READ.unresolved_of_subject, (pseudonym,))]

    def unresolved_of_scope(self, scope_id: bytes) -> list[str]:
        return [operation_id for (operation_id,) in self.connection.execute(READ.unresolved_of_scope, (scope_id,))]

    def external_id(self, position: int) -> str | None:
        row = self._one(READ.external_id, position)
        return None if row is None else row[0]

    def waiting_routes(self) -> list[tuple[str, int, bytes]]:
        """Return every route with waiting entries, with the opening of its head and the scope: the oldest head first."""
        return [
            (route, opening_id, scope_id) for route, _place, opening_id, scope_id in self.connection.execute(READ.waiting_routes)
        ]

    def originator_at(self, position: int) -> str | None:
        row = self._one(READ.originator_at, position)
        return None if row is None else row[0]

    def queue(self, route_id: str) -> Queue:
        return Queue(route_id, tuple(QueueRow(*row).entry for row in self.connection.execute(READ.queue, (route_id,))))

    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        row = self.connection.execute(sql_of(projection).select_row, key).fetchone()
        return None if row is None else projection.ROW(*row)

    def deadline(self, lease_id: str) -> Deadline | None:
        row = self._one(READ.deadline, lease_id)
        return None if row is None else Deadline(*row)

    def epoch_at(self, position: int) -> int:
        return int(self._one(READ.epoch_at, position)[0])

    def has_event(self, originator_id: str, version: int) -> bool:
        return self._one(READ.has_event, originator_id, version) is not None

    def subject(self, pseudonym: bytes) -> str | None:
        row = self._one(READ.subject, pseudonym)
        return None if row is None else row[0]

    def kept_command(self, key: tuple[bytes, bytes]) -> tuple[bytes, bytes, int] | None:
        row: tuple[bytes, bytes, int] | None = self._one(READ.command, *key)
        return row

    def payload(self, position: int) -> Payload | None:
        row = self._one(READ.payload, position)
        return None if row is None else Payload(*row)

    def scope_of(self, scope: Scope) -> ScopeKey | None:
        row = self._one(READ.scope_of, *scope)
        return None if row is None else ScopeKey(*row)

    def scope_by_id(self, scope_id: bytes) -> Scoped | None:
        row = self._one(READ.scope_by_id, scope_id)
        return None if row is None else Scoped(*row)

    def load_of_opening(self, opening_id: int) -> dict[str, tuple[int, int]]:
        return {route: (count, waiting) for route, count, waiting in self.connection.execute(READ.load_of_opening, (opening_id,))}

    def events_after(self, position: int, limit: int) -> list[EventRow]:
        return [EventRow(*row) for row in self.connection.execute(READ.events_after, (position, limit))]

    def projections(self) -> dict[tuple[str, int], int]:
        return {(name, version): position for name, version, position in self.connection.execute(READ.projections)}

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
