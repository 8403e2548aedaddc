"""What the stored rows of a projection lack that is folded after the appends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from counterfoil.domain.event import Recorded
from counterfoil.projections.projection import Key, Projection

from ..catching_up import fold_rows
from ..rows import EventRow
from ..store import Store

SLICE: Final = 500
"""Events that are folded at once."""


def gap_of(store: Store, projection: Projection[Any]) -> dict[Key, Any | None]:
    """Return the rows that the events change into which a projection was not folded yet, by key; None where one goes."""
    upto = store.head().position
    position = store.projections().get((projection.NAME, projection.VERSION), upto)
    changed: dict[Key, Any | None] = {}

    def row_of(projection: Projection[Any], key: Key) -> Any | None:
        return changed[key] if key in changed else store.row(projection, key)

    while position < upto:
        events = store.events_after(position, SLICE)
        changed |= fold_rows(projection, folded_by(projection, events), row_of)
        position = events[-1].position
    return changed


def folded_by(projection: Projection[Any], rows: Iterable[EventRow]) -> Iterator[Recorded]:
    """Decode those events that a projection folds; the others are nothing to it."""
    types = {cls.TYPE for cls in projection.EVENTS}
    return (row.recorded for row in rows if row.type in types)
