"""
Folding events into projections after they were appended.

Those that gather what many conversations do are always folded so, in slices; the others only when somebody has appended who does
not fold them, because it has another version of them, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from counterfoil.domain.event import Recorded
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from ..catching_up import fold_rows
from ..statements import Names, statements
from .gaps import SLICE, folded_by
from .projection_tables import sql_of
from .record import FOLDS, INLINE
from .store import PostgresStore
from .unfolded import Unfolded

FOLD: Final = statements("postgres/fold.sql")

AGGREGATED: Final = tuple(projection for projection in BUILT_IN if projection.AGGREGATED)
_TYPES: Final = frozenset(cls.TYPE for projection in AGGREGATED for cls in projection.EVENTS)
CALLS: Final = Names("calls")


def fold_slice(store: PostgresStore, own: Unfolded) -> bool:
    """Fold a slice of the history into the aggregated projections that nobody else folds; tell whether there is more."""
    with store.connection.transaction():
        store.connection.execute(FOLD.unsynced)
        locked = {projection: _locked(store, projection, FOLD.lock_free) for projection in AGGREGATED}
        folded = {projection: row[0] for projection, row in locked.items() if row is not None}
        if not folded:
            return False
        after = min(folded.values())
        events, upto, more = _slice_of_own(own, after) or _slice_of_all(store, after)
        for projection, position in folded.items():
            if upto > position:
                _advance(store, projection, (event for event in events if event.position > position), upto)
    return more


_Slice: TypeAlias = tuple[list[Recorded], int, bool]
"""Events, up to which position they go, and whether there may be more."""


def _slice_of_own(own: Unfolded, after: int) -> _Slice | None:
    events = own.above(after)
    return None if events is None else (events, events[-1].position, len(events) == SLICE)


def _slice_of_all(store: PostgresStore, after: int) -> _Slice:
    rows = store.events_after(after, SLICE)
    events = [row.recorded for row in rows if row.type in _TYPES]
    return events, rows[-1].position if rows else after, len(rows) == SLICE


def catch_up(store: PostgresStore) -> None:
    """Bring the projections that are folded by each append to the head, from where they lag."""
    for projection in INLINE:
        while _fold(store, projection):
            pass


def is_behind(store: PostgresStore) -> bool:
    """Tell whether a projection that each append folds was left behind by somebody who does not."""
    row = store.one(CALLS.behind, {"folds": FOLDS})
    return row is not None and bool(row[0])


def catch_up_aside(store: PostgresStore) -> None:
    """Bring the projections that are folded by each append to the head in temporary tables, which hide the stored ones."""
    upto, positions = store.head().position, store.projections()
    for projection in BUILT_IN:
        position = upto if projection.AGGREGATED else positions.get((projection.NAME, projection.VERSION), upto)
        for statement in sql_of(projection, store.schema).hide:
            store.connection.execute(statement.encode(), prepare=False)
        while position < upto:
            events = store.events_after(position, SLICE)
            _write(store, projection, fold_rows(projection, folded_by(projection, events), store.row))
            position = events[-1].position


def _fold(store: PostgresStore, projection: Projection[Any]) -> bool:
    """Fold a slice of the history into a projection, unless it is at the head; tell whether more of it is to be folded."""
    with store.connection.transaction():
        store.connection.execute(FOLD.unsynced)
        row = _locked(store, projection, FOLD.lock)
        if row is None or row[0] is None:
            return False
        events = store.events_after(row[0], SLICE)
        if events:
            _advance(store, projection, folded_by(projection, events), events[-1].position)
    if len(events) == SLICE:
        return True
    arrived = store.connection.execute(FOLD.arrive, (projection.NAME, projection.VERSION)).fetchone()
    return arrived is None or not arrived[0]


def _locked(store: PostgresStore, projection: Projection[Any], lock: str) -> Any:
    """Return up to where a projection is folded, in a row that nobody else gets until the transaction ends."""
    return store.connection.execute(lock, (projection.NAME, projection.VERSION)).fetchone()


def _advance(store: PostgresStore, projection: Projection[Any], events: Iterable[Recorded], upto: int) -> None:
    """Fold the events up to a position into a projection that is locked."""
    _write(store, projection, fold_rows(projection, events, store.row))
    store.connection.execute(FOLD.move, (upto, projection.NAME, projection.VERSION))


def _write(store: PostgresStore, projection: Projection[Any], changed: dict[Key, Any | None]) -> None:
    sql = sql_of(projection, store.schema)
    with store.connection.cursor() as cursor:
        if put := [row for row in changed.values() if row is not None]:
            cursor.executemany(sql.put, put)
        if gone := [key for key, row in changed.items() if row is None]:
            cursor.executemany(sql.delete, gone)
