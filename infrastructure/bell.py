"""What an opening hears of others that ring for it."""

from __future__ import annotations

from typing import Protocol


class Bell(Protocol):
    """Heard by one thread; rung, and interrupted, by any."""

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """Wait for a message, an interruption or the timeout, and return the messages that are there."""

    def interrupt(self) -> None:
        """Have `hear` return now, or the next time at once; never blocks."""

    def close(self) -> None:
        """Hear nothing more; closing again does nothing."""
