"""Bringing projections to the head: for good in a writer's transaction, or for one snapshot of a reader."""

from __future__ import annotations

from typing import Any, Final

from counterfoil.domain.errors import JournalDamaged
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Projection

from ..catching_up import fold_rows
from .rows_of_projections import sql_of
from .store import APPEND, SQLiteStore

PAGE: Final = 1_000
"""Events that are folded at a time."""


def catch_up(store: SQLiteStore, upto: int) -> None:
    """Fold what others appended without folding it into the projections that this release has."""
    positions = store.projections()
    for projection in BUILT_IN:
        position = positions.get((projection.NAME, projection.VERSION))
        if position is None:
            for statement in sql_of(projection).create:
                store.connection.execute(statement)
            store.connection.execute(APPEND.add_projection, (projection.NAME, projection.VERSION))
        _fold_gap(store, projection, position or 0, upto)
    store.move_projections(upto)


def catch_up_aside(store: SQLiteStore) -> None:
    """
    Fold the gap of projections that lag into temporary tables, which hide the stored ones from this connection until its
    rollback.
    """
    upto, positions = store.head().position, store.projections()
    if all(positions.get((projection.NAME, projection.VERSION), 0) >= upto for projection in BUILT_IN):
        return
    for projection in BUILT_IN:
        position = positions.get((projection.NAME, projection.VERSION))
        if position == upto:
            continue
        store.connection.execute(sql_of(projection).create_aside)
        if position is not None:
            store.connection.execute(sql_of(projection).fill_aside)
        _fold_gap(store, projection, position or 0, upto)


def _fold_gap(store: SQLiteStore, projection: Projection[Any], position: int, upto: int) -> None:
    """Fold the events after `position` into a projection's table, a page at a time."""
    while position < upto:
        events = store.events_after(position, PAGE)
        if not events:
            raise JournalDamaged(f"the history ends at position {position}, before its head at {upto}; restore a backup")
        changed = fold_rows(projection, (event.recorded for event in events), store.row)
        store.write_rows([(projection, changed.items())])
        position = events[-1].position
