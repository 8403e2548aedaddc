"""What the caches of an opening still know after others have appended: everything but what those events have touched."""

from __future__ import annotations

from collections.abc import Iterable
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

MOST: Final = 2_000
"""Events of others up to which it is cheaper to look at each than to forget everything."""
_QUEUED: Final = (OperationAdmitted.TYPE, EntryPutBack.TYPE)
_MOVED: Final = (
    OperationClaimed.TYPE,
    OperationSettled.TYPE,
    OperationAbandoned.TYPE,
    OperationExecutionUnknown.TYPE,
    EntrySteppedOver.TYPE,
)


def evict(caches: Caches, rows: Iterable[EventRow]) -> None:
    """Drop what events of others have changed."""
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
        for projection in BUILT_IN:
            if not projection.AGGREGATED and any(row.type == cls.TYPE for cls in projection.EVENTS):
                key = projection.key(recorded)
                if key is not None:
                    caches.rows[projection.NAME].evict(key)
    if moved:
        for route, queue in list(caches.queues.committed.items()):
            if queue is not None and any(entry.operation in moved for entry in queue.entries):
                caches.queues.evict(route)
        caches.forget_work()
