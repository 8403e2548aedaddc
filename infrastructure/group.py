"""What the commands of one group stand on."""

from __future__ import annotations

import os
from collections.abc import Callable

from counterfoil.domain.decision import Context
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import Clockwork

from .caches import Caches, Store
from .changes import Changes
from .clock import Clock
from .rows import Head


class Group:
    """What is stored, what is cached and what the group changes, at one time in one opening."""

    def __init__(
        self,
        *,
        store: Store,
        caches: Caches,
        head: Head,
        opening_id: int,
        clock: Clock,
        limits: Limits,
        is_live: Callable[[int], bool],
        keep_inbound: bool,
    ) -> None:
        self.store = store
        self.caches = caches
        self.changes = Changes()
        self.head = head
        self.limits = limits
        self.keep_inbound = keep_inbound
        self.opening_id = opening_id
        self._clock = clock
        self._is_live = is_live
        self.look_at_clocks()

    def look_at_clocks(self) -> None:
        """Take the time: once for a group, and again after what may have taken long."""
        clock = self._clock
        self.wall = clock.now()
        """The wall clock, which identities go by."""
        self.now = max(self.wall, self.head.recorded_at + 1)
        """The journal's clock, which never runs backwards along positions."""
        world = Clockwork(self.opening_id, clock.boot_id(), clock.boot(), self._is_live)
        self.context = Context(self.now, world, lambda: os.urandom(32), self.limits)
