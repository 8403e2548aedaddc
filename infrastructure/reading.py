"""
What is read of a journal for people and programs: what is unresolved, the timeline, the story of a message, the statistics.

Each function reads through one store, in the snapshot that its caller holds. What is outside of the reach is a miss. Who may ask,
and that showing text is recorded, is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from counterfoil.domain.errors import FormatUnknown, InvalidValue, JournalDamaged
from counterfoil.domain.event import Recorded, UnknownEvent
from counterfoil.domain.identity import Reach, instant_of
from counterfoil.domain.ids import ROUTE_LOCK, lock_id
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import LockGranted, fence_of, fence_text
from counterfoil.domain.operation import OPERATION_PREFIX, OperationAdmitted, OperationClaimed
from counterfoil.projections import statistics as statistics_projection
from counterfoil.projections.story import Story, story_of
from counterfoil.projections.timeline import SETTLED, Names, TimelineEntry, TimelineFilter, entry_of
from counterfoil.projections.unresolved import UnresolvedRow

from .pages import Page as Page
from .pages import cursor_position, page_limit
from .remembering import text_of
from .rows import EventRow
from .seen import TIMELINE, is_id, seen_by, visible_operation
from .store import READ, Store
from .timeline_query import TimelineQuery


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
    """
    The opening that has it in hand: in whose queue an accepted operation waits (None when it was stepped over), that claimed an
    executing one, or that was to send a pending reply.
    """
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


# Unresolved.


def unresolved(
    store: Store,
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
    rows = [(UnresolvedRow(*row), holder) for *row, holder in store.rows(TIMELINE.unresolved, values)]
    shown = tuple(_unresolved(row, holder, now, is_live) for row, holder in rows[:most])
    return Page(shown, str(rows[most - 1][0].operation) if len(rows) > most else None)


def _unresolved(row: UnresolvedRow, holder: int | None, now: int, is_live: Callable[[int], bool] | None) -> UnresolvedOperation:
    return UnresolvedOperation(
        operation_id=row.operation_id,
        connection=row.connection,
        state=row.state,
        reply_state=row.reply_state,
        attempts=row.attempts,
        version=row.version,
        admitted_at=instant_of(row.admitted_at),
        updated_at=instant_of(row.updated_at),
        age=timedelta(microseconds=max(0, now - row.admitted_at)),
        holder=holder,
        holder_alive=None if holder is None or is_live is None else is_live(holder),
    )


# Timeline.


def timeline(
    store: Store,
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
    if not isinstance(where, TimelineFilter):
        raise InvalidValue(f"filter must be a TimelineFilter, not {type(where).__name__}")
    most, cursor = page_limit(limit, limits), cursor_position(after)
    query = TimelineQuery(store, seen_by(store, reach), where)
    rows = query.rows(most + 1, cursor, newest_first)
    shown = _decoded(rows[:most])
    names = _names_of(store, (recorded for _, recorded in shown), with_text)
    entries = tuple(entry_of(recorded, row.type, names) for row, recorded in shown)
    return Page(entries, str(rows[most - 1].position) if len(rows) > most else None)


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


def _names_of(store: Store, events: Iterable[Recorded], with_text: bool) -> Names:
    """Look up what a stretch of events needs to be shown, each thing once."""
    subjects: dict[bytes, str | None] = {}
    operations: dict[int, str | None] = {}
    external: dict[int, str | None] = {}
    events = list(events)
    texts = store.texts([recorded.position for recorded in events]) if with_text else {}
    for recorded in events:
        header, position = recorded.header, recorded.position
        for pseudonym in (header.conversation, header.thread, header.actor):
            if pseudonym is not None and pseudonym not in subjects:
                subjects[pseudonym] = store.subject(pseudonym)
        external[position] = store.external_id(position)
        if recorded.originator_id.startswith(OPERATION_PREFIX):
            operations[position if header.operation is None else header.operation] = recorded.originator_id
        elif header.operation is not None and header.operation not in operations:
            operations[header.operation] = store.originator_at(header.operation)
        if header.operation is not None and header.operation not in external:
            external[header.operation] = store.external_id(header.operation)
    return Names(
        _present(subjects),
        _present(operations),
        _present(external),
        {position: text_of(body) for position, body in texts.items()},
    )


K = TypeVar("K")


def _present(values: dict[K, str | None]) -> dict[K, str]:
    return {key: value for key, value in values.items() if value is not None}


# Explain.


def explain(
    store: Store,
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
    if not is_id(identifier):
        return []
    seen = seen_by(store, reach)
    operation = visible_operation(store, seen, identifier)
    if operation is not None:
        return [_story(store, operation, with_text, now, is_live)]
    values = {"external_id": identifier, "scopes": seen.parameter}
    positions = [row[0] for row in store.rows(TIMELINE.admissions_by_external_id, values)]
    return [_story(store, position, with_text, now, is_live) for position in positions]


def _story(store: Store, operation: int, with_text: bool, now: int | None, is_live: Callable[[int], bool] | None) -> Story:
    rows = (EventRow(*row) for row in store.rows(READ.events_of_operation, {"operation": operation}))
    events = [recorded for _, recorded in _decoded(rows)]
    if any(recorded.event is None for recorded in events):
        raise FormatUnknown("the operation has events of a type that this release does not know; install a newer release")
    row = store.one(READ.repeats, (operation,))
    return story_of(
        events,
        _names_of(store, events, with_text),
        fences=_fences(store, events),
        repeats=0 if row is None else row[0],
        now=now,
        is_live=is_live,
    )


def _fences(store: Store, events: Iterable[Recorded]) -> dict[int, str]:
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
                row = store.one(TIMELINE.grant_at, (lease_id, grant))
                if row is not None:
                    fences[recorded.position] = _fence(store, row[0])
    return fences


def _fence(store: Store, position: int) -> str:
    return fence_text(fence_of(store.epoch_at(position), position))


# Statistics.

STATISTICS: Final = statistics_projection.Statistics()
_TIMED: Final = SETTLED | {"claimed", "delivered"}


def statistics(store: Store, reach: Reach) -> Statistics:
    """Return counts and latencies, summed over the scopes in reach."""
    values = {"scopes": seen_by(store, reach).parameter, **store.pending(STATISTICS)}
    return Statistics(
        totals=tuple(_measured(*row) for row in store.rows(TIMELINE.statistics_totals, values)),
        hours=tuple(_measured(*row) for row in store.rows(TIMELINE.statistics_by_hour, values)),
    )


def _measured(hour: int | None, connection: str, measure: str, count: int, total: int, longest: int) -> Measured:
    timed = measure in _TIMED
    return Measured(
        hour=None if hour is None else instant_of(hour),
        connection=connection,
        measure=measure,
        count=count,
        mean=timedelta(microseconds=total // count) if timed else None,
        longest=timedelta(microseconds=longest) if timed else None,
    )
