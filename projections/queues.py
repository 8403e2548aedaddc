"""queues: the entries of every route, waiting or running, in order of their places."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.event import Recorded
from counterfoil.domain.operation import (
    EntryPutBack,
    EntrySteppedOver,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationSettled,
)
from counterfoil.domain.route import Entry

from .projection import Key, Projection


class QueueRow(NamedTuple):
    operation: int
    operation_id: str
    route: str
    place: int
    opening_id: int
    entered_at: int
    grant_version: int | None
    claimed_by: int | None

    @property
    def entry(self) -> Entry:
        return Entry(
            self.operation, self.operation_id, self.place, self.opening_id, self.entered_at, self.grant_version, self.claimed_by
        )


class Queues(Projection[QueueRow]):
    """One row for each entry; it leaves when its operation is settled, abandoned, unknown or stepped over."""

    NAME = "queues"
    VERSION = 1
    ROW = QueueRow
    POSITIONS = ("operation", "place")
    TIMES = ("entered_at",)
    INDEXES = (("route", "place"), ("opening_id",))
    EVENTS = (
        OperationAdmitted,
        EntryPutBack,
        OperationClaimed,
        OperationSettled,
        OperationAbandoned,
        OperationExecutionUnknown,
        EntrySteppedOver,
    )
    BEGIN = (OperationAdmitted,)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.position if recorded.header.operation is None else recorded.header.operation,)

    def fold(self, row: QueueRow | None, recorded: Recorded) -> QueueRow | None:
        event, header = recorded.event, recorded.header
        if isinstance(event, OperationAdmitted | EntryPutBack):
            assert header.opening_id is not None
            return QueueRow(
                operation=recorded.position if header.operation is None else header.operation,
                operation_id=recorded.originator_id,
                route=event.route,
                place=recorded.position,
                opening_id=header.opening_id,
                entered_at=recorded.recorded_at,
                grant_version=None,
                claimed_by=None,
            )
        if isinstance(event, OperationClaimed) and row is not None:
            return row._replace(grant_version=event.grant, claimed_by=header.opening_id)
        return None
