"""How a filter of the timeline is answered: by which access path of the history, along which keys, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final, Literal, TypeAlias

from counterfoil.domain.identity import instant_us
from counterfoil.domain.ids import SubjectKind
from counterfoil.projections.timeline import SETTLED, TYPE_OF_OUTCOME, TimelineFilter

from .pages import LARGEST
from .rows import EventRow
from .seen import TIMELINE, Seen, visible_operation
from .store import Store

HANDFUL: Final = 8
"""How many times more rows of one key of several are read when the last ones were all wanted."""

_ByScope: TypeAlias = dict[bytes, list[bytes]]
"""Pseudonyms by the scope that they belong to."""


class TimelineQuery:
    """
    A filter, resolved to one access path of the journal with its keys, and to what is left to compare.

    An id has a pseudonym in each scope and on each connection, so that it may be several keys; what their scope rules out is not
    compared again.
    """

    def __init__(self, store: Store, seen: Seen, where: TimelineFilter) -> None:
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
            "types": None if types is None else list(types),
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
        """Return the first events in order. Many keys cost a row each, not a page: they are read by the handful and merged."""
        shared = dict(self._shared)
        edge: Literal["after", "before"] = "before" if newest_first else "after"
        if cursor is not None:
            shared[edge] = min(cursor, shared[edge]) if newest_first else max(cursor, shared[edge])
        statement = getattr(TIMELINE, f"{self._path}_newest_first" if newest_first else self._path)

        def follow(way: dict[str, Any]) -> Iterator[EventRow]:
            values, size = shared | way, limit if len(self._ways) == 1 else 1
            while True:
                values["limit"] = size
                handful = [EventRow(*row) for row in self._store.rows(statement, values)]
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
        for pseudonym, scope_id, kind in self._store.rows(TIMELINE.subjects_by_value, values):
            if kind in kinds and self._seen.includes(scope_id):
                found.setdefault(scope_id, []).append(pseudonym)
        return found

    def _first_at(self, microseconds: int) -> int:
        """Return the position of the first event that was recorded at an instant or later; the one after the head if none was."""
        low, high = 1, self._store.head().position + 1
        while low < high:
            middle = (low + high) // 2
            found = self._store.one(TIMELINE.first_at, (middle,))
            assert found is not None  # the head itself
            position, recorded_at = found
            if recorded_at < microseconds:
                low = position + 1
            else:
                high = middle
        return low


def _of_scope(scope_id: bytes, **wanted: _ByScope | None) -> dict[str, _ByScope | None]:
    """Return what is wanted in one scope; an empty list lets nothing through."""
    return {name: None if by_scope is None else {scope_id: by_scope.get(scope_id, [])} for name, by_scope in wanted.items()}


def _way(key: int | bytes | None, scopes: list[bytes] | None, **wanted: _ByScope | None) -> dict[str, Any]:
    """Return the parameters with which a statement follows one key."""
    lists = {name: None if by_scope is None else list(chain(*by_scope.values())) for name, by_scope in wanted.items()}
    return {"key": key, "scopes": scopes, **lists}
