"""What the caches of an opening still know after others have appended: everything but what those events have touched."""

from __future__ import annotations

from typing import Final

from counterfoil.domain.event import REGISTRY, Recorded
from counterfoil.domain.operation import (
    OPERATION_PREFIX,
    EntryPutBack,
    EntrySteppedOver,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationSettled,
)
from counterfoil.projections.catalogue import BUILT_IN

from ..caches import Caches
from ..rows import EventRow
from ..statements import Names
from .store import PostgresStore

LOAD: Final = Names("load")
MOST: Final = 5_000
"""Events of others up to which it is cheaper to look at each than to forget everything."""
_QUEUED: Final = (OperationAdmitted.TYPE, EntryPutBack.TYPE)
_MOVED: Final = (
    OperationClaimed.TYPE,
    OperationSettled.TYPE,
    OperationAbandoned.TYPE,
    OperationExecutionUnknown.TYPE,
    EntrySteppedOver.TYPE,
)
_FOLDED: Final = {
    cls.TYPE: tuple(each for each in BUILT_IN if cls in each.EVENTS and not each.AGGREGATED) for cls in REGISTRY.types().values()
}


def refresh(store: PostgresStore, caches: Caches, after: int, upto: int, own: int | None) -> None:
    """
    Drop from the caches what others have changed by the events above a position up to another.

    Those that are of the `own` opening came by hosts' transactions, and may have given it work.
    """
    if upto - after > MOST:
        caches.forget_committed()
    elif upto > after:
        _refresh(store, caches, after, upto, own)


def _refresh(store: PostgresStore, caches: Caches, after: int, upto: int, own: int | None) -> None:
    known = caches.conversations
    touched = []
    for position, conversation, opening_id in store.rows(LOAD.touched, (after, upto)):
        if conversation is None or conversation in known or caches.untied:
            touched.append(position)
        if opening_id == own:
            caches.forget_work()
    if touched:
        _evict(caches, [EventRow(*row) for row in store.rows(LOAD.events, {"positions": touched})])


def _evict(caches: Caches, rows: list[EventRow]) -> None:
    moved: set[int] = set()
    for row in rows:
        if row.originator_id.startswith(OPERATION_PREFIX):
            caches.operations.evict(row.originator_id)
        else:
            caches.deadlines.evict(row.originator_id)
        event = None
        if row.type in _QUEUED:
            event = REGISTRY.decode(row.type, row.type_version, row.state)
            assert isinstance(event, OperationAdmitted | EntryPutBack)
            caches.queues.evict(event.route)
        elif row.type in _MOVED and row.operation is not None:
            moved.add(row.operation)
        recorded = Recorded(*row[:4], row.header, event)
        for projection in _FOLDED.get(row.type, ()):
            key = projection.key(recorded)
            if key is not None:
                caches.rows[projection.NAME].evict(key)
    if moved:
        for route, queue in list(caches.queues.committed.items()):
            if queue is not None and any(entry.operation in moved for entry in queue.entries):
                caches.queues.evict(route)
        caches.forget_work()
