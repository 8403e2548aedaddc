"""What is read of a journal, whatever the engine: inside a transaction or a snapshot that the caller holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from counterfoil.domain.decision import Payload
from counterfoil.domain.event import REGISTRY, Committed, Event, Recorded
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import Operation, fold
from counterfoil.domain.route import Queue
from counterfoil.projections.projection import Key, Projection
from counterfoil.projections.queues import QueueRow

from .lines import Lines
from .rows import EventRow, Head, Scoped, SQLRow
from .statements import Names, Statement

READ: Final = Names("read")

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""What a statement is executed with. Only a mapping may hold lists, of bytes or of text, which stand for sets to compare with."""


class Store(ABC):
    """Read a journal through one connection."""

    connection: Any
    """The driver's connection."""
    lines: Lines

    @abstractmethod
    def rows(self, statement: Statement, values: Values = ()) -> Iterator[SQLRow]:
        """Execute a statement and yield its rows."""

    @abstractmethod
    def pending(self, projection: Projection[Any]) -> dict[str, Any]:
        """Return, as values for a statement, what an aggregated projection's stored rows lack where they are folded later."""

    @abstractmethod
    def row(self, projection: Projection[Any], key: Key) -> Any | None:
        """Return a projection's row by its key."""

    @abstractmethod
    def rows_of(self, projection: Projection[Any]) -> Iterator[SQLRow]:
        """Yield a projection's stored rows in the order of their keys."""

    def one(self, statement: Statement, values: Values = ()) -> SQLRow | None:
        """Execute a statement and return its first row."""
        return next(self.rows(statement, values), None)

    def count(self, statement: Statement) -> int:
        """Execute a statement that counts."""
        return int(self._the(statement)[0])

    # Of itself.

    UNREADABLE: ClassVar[tuple[type[Exception], ...]]
    """What reading garbled data raises: the driver's word for it, or values of another kind than was stored."""

    @abstractmethod
    def extent(self) -> tuple[str, int, str]:
        """Return what the journal lies in, how much that is, and of what."""

    @abstractmethod
    def own_difference(self) -> str | None:
        """Return what the engine's own check finds wrong, None when it finds nothing."""

    # The head.

    def head(self) -> Head:
        return Head(*self._the(READ.head))

    def _the(self, statement: Statement, *values: Any) -> SQLRow:
        row = self.one(statement, values)
        assert row is not None
        return row

    # Events.

    def stream(self, originator_id: str) -> list[Recorded]:
        if not self.has_event(originator_id, 1):  # most are looked for because they are new, and the index knows that at once
            return []
        return [EventRow(*row).recorded for row in self.rows(READ.stream, (originator_id,))]

    def stream_version(self, originator_id: str) -> int:
        return self._the(READ.stream_version, originator_id)[0] or 0

    def operation(self, operation_id: str) -> Operation | None:
        """Return an operation folded from its events."""
        return fold(self.stream(operation_id)) if operation_id.startswith("op-") else None

    def event_at(self, position: int) -> Event | None:
        """Return the event at a position, decoded."""
        row = self.one(READ.event_state, (position,))
        return None if row is None else REGISTRY.decode(*row)

    def event_of(self, originator_id: str, version: int) -> Event | None:
        """Return the event of an aggregate with this version, decoded."""
        row = self.one(READ.event_of, (originator_id, version))
        return None if row is None else REGISTRY.decode(*row)

    def has_event(self, originator_id: str, version: int) -> bool:
        return self.one(READ.has_event, (originator_id, version)) is not None

    def position_of(self, originator_id: str, version: int) -> int | None:
        row = self.one(READ.position_of, (originator_id, version))
        return None if row is None else row[0]

    def originator_at(self, position: int) -> str | None:
        row = self.one(READ.originator_at, (position,))
        return None if row is None else row[0]

    def events_after(self, position: int, limit: int) -> list[EventRow]:
        return [EventRow(*row) for row in self.rows(READ.events_after, (position, limit))]

    def newest_events(self, limit: int) -> list[EventRow]:
        """Return the end of the history, in order of position."""
        return [EventRow(*row) for row in self.rows(READ.newest_events, (limit,))][::-1]

    # Texts, and whom pseudonyms stand for.

    def payload(self, position: int) -> Payload | None:
        row = self.one(READ.payload, (position,))
        return None if row is None else Payload(*row)

    def texts(self, positions: list[int]) -> dict[int, bytes]:
        """Return the texts that are kept at some positions."""
        payloads = ((position, self.payload(position)) for position in positions)
        return {position: payload.body for position, payload in payloads if payload is not None}

    def commitments_after(self, position: int, limit: int) -> list[tuple[int, Committed]]:
        """Return a page of what the texts that remain should be committed to by their events, each with its position."""
        rows = self.rows(READ.payloads_after, (position, limit))
        return [(place, Payload(salt, body).committed) for place, salt, body in rows]

    def external_id(self, position: int) -> str | None:
        row = self.one(READ.external_id, (position,))
        return None if row is None else row[0]

    def subject(self, pseudonym: bytes) -> str | None:
        row = self.one(READ.subject, (pseudonym,))
        return None if row is None else row[0]

    def scope_of(self, scope: Scope) -> ScopeKey | None:
        row = self.one(READ.scope_of, scope)
        return None if row is None else ScopeKey(*row)

    def scope_by_id(self, scope_id: bytes) -> Scoped | None:
        row = self.one(READ.scope_by_id, (scope_id,))
        return None if row is None else Scoped(*row)

    # Work.

    def queue(self, route_id: str) -> Queue:
        return Queue(route_id, tuple(QueueRow(*row).entry for row in self.rows(READ.queue, (route_id,))))

    def load_of_opening(self, opening_id: int) -> dict[str, tuple[int, int]]:
        return {route: (count, waiting) for route, count, waiting in self.rows(READ.load_of_opening, (opening_id,))}

    def waiting_routes(self) -> list[tuple[str, int, bytes]]:
        """Return every route with waiting entries, with the opening of its head and the scope: the oldest head first."""
        return [(route, opening_id, scope_id) for route, _place, opening_id, scope_id in self.rows(READ.waiting_routes)]

    def unresolved_of_subject(self, pseudonym: bytes) -> list[str]:
        """Return the unresolved operations that a pseudonym belongs to, as actor, conversation or thread."""
        return [operation_id for (operation_id,) in self.rows(READ.unresolved_of_subject, {"pseudonym": pseudonym})]

    def unresolved_of_scope(self, scope_id: bytes) -> list[str]:
        return [operation_id for (operation_id,) in self.rows(READ.unresolved_of_scope, (scope_id,))]

    def kept_command(self, key: tuple[bytes, bytes]) -> tuple[bytes, bytes, int] | None:
        row = self.one(READ.command, key)
        return None if row is None else (row[0], row[1], row[2])

    # Leases.

    def deadline(self, lease_id: str) -> Deadline | None:
        row = self.one(READ.deadline, (lease_id,))
        return None if row is None else Deadline(*row)

    def epoch_at(self, position: int) -> int:
        return int(self._the(READ.epoch_at, position)[0])

    def grant_at(self, lease_id: str, position: int) -> tuple[int, int] | None:
        """Return the opening that was given a lease at a position, and the version of the grant; None when none was."""
        row = self.one(READ.grant_at, (position, lease_id))
        return None if row is None else (row[0], row[1])

    # Projections.

    def projections(self) -> dict[tuple[str, int], int]:
        """Return up to which position each version of each projection is folded."""
        return {(name, version): position for name, version, position in self.rows(READ.projections)}
