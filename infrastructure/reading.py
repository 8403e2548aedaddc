"""
What is read of a journal for people and programs: what is unresolved, the timeline, the story of a message, the statistics.

Each function reads through one store, in the snapshot that its caller holds. What is outside of the reach is a miss. Who may ask,
and that showing text is recorded, is decided by the caller.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from counterfoil.domain.errors import FormatUnknown, InvalidValue, JournalDamaged
from counterfoil.domain.event import Recorded, UnknownEvent
from counterfoil.domain.identity import EVERY_TENANT, Reach, instant_us
from counterfoil.domain.ids import ROUTE_LOCK, SubjectKind, lock_id
from counterfoil.domain.limits import COUNTS, Limits
from counterfoil.domain.lock import LockGranted, fence_of, fence_text
from counterfoil.domain.operation import OPERATION_PREFIX, OperationAdmitted, OperationClaimed
from counterfoil.projections.story import Story, story_of
from counterfoil.projections.timeline import (
    SETTLED,
    TYPE_OF_OUTCOME,
    Names,
    TimelineEntry,
    TimelineFilter,
    entry_of,
    instant,
)
from counterfoil.projections.unresolved import UnresolvedRow

from .rows import EventRow
from .sqlite.store import READ, SQLiteStore
from .statements import statements

TIMELINE: Final = statements("sqlite/timeline.sql")

LARGEST: Final = 2**63 - 1
HANDFUL: Final = 8
"""How many times more rows of one key of several are read when the last ones were all wanted."""
_CURSOR: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_OPERATION_ID: Final = re.compile(r"op-[0-9a-f]{32}")

R = TypeVar("R")
_ByScope: TypeAlias = dict[bytes, list[bytes]]
"""Pseudonyms by the scope that they belong to."""


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Rows, and the cursor with which the rows after them are asked for; None when there are none."""

    rows: tuple[R, ...]
    next: str | None = None

    def __repr__(self) -> str:
        return f"Page({len(self.rows)} rows, next={self.next!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedOperation:
    """An operation that needs attention."""

    operation_id: str
    connection: str
    state: str
    """`accepted`, `executing`, or how it was settled when its reply is not resolved."""
    reply_state: str
    attempts: int
    """Sendings of the reply that were begun."""
    version: int
    """What `reconcile` expects."""
    admitted_at: datetime
    updated_at: datetime
    age: timedelta
    """Since the admission."""
    holder: int | None = None
    """Of an executing operation: the opening that claimed it."""
    holder_alive: bool | None = None
    """None where there is no holder, or where nobody could tell."""

    @property
    def needs_acknowledgment(self) -> bool:
        """Tell whether reconcile needs `acknowledge_duplicate_risk`."""
        return self.state != "accepted" and self.reply_state != "delivery_failed"

    @property
    def resends(self) -> bool:
        """Tell whether reconcile sends the reply again."""
        return self.state not in ("accepted", "executing")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "operation_id": self.operation_id,
            "connection": self.connection,
            "state": self.state,
            "reply_state": self.reply_state,
            "attempts": self.attempts,
            "version": self.version,
            "admitted_at": self.admitted_at.isoformat(timespec="microseconds"),
            "updated_at": self.updated_at.isoformat(timespec="microseconds"),
            "age_seconds": self.age.total_seconds(),
            "holder": self.holder,
            "holder_alive": self.holder_alive,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How often something happened on a connection, and how long it took: in one hour, or in all."""

    hour: datetime | None
    """When the hour begins; None in the totals."""
    connection: str
    measure: str
    count: int
    mean: timedelta | None
    """From admission to claim or delivery, from claim to settlement; None for what has no duration."""
    longest: timedelta | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "hour": None if self.hour is None else self.hour.isoformat(),
            "connection": self.connection,
            "measure": self.measure,
            "count": self.count,
            "mean_seconds": None if self.mean is None else self.mean.total_seconds(),
            "longest_seconds": None if self.longest is None else self.longest.total_seconds(),
        }


@dataclass(frozen=True, slots=True)
class Statistics:
    """Totals by connection and measure, and the same by hour, oldest first."""

    totals: tuple[Measured, ...] = field(repr=False)
    hours: tuple[Measured, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"totals": [row.to_json() for row in self.totals], "hours": [row.to_json() for row in self.hours]}


# What bounds a call.


def page_limit(limit: int | None, limits: Limits) -> int:
    """Return how many rows a page holds; raises `InvalidValue` outside the range."""
    if limit is None:
        return limits.max_journal_page
    least, most = COUNTS["max_journal_page"]
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidValue(f"limit must be a whole number from {least} to {most}, not {type(limit).__name__}")
    if not least <= limit <= most:
        raise InvalidValue(f"limit must be from {least} to {most}, not {limit}")
    return limit


def cursor_position(cursor: str | None) -> int | None:
    """Return the position that a cursor stands for; raises `InvalidValue` for what no page has given."""
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        raise InvalidValue(f"after must be a cursor, the `next` of a page, not {type(cursor).__name__}")
    if _CURSOR.fullmatch(cursor) is None or int(cursor) > LARGEST:
        raise InvalidValue(f"after must be a cursor, the `next` of a page: a whole number from 0 to {LARGEST}")
    return int(cursor)


class Seen(NamedTuple):
    """The ids of the scopes that a call may know of; None stands for all, erased ones and what has no scope included."""

    scope_ids: frozenset[bytes] | None

    def includes(self, scope_id: bytes | None) -> bool:
        return self.scope_ids is None or scope_id in self.scope_ids

    @property
    def parameter(self) -> str | None:
        """What statements take as `:scopes`."""
        return None if self.scope_ids is None else _hexes(self.scope_ids)


def seen_by(store: SQLiteStore, reach: Reach) -> Seen:
    """Resolve a reach to the scopes that the journal has in it."""
    if reach.tenant is EVERY_TENANT:
        return Seen(None)
    if reach.tenant is None:
        own = store.scope_of(reach.identity.scope)
        return Seen(frozenset() if own is None else frozenset({own.scope_id}))
    return Seen(frozenset(row[0] for row in store.connection.execute(READ.scopes_of_tenant, (reach.tenant,))))


def _hexes(values: Iterable[bytes]) -> str:
    """Return bytes as the JSON list that statements compare `hex(column)` with."""
    return json.dumps([value.hex().upper() for value in values])


# Unresolved.


def unresolved(
    store: SQLiteStore,
    reach: Reach,
    limits: Limits,
    limit: int | None = None,
    after: str | None = None,
    *,
    now: int,
    is_live: Callable[[int], bool] | None = None,
) -> Page[UnresolvedOperation]:
    """Return a page of what needs attention, oldest first. `now` is the journal's clock, `is_live` tells which openings live."""
    most, position = page_limit(limit, limits), cursor_position(after) or 0
    values = {"scopes": seen_by(store, reach).parameter, "after": position, "limit": most + 1}
    rows = [UnresolvedRow(*row) for row in store.connection.execute(TIMELINE.unresolved, values)]
    shown = tuple(_unresolved(row, now, is_live) for row in rows[:most])
    return Page(shown, str(rows[most - 1].operation) if len(rows) > most else None)


def _unresolved(row: UnresolvedRow, now: int, is_live: Callable[[int], bool] | None) -> UnresolvedOperation:
    holder = row.claimed_by if row.state == "executing" else None
    return UnresolvedOperation(
        operation_id=row.operation_id,
        connection=row.connection,
        state=row.state,
        reply_state=row.reply_state,
        attempts=row.attempts,
        version=row.version,
        admitted_at=instant(row.admitted_at),
        updated_at=instant(row.updated_at),
        age=timedelta(microseconds=max(0, now - row.admitted_at)),
        holder=holder,
        holder_alive=None if holder is None or is_live is None else is_live(holder),
    )


# Timeline.


def timeline(
    store: SQLiteStore,
    reach: Reach,
    limits: Limits,
    where: TimelineFilter,
    limit: int | None = None,
    after: str | None = None,
    *,
    newest_first: bool = False,
    with_text: bool = False,
) -> Page[TimelineEntry]:
    """Return a page of what happened, in order of position or newest first; a cursor goes on in the order that is asked for."""
    most, cursor = page_limit(limit, limits), cursor_position(after)
    query = _Query(store, seen_by(store, reach), where)
    rows = query.rows(most + 1, cursor, newest_first)
    shown = _decoded(rows[:most])
    names = _names_of(store, (recorded for _, recorded in shown), with_text)
    entries = tuple(entry_of(recorded, row.type, names) for row, recorded in shown)
    return Page(entries, str(rows[most - 1].position) if len(rows) > most else None)


class _Query:
    """
    A filter, resolved to one access path of the journal with its keys, and to what is left to compare.

    An id has a pseudonym in each scope and on each connection, so that it may be several keys; what their scope rules out is not
    compared again.
    """

    def __init__(self, store: SQLiteStore, seen: Seen, where: TimelineFilter) -> None:
        self._store = store
        self._seen = seen
        self._connection = where.connection
        conversations = self._pseudonyms(where.conversation, "conversation")
        threads = self._pseudonyms(where.thread, "thread")
        actors = self._pseudonyms(where.actor, "actor", "principal")
        types = where.types
        if where.outcome is not None:
            outcome_type = TYPE_OF_OUTCOME[where.outcome]
            types = (outcome_type,) if types is None or outcome_type in types else ()
        self._shared: dict[str, Any] = {
            "connection": where.connection,
            "actor_kind": where.actor_kind,
            "correlation": None if where.correlation is None else bytes.fromhex(where.correlation),
            "types": None if types is None else json.dumps(types),
            "settled": where.outcome if where.outcome in SETTLED else None,
            "after": max(where.after or 0, 0 if where.since is None else self._first_at(instant_us(where.since)) - 1),
            "before": min(
                LARGEST if where.before is None else where.before,
                LARGEST if where.until is None else self._first_at(instant_us(where.until)),
            ),
        }
        self._path = "by_position"
        self._ways: list[dict[str, Any]] = []
        if any(wanted is not None and not wanted for wanted in (conversations, threads, actors, types)):
            return
        if where.operation_id is not None:
            self._path = "by_operation"
            operation = visible_operation(store, seen, where.operation_id)
            if operation is not None:
                self._ways.append(_way(operation, None, conversations=conversations, threads=threads, actors=actors))
        elif actors is not None:
            self._path = "by_actor"
            for scope_id, pseudonyms in actors.items():
                others = _of_scope(scope_id, conversations=conversations, threads=threads)
                self._ways += (_way(actor, None, actors=None, **others) for actor in pseudonyms)
        elif conversations is not None:
            self._path = "by_conversation"
            for scope_id, pseudonyms in conversations.items():
                others = _of_scope(scope_id, threads=threads)
                self._ways += (_way(conversation, None, conversations=None, actors=None, **others) for conversation in pseudonyms)
        else:
            self._ways.append(_way(None, seen.parameter, conversations=None, threads=threads, actors=None))

    def rows(self, limit: int, cursor: int | None, newest_first: bool) -> list[EventRow]:
        """Return the first events in order. Of many keys each costs a row and not a page: they are read by the handful and merged."""
        shared = dict(self._shared)
        edge: Literal["after", "before"] = "before" if newest_first else "after"
        if cursor is not None:
            shared[edge] = min(cursor, shared[edge]) if newest_first else max(cursor, shared[edge])
        statement = getattr(TIMELINE, f"{self._path}_newest_first" if newest_first else self._path)

        def follow(way: dict[str, Any]) -> Iterator[EventRow]:
            values, size = shared | way, limit if len(self._ways) == 1 else 1
            while True:
                values["limit"] = size
                handful = [EventRow(*row) for row in self._store.connection.execute(statement, values)]
                yield from handful
                if len(handful) < size:
                    return
                values[edge] = handful[-1].position
                size = min(limit, size * HANDFUL)

        merged = heapq.merge(*map(follow, self._ways), key=lambda row: row.position, reverse=newest_first)
        return list(islice(merged, limit))

    def _pseudonyms(self, value: str | None, *kinds: SubjectKind) -> _ByScope | None:
        """Return what an id is called in the scopes that are seen: None when it is not asked for, none when nobody knows it."""
        if value is None:
            return None
        values = {"value": value, "connection": self._connection}
        found: _ByScope = {}
        for pseudonym, scope_id, kind in self._store.connection.execute(TIMELINE.subjects_by_value, values):
            if kind in kinds and self._seen.includes(scope_id):
                found.setdefault(scope_id, []).append(pseudonym)
        return found

    def _first_at(self, microseconds: int) -> int:
        """Return the position of the first event that was recorded at an instant or later; the one after the head if none was."""
        low, high = 1, self._store.head().position + 1
        while low < high:
            middle = (low + high) // 2
            with closing(self._store.connection.execute(TIMELINE.first_at, (middle,))) as found:
                position, recorded_at = found.fetchone()
            if recorded_at < microseconds:
                low = position + 1
            else:
                high = middle
        return low


def _of_scope(scope_id: bytes, **wanted: _ByScope | None) -> dict[str, _ByScope | None]:
    """Return what is wanted in one scope; an empty list lets nothing through."""
    return {name: None if by_scope is None else {scope_id: by_scope.get(scope_id, [])} for name, by_scope in wanted.items()}


def _way(key: int | bytes | None, scopes: str | None, **wanted: _ByScope | None) -> dict[str, Any]:
    """Return the parameters with which a statement follows one key."""
    lists = {name: None if by_scope is None else _hexes(chain(*by_scope.values())) for name, by_scope in wanted.items()}
    return {"key": key, "scopes": scopes, **lists}


def visible_operation(store: SQLiteStore, seen: Seen, operation_id: str) -> int | None:
    """Return the position of an operation's admission, None where it is unknown or another's."""
    if _OPERATION_ID.fullmatch(operation_id) is None:
        return None
    row = store.connection.execute(TIMELINE.operation_of, (operation_id,)).fetchone()
    return row[0] if row is not None and seen.includes(row[1]) else None


def _decoded(rows: Iterable[EventRow]) -> list[tuple[EventRow, Recorded]]:
    """Decode events; one of a type that this release does not know is shown without its state."""
    decoded = []
    for row in rows:
        try:
            recorded = row.recorded
        except UnknownEvent:
            recorded = row._replace(type_version=0).recorded
        except ValueError:
            raise JournalDamaged(
                f"the event at position {row.position} cannot be read; look at the journal with `counterfoil verify`"
            ) from None
        decoded.append((row, recorded))
    return decoded


def _names_of(store: SQLiteStore, events: Iterable[Recorded], with_text: bool) -> Names:
    """Look up what a stretch of events needs to be shown, each thing once."""
    subjects: dict[bytes, str | None] = {}
    operations: dict[int, str | None] = {}
    external: dict[int, str | None] = {}
    texts: dict[int, str | None] = {}
    for recorded in events:
        header, position = recorded.header, recorded.position
        for pseudonym in (header.conversation, header.thread, header.actor):
            if pseudonym is not None and pseudonym not in subjects:
                subjects[pseudonym] = store.subject(pseudonym)
        external[position] = _external_id(store, position)
        if with_text:
            payload = store.payload(position)
            texts[position] = None if payload is None else payload.body.decode("utf-8", "surrogatepass")
        if recorded.originator_id.startswith(OPERATION_PREFIX):
            operations[position if header.operation is None else header.operation] = recorded.originator_id
        elif header.operation is not None and header.operation not in operations:
            operations[header.operation] = store.originator_at(header.operation)
        if header.operation is not None and header.operation not in external:
            external[header.operation] = _external_id(store, header.operation)
    return Names(_present(subjects), _present(operations), _present(external), _present(texts))


K = TypeVar("K")


def _present(values: dict[K, str | None]) -> dict[K, str]:
    return {key: value for key, value in values.items() if value is not None}


def _external_id(store: SQLiteStore, position: int) -> str | None:
    row = store.connection.execute(READ.external_id, (position,)).fetchone()
    return None if row is None else str(row[0])


# Explain.


def explain(
    store: SQLiteStore,
    reach: Reach,
    identifier: str,
    *,
    with_text: bool = False,
    now: int | None = None,
    is_live: Callable[[int], bool] | None = None,
) -> list[Story]:
    """
    Return the stories of an operation id, or of every occurrence of a platform's event id, oldest first; none for a miss.

    `now` is the journal's clock and `is_live` tells which openings live: with them a story says for how long nothing has
    happened, and whether somebody may still be at it.
    """
    if not isinstance(identifier, str):
        raise InvalidValue(f"explain takes an operation id or an event id as text, not {type(identifier).__name__}")
    seen = seen_by(store, reach)
    operation = visible_operation(store, seen, identifier)
    if operation is not None:
        return [_story(store, operation, with_text, now, is_live)]
    values = {"external_id": identifier, "scopes": seen.parameter}
    positions = [row[0] for row in store.connection.execute(TIMELINE.admissions_by_external_id, values)]
    return [_story(store, position, with_text, now, is_live) for position in positions]


def _story(store: SQLiteStore, operation: int, with_text: bool, now: int | None, is_live: Callable[[int], bool] | None) -> Story:
    rows = (EventRow(*row) for row in store.connection.execute(READ.events_of_operation, (operation,)))
    events = [recorded for _, recorded in _decoded(rows)]
    if any(recorded.event is None for recorded in events):
        raise FormatUnknown("the operation has events of a type that this release does not know; install a newer release")
    row = store.connection.execute(READ.repeats, (operation,)).fetchone()
    return story_of(
        events,
        _names_of(store, events, with_text),
        fences=_fences(store, events),
        repeats=0 if row is None else row[0],
        now=now,
        is_live=is_live,
    )


def _fences(store: SQLiteStore, events: Iterable[Recorded]) -> dict[int, str]:
    """Return the fences of grants and claims by position; a claim's may have been granted for an earlier message."""
    fences: dict[int, str] = {}
    lease_id = ""
    for recorded in events:
        match recorded.event:
            case OperationAdmitted(route=route):
                lease_id = lock_id(store.head().journal_key, ROUTE_LOCK, route)
            case LockGranted():
                fences[recorded.position] = _fence(store, recorded.position)
            case OperationClaimed(grant=grant):
                row = store.connection.execute(TIMELINE.grant_at, (lease_id, grant)).fetchone()
                if row is not None:
                    fences[recorded.position] = _fence(store, row[0])
    return fences


def _fence(store: SQLiteStore, position: int) -> str:
    return fence_text(fence_of(store.epoch_at(position), position))


# Statistics.

_TIMED: Final = SETTLED | {"claimed", "delivered"}


def statistics(store: SQLiteStore, reach: Reach) -> Statistics:
    """Return counts and latencies, summed over the scopes in reach."""
    values = {"scopes": seen_by(store, reach).parameter}
    return Statistics(
        totals=tuple(_measured(*row) for row in store.connection.execute(TIMELINE.statistics_totals, values)),
        hours=tuple(_measured(*row) for row in store.connection.execute(TIMELINE.statistics_by_hour, values)),
    )


def _measured(hour: int | None, connection: str, measure: str, count: int, total: int, longest: int) -> Measured:
    timed = measure in _TIMED
    return Measured(
        hour=None if hour is None else instant(hour),
        connection=connection,
        measure=measure,
        count=count,
        mean=timedelta(microseconds=total // count) if timed else None,
        longest=timedelta(microseconds=longest) if timed else None,
    )
