"""A place in the line of a lock's key: a row of a living opening, not an event."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.hold import Terms


class Place(NamedTuple):
    """Somebody waits for a key."""

    place: int
    """Orders the line: first come, first served, whatever process it came from."""
    lease_id: str
    opening_id: int
    token: bytes
    """Names the asking; the lease that comes of it has the same."""
    lock: str
    ttl: int
    max_hold: int | None
    lock_delay: int | None
    asked_at: int
    """The journal's clock, in microseconds since 1970."""
    offered_until: int | None
    """
    Until when the free key is kept for this place, in nanoseconds of the shared clock; None while the key is not free, and 0
    since its opening let an offer pass.
    """

    def may_take(self, now: int) -> bool:
        """Tell whether it has not been offered the key, or still is."""
        return self.offered_until is None or now < self.offered_until

    @property
    def terms(self) -> Terms:
        return Terms(self.lock, self.ttl, self.max_hold, self.lock_delay)

    def __repr__(self) -> str:
        return f"Place({self.place})"
