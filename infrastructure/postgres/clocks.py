"""
The clocks of an opening whose journal is shared by several machines.

Events are stamped by the server's clock. The deadlines of leases go by the clock of their holder's boot, which means nothing on
another machine: there a lease has run out when its renewal number has stood still for its ttl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from counterfoil.domain.lock import Clockwork, Deadline

from ..clock import Clock
from ..clocks import Clocks

SERVER: Final = "server"
"""Names the clock by which those who wait and keys that are held back go."""
SIGHTINGS: Final = 10_000
"""Leases of other machines that are remembered at most; past it the older half is forgotten, and seen anew."""


class ServerClocks(Clocks):
    """The server's clock as it was last heard, carried on by the own steady clock; and what was seen of others' leases."""

    def __init__(self, clock: Clock, is_live: Callable[[int], bool]) -> None:
        super().__init__(clock, is_live)
        self._ahead_ns = clock.now() * 1_000 - clock.boot()
        """How far the server's clock is ahead of the own steady one, in nanoseconds; before it is heard, the host's is."""
        self._sightings: dict[str, tuple[bytes, int, int]] = {}
        """By lease, the token and renewal number that were seen, and since when, in nanoseconds of the own steady clock."""

    def heard(self, server_us: int) -> None:
        """The server's clock shows this now, in microseconds since 1970."""
        self._ahead_ns = server_us * 1_000 - self._clock.boot()

    def stamps(self) -> int:
        return (self._clock.boot() + self._ahead_ns) // 1_000

    def world(self, opening_id: int) -> Clockwork:
        boot = self._clock.boot()
        return Clockwork(
            opening_id, self._clock.boot_id(), boot, self._is_live, (SERVER, boot + self._ahead_ns), self._stands_until
        )

    def _stands_until(self, deadline: Deadline) -> int:
        """Return when a lease of another machine is taken for run out, unless its renewal number moves until then."""
        token, renewal, since = self._sightings.get(deadline.lease_id, (b"", 0, 0))
        if (token, renewal) != (deadline.token, deadline.renewal):
            since = self._clock.boot()
            if len(self._sightings) >= SIGHTINGS:
                for lease_id in list(self._sightings)[: SIGHTINGS // 2]:
                    self._sightings.pop(lease_id, None)
            self._sightings[deadline.lease_id] = (deadline.token, deadline.renewal, since)
        return since + deadline.ttl * 1_000
