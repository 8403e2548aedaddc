"""Loading what a group is about to read, of each kind in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import fold
from counterfoil.domain.route import Queue
from counterfoil.projections.bindings import Bindings
from counterfoil.projections.leases import Leases
from counterfoil.projections.projection import Projection
from counterfoil.projections.queues import QueueRow

from ..caches import Caches
from ..layered import Layered
from ..needs import Needs
from ..rows import EventRow
from ..statements import Names
from .projection_tables import sql_of
from .store import PostgresStore

LOAD: Final = Names("load")
_BINDINGS: Final = Bindings()
_LEASES: Final = Leases()


def load(store: PostgresStore, caches: Caches, needs: Needs) -> None:
    """Put what is needed into the caches; what is not there is known to be absent."""
    if needs.operations:
        events = (EventRow(*row) for row in store.rows(LOAD.streams, {"ids": list(needs.operations)}))
        streams = {key: fold(row.recorded for row in rows) for key, rows in groupby(events, lambda row: row.originator_id)}
        _fill(caches.operations, needs.operations, streams)
    if needs.queues:
        rows = [QueueRow(*row) for row in store.rows(LOAD.queues, {"routes": list(needs.queues)})]
        queues = {route: Queue(route, tuple([row.entry for row in entries])) for route, entries in groupby(rows, _route)}
        _fill(caches.queues, needs.queues, {route: queues.get(route, Queue(route)) for route in needs.queues})
    if needs.bindings:
        _load_rows(store, caches, _BINDINGS, needs.bindings)
    if needs.leases:
        _load_rows(store, caches, _LEASES, needs.leases)
        deadlines = (Deadline(*row) for row in store.rows(LOAD.deadlines, {"ids": list(needs.leases)}))
        _fill(caches.deadlines, needs.leases, {deadline.lease_id: deadline for deadline in deadlines})


def _load_rows(store: PostgresStore, caches: Caches, projection: Projection[Any], keys: tuple[str, ...]) -> None:
    found = store.connection.execute(sql_of(projection, store.schema).select_rows, (list(keys),), binary=True)
    rows = {(row[0],): projection.ROW(*row) for row in found}
    _fill(caches.rows[projection.NAME], [(key,) for key in keys], rows)


def _fill(layered: Layered[Any, Any], keys: Iterable[Any], found: Mapping[Any, Any]) -> None:
    for key in keys:
        layered.fill(key, found.get(key))


def _route(row: QueueRow) -> str:
    return row.route
