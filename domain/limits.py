"""The limits of a journal and of what runs on it: their defaults, their ranges, and the refusal of anything else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

from .duration import DAY, SECOND, in_words, microseconds
from .errors import InvalidValue

#: name -> (least, most); counts, bytes and days. The hard caps are those of the systems that this continues, but for the two of a
#: process.
COUNTS: Final = {
    "max_input_bytes": (1, 65_536),
    "max_response_bytes": (1, 131_072),
    "max_pending_per_binding": (1, 32),
    "max_pending_per_process": (1, 10_000),
    "max_active_sessions": (1, 1_024),
    "max_routes": (1, 10_000),
    "max_journal_page": (1, 500),
    "max_attachment_bytes": (1, 4_194_304),
    "retention_days": (1, 90),
    "command_id_days": (1, 400),
    "dedup_days": (1, 400),
}
#: name -> (least, most) in microseconds.
DURATIONS: Final = {
    "stop_deadline": (1_000, 300 * SECOND),
    "lease_ttl": (SECOND, 300 * SECOND),
    "approval_ttl": (SECOND, 300 * SECOND),
    "busy_wait": (1_000, 300 * SECOND),
    "max_wait": (1_000, 400 * DAY),
    "max_turn": (1_000, DAY),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    Bound what a journal takes in and what a runtime does at once.

    Counts are whole numbers, durations `timedelta` or text like `30s`. A value outside its range raises `InvalidValue`.
    """

    max_input_bytes: int = 32_768
    """UTF-8 bytes of an inbound text."""
    max_response_bytes: int = 65_536
    """UTF-8 bytes of a reply; a longer one is cut on a code-point boundary and marked, below 13 with a shorter marker."""
    max_pending_per_binding: int = 8
    """Waiting entries of one route, whoever admitted them."""
    max_pending_per_process: int = 100
    """Waiting entries that this opening admitted."""
    max_active_sessions: int = 4
    """Turns that run at once in this process."""
    max_routes: int = 1_000
    """Routes that have work in this process."""
    max_journal_page: int = 100
    """Rows in one page of a list."""
    max_attachment_bytes: int = 1_048_576
    """Declared bytes of the attachments of one event, added up."""
    retention_days: int = 7
    command_id_days: int = 7
    """How long a command id keeps its answer."""
    dedup_days: int = 30
    """How long a platform event is known as a duplicate, counted from its admission."""
    stop_deadline: timedelta | str = "30s"
    """How long `stop` waits for turns that were aborted."""
    lease_ttl: timedelta | str = "30s"
    """How long a route's lease lasts from its last renewal."""
    approval_ttl: timedelta | str = "5m"
    busy_wait: timedelta | str = "5s"
    """How long a command waits for the store before it is `unavailable`."""
    max_wait: timedelta | str = "15m"
    """Age beyond which a waiting entry of an ended opening is stepped over."""
    max_turn: timedelta | str = "1h"
    """How long a turn may run, counted from its claim."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if field.name in COUNTS:
                least, most = COUNTS[field.name]
                if isinstance(value, bool) or not isinstance(value, int):
                    raise InvalidValue(f"{field.name} must be a whole number from {least} to {most}, not {type(value).__name__}")
                if not least <= value <= most:
                    raise InvalidValue(f"{field.name} must be from {least} to {most}, not {value}")
                continue
            least, most = DURATIONS[field.name]
            if not least <= microseconds(value, name=field.name) <= most:
                shown = value if isinstance(value, str) else f"{value.total_seconds():.15g} s"
                raise InvalidValue(f"{field.name} must be from {in_words(least)} to {in_words(most)}, not {shown}")

    def duration(self, name: str) -> int:
        """Return one of the durations in microseconds."""
        return microseconds(getattr(self, name), name=name)
