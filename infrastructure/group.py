"""What the commands of one group stand on."""

from __future__ import annotations

import os

from counterfoil.domain.decision import Context
from counterfoil.domain.limits import Limits

from .caches import Caches
from .changes import Changes
from .clocks import Clocks
from .rows import Head
from .store import Store


class Group:
    """What is stored, what is cached and what the group changes, at one time in one opening."""

    def __init__(
        self,
        *,
        store: Store,
        caches: Caches,
        head: Head,
        opening_id: int,
        clocks: Clocks,
        limits: Limits,
        keep_inbound: bool,
        ahead: bool = False,
    ) -> None:
        self.store = store
        self.caches = caches
        self.changes = Changes()
        self.head = head
        self.limits = limits
        self.keep_inbound = keep_inbound
        self.ahead = ahead
        """Whether it is decided ahead of its append."""
        self.opening_id = opening_id
        self._clocks = clocks
        self.now = self._stamp()
        """The journal's clock, which never runs backwards along positions."""
        self.look_at_clocks()

    def look_at_clocks(self) -> None:
        """Take the time: once for a group, and again after what may have taken long."""
        self.wall = self._clocks.wall()
        """The wall clock, which identities go by."""
        if not self.ahead:  # from a provisional now on all times are provisional, so that stays
            self.now = self._stamp()
        self.context = Context(self.now, self._clocks.world(self.opening_id), lambda: os.urandom(32), self.limits)

    def _stamp(self) -> int:
        return max(self._clocks.stamps(), self.head.recorded_at + 1)
