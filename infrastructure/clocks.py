"""What an opening goes by: the wall clock of its host, the clock that stamps events, and the world of leases."""

from __future__ import annotations

from collections.abc import Callable

from counterfoil.domain.lock import Clockwork

from .clock import Clock


class Clocks:
    """The clocks of an opening on whose machine all openings of its journal are."""

    def __init__(self, clock: Clock, is_live: Callable[[int], bool]) -> None:
        self._clock = clock
        self._is_live = is_live

    def wall(self) -> int:
        """Return the wall clock of the host, which identities go by, in microseconds since 1970."""
        return self._clock.now()

    def stamps(self) -> int:
        """Return the clock that stamps events, in microseconds since 1970."""
        return self._clock.now()

    def world(self, opening_id: int) -> Clockwork:
        """Return what a decision about leases, made by this opening now, needs to know."""
        return Clockwork(opening_id, self._clock.boot_id(), self._clock.boot(), self._is_live)
