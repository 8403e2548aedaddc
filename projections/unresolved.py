"""unresolved: what still needs attention, one row for each operation that is not resolved."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.event import Recorded
from counterfoil.domain.operation import (
    TEXT_ERASED,
    EntryPutBack,
    EntrySteppedOver,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationLateRefused,
    OperationRepeated,
    OperationSettled,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyResendClaimed,
    ReplyStaged,
)

from .projection import Key, Projection


class UnresolvedRow(NamedTuple):
    operation: int
    operation_id: str
    scope_id: bytes
    connection: str
    state: str
    reply_state: str
    attempts: int
    version: int
    admitted_at: int
    updated_at: int
    claimed_by: int | None


class Unresolved(Projection[UnresolvedRow]):
    """Accepted and executing operations, and settled ones whose reply is pending, unknown or failed."""

    NAME = "unresolved"
    VERSION = 1
    ROW = UnresolvedRow
    POSITIONS = ("operation",)
    TIMES = ("admitted_at", "updated_at")
    EVENTS = (
        OperationAdmitted,
        OperationRepeated,
        OperationClaimed,
        OperationSettled,
        OperationLateRefused,
        OperationAbandoned,
        OperationExecutionUnknown,
        EntrySteppedOver,
        EntryPutBack,
        ReplyStaged,
        ReplyResendClaimed,
        ReplyDelivered,
        ReplyDeliveryFailed,
        ReplyDeliveryUnknown,
    )
    BEGIN = (OperationAdmitted,)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.position if recorded.header.operation is None else recorded.header.operation,)

    def fold(self, row: UnresolvedRow | None, recorded: Recorded) -> UnresolvedRow | None:
        event, header = recorded.event, recorded.header
        if isinstance(event, OperationAdmitted):
            assert header.scope_id is not None and header.connection is not None
            return UnresolvedRow(
                operation=recorded.position,
                operation_id=recorded.originator_id,
                scope_id=header.scope_id,
                connection=header.connection,
                state="accepted",
                reply_state="none",
                attempts=0,
                version=recorded.originator_version,
                admitted_at=recorded.recorded_at,
                updated_at=recorded.recorded_at,
                claimed_by=None,
            )
        if row is None:
            return None
        row = row._replace(version=recorded.originator_version, updated_at=recorded.recorded_at)
        match event:
            case OperationClaimed():
                return row._replace(state="executing", claimed_by=header.opening_id)
            case OperationSettled(outcome=outcome, replied=replied):
                return row._replace(state=outcome) if replied else None
            case OperationAbandoned() | OperationExecutionUnknown():
                return None
            case ReplyStaged():
                return row._replace(reply_state="pending", attempts=1)
            case ReplyResendClaimed(attempt=attempt):
                return row._replace(reply_state="pending", attempts=attempt)
            case ReplyDelivered():
                return None
            case ReplyDeliveryFailed(attempt=attempt, reason=reason) if attempt == row.attempts:
                if reason == TEXT_ERASED and header.actor_kind == "operator":
                    return None
                return row._replace(reply_state="delivery_failed")
            case ReplyDeliveryUnknown(attempt=attempt) if attempt == row.attempts:
                return row._replace(reply_state="delivery_unknown")
        return row
