"""Folding a stretch of the history into the rows of one projection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from counterfoil.domain.event import Recorded
from counterfoil.projections.projection import Key, Projection

RowOf: TypeAlias = Callable[[Projection[Any], Key], Any | None]


def fold_rows(projection: Projection[Any], events: Iterable[Recorded], row_of: RowOf) -> dict[Key, Any | None]:
    """Return the rows that the events change, by key; None where a row goes. `row_of` gives the rows from before."""
    changed: dict[Key, Any | None] = {}
    for recorded in events:
        if not isinstance(recorded.event, projection.EVENTS):
            continue
        key = projection.key(recorded)
        if key is not None:
            changed[key] = projection.fold(changed[key] if key in changed else row_of(projection, key), recorded)
    return changed
