"""statistics: counts and latencies by hour, connection and what happened."""

from __future__ import annotations

from typing import Final, NamedTuple

from counterfoil.domain.event import Event, Recorded
from counterfoil.domain.operation import (
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
)

from .projection import Key, Projection

HOUR = 3_600_000_000

_MEASURES: Final[dict[type[Event], str]] = {
    OperationAdmitted: "admitted",
    OperationRepeated: "repeated",
    OperationClaimed: "claimed",
    OperationLateRefused: "late_refused",
    OperationAbandoned: "abandoned",
    OperationExecutionUnknown: "execution_unknown",
    ReplyDelivered: "delivered",
    ReplyDeliveryFailed: "delivery_failed",
    ReplyDeliveryUnknown: "delivery_unknown",
    ReplyResendClaimed: "resend_claimed",
}


class StatisticsRow(NamedTuple):
    hour: int
    """Microseconds since 1970 at which the hour begins."""
    scope_id: bytes
    connection: str
    measure: str
    events: int
    total_us: int
    """Sum of the latencies: from admission to claim or delivery, from claim to settlement; 0 for what has none."""
    longest_us: int


def measure_of(recorded: Recorded) -> str:
    """Return the word under which an event is counted."""
    event = recorded.event
    return event.outcome if isinstance(event, OperationSettled) else _MEASURES[type(event) if event else Event]


def latency_of(recorded: Recorded) -> int:
    """Return how long this step took, in microseconds."""
    event = recorded.event
    if isinstance(event, OperationClaimed | ReplyDelivered):
        return recorded.recorded_at - event.admitted_at
    if isinstance(event, OperationSettled) and event.claimed_at is not None:
        return recorded.recorded_at - event.claimed_at
    return 0


class Statistics(Projection[StatisticsRow]):
    NAME = "statistics"
    VERSION = 1
    ROW = StatisticsRow
    AGGREGATED = True
    KEY_COLUMNS = 4
    EVENTS = (*_MEASURES, OperationSettled)

    def key(self, recorded: Recorded) -> Key | None:
        header = recorded.header
        return (recorded.recorded_at // HOUR * HOUR, header.scope_id, header.connection, measure_of(recorded))

    def fold(self, row: StatisticsRow | None, recorded: Recorded) -> StatisticsRow | None:
        header, latency = recorded.header, latency_of(recorded)
        if row is None:
            assert header.scope_id is not None and header.connection is not None
            hour = recorded.recorded_at // HOUR * HOUR
            return StatisticsRow(hour, header.scope_id, header.connection, measure_of(recorded), 1, latency, latency)
        return StatisticsRow(
            row.hour,
            row.scope_id,
            row.connection,
            row.measure,
            row.events + 1,
            row.total_us + latency,
            max(row.longest_us, latency),
        )
