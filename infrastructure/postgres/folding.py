"""
Folding events into projections after they were appended.

Those that gather what many conversations do are always folded so, in slices; the others only when somebody has appended who does
not fold them, because it has another version of them, or none.
"""

from __future__ import annotations

from typing import Any, Final

from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from ..catching_up import fold_rows
from ..statements import Names, statements
from .gaps import SLICE, folded_by
from .projection_tables import sql_of
from .record import FOLDS, INLINE
from .store import PostgresStore

FOLD: Final = statements("postgres/fold.sql")

AGGREGATED: Final = tuple(projection for projection in BUILT_IN if projection.AGGREGATED)
CALLS: Final = Names("calls")


def fold_slice(store: PostgresStore) -> bool:
    """Fold a slice of the history into each aggregated projection, unless somebody else does; tell whether there is more."""
    more = [_fold(store, projection, FOLD.lock_free) for projection in AGGREGATED]
    return any(more)


def catch_up(store: PostgresStore) -> None:
    """Bring the projections that are folded by each append to the head, from where they lag."""
    for projection in INLINE:
        while _fold(store, projection, FOLD.lock):
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


def _fold(store: PostgresStore, projection: Projection[Any], lock: str) -> bool:
    """Fold a slice of the history into a projection, unless it is at the head; tell whether more of it is to be folded."""
    connection, identity = store.connection, (projection.NAME, projection.VERSION)
    with connection.transaction():
        connection.execute(FOLD.unsynced)
        row = connection.execute(lock, identity).fetchone()
        if row is None or row[0] is None:
            return False
        events = store.events_after(row[0], SLICE)
        if events:
            _write(store, projection, fold_rows(projection, folded_by(projection, events), store.row))
            connection.execute(FOLD.move, (events[-1].position, *identity))
    if len(events) == SLICE:
        return True
    if projection.AGGREGATED:
        return False
    arrived = connection.execute(FOLD.arrive, identity).fetchone()
    return arrived is None or not arrived[0]


def _write(store: PostgresStore, projection: Projection[Any], changed: dict[Key, Any | None]) -> None:
    sql = sql_of(projection, store.schema)
    with store.connection.cursor() as cursor:
        if put := [row for row in changed.values() if row is not None]:
            cursor.executemany(sql.put, put)
        if gone := [key for key, row in changed.items() if row is None]:
            cursor.executemany(sql.delete, gone)
