"""What a host needs to test against a journal: a clock that stands until it is moved."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from counterfoil.domain.duration import microseconds
from counterfoil.domain.errors import InvalidValue

__all__ = ["MovableClock"]

_START: Final = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC
_SINCE_BOOT: Final = 3_600_000_000_000


class MovableClock:
    """
    A clock that stands until a test moves it.

    It starts at 2026-01-01 00:00 UTC, one hour after its first boot. Durations are a `timedelta` or text like
    `30s`, and never negative; `InvalidValue` otherwise.
    """

    def __init__(self, *, now: int = _START, boot_id: str = "boot-1") -> None:
        self._now = now
        self._boot = _SINCE_BOOT
        self._boot_id = boot_id

    def now(self) -> int:
        """Return the wall clock, in microseconds since 1970 UTC."""
        return self._now

    def boot(self) -> int:
        """Return the steady clock, in nanoseconds since the last boot."""
        return self._boot

    def boot_id(self) -> str:
        """Return the name of this boot."""
        return self._boot_id

    def advance(self, duration: timedelta | str) -> None:
        """Let time pass: both clocks go on."""
        passed = _forward(duration)
        self._now += passed
        self._boot += passed * 1000

    def set_back(self, duration: timedelta | str) -> None:
        """Set the wall clock back; no time passes."""
        self._now -= _forward(duration)

    def set_forward(self, duration: timedelta | str) -> None:
        """Set the wall clock forward; no time passes."""
        self._now += _forward(duration)

    def reboot(self, boot_id: str) -> None:
        """Start the machine again under this name: the steady clock is nought, the wall clock goes on."""
        self._boot = 0
        self._boot_id = boot_id


def _forward(duration: timedelta | str) -> int:
    value = microseconds(duration, name="duration")
    if value < 0:
        raise InvalidValue("duration must not be negative")
    return value
