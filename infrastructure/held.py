"""A lease as its holder sees it, whatever the colour of its journal."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from counterfoil.domain.errors import LeaseLost
from counterfoil.domain.hold import Terms
from counterfoil.domain.lock import LossReason, fence_text

from .commands.holds import Granted, ReleaseKey
from .commands.leases import Renewed, Ticket

if TYPE_CHECKING:
    from .core import Core


class HeldLease:
    """
    A lease that was granted. It lasts its ttl from its last renewal, and `max_hold` from its grant at the longest.

    `lock`, `key` (as text) and `fence` tell what it is. The fence is larger than every one given before, over all locks.
    """

    def __init__(self, core: Core, terms: Terms, key: str, granted: Granted) -> None:
        self._journal = core
        self.lock = terms.lock
        self.key = key
        self.fence = granted.fence
        self.lease_id = granted.lease_id
        self.token = granted.token
        self.ttl = terms.ttl
        self.at = granted.at
        self.due = 0.0
        self._ends = granted.ends
        self._pid = os.getpid()
        self._letting_go = False
        self._reason: LossReason | None = None
        self.on_loss: Callable[[], None] | None = None
        """What is called, once, when the lease is lost while it is kept."""

    @property
    def fence_text(self) -> str:
        """The fence with 40 digits: as text it sorts as the number does, so a database can compare it."""
        return fence_text(self.fence)

    @property
    def remaining(self) -> timedelta:
        """How long it lasts from now on unless it is renewed; nothing once it is lost or let go."""
        if self.reason is not None:
            return timedelta(0)
        return timedelta(microseconds=max(0, self.at - self._journal.clock.boot()) // 1_000)

    def check(self) -> None:
        """
        Raise `LeaseLost` unless the lease stands, as far as this process knows; costs a look at the clock.

        What another process does to it is heard within a moment, and known for certain only inside a guarded transaction.
        """
        self._journal.refuse_in_child()
        if self.reason is not None:
            raise self.loss()

    @property
    def reason(self) -> LossReason | None:
        """Why it is no longer held; None while it is. Out of time is out of time, whether or not anybody took the key."""
        if self._reason is None and self._journal.clock.boot() >= self.at:
            self._reason = "max_hold" if self._ends is not None and self.at >= self._ends else "ttl"
        return self._reason

    @property
    def is_in_the_way(self) -> bool:
        """Whether whoever holds it would wait for itself if it asked for the key; nothing of a forked parent's is."""
        return self.reason is None and not self._letting_go and os.getpid() == self._pid

    def loss(self) -> LeaseLost:
        """Return what to raise for a lease that is no longer held."""
        return LeaseLost(self._reason or "released", lock=self.lock, lease_id=self.lease_id, key=self.key)

    # What the journal answers.

    @property
    def ticket(self) -> Ticket:
        """What it is renewed and released by."""
        return Ticket(self.lease_id, self.token, self.fence)

    def let_go(self) -> ReleaseKey:
        """Return the command that releases it; the answer goes to `released`."""
        self._letting_go = True
        return ReleaseKey(self.ticket)

    def released(self, reason: LossReason | None) -> bool:
        """Take in the answer to a release: it is not held from now on; tell whether it was until then."""
        self._reason = self._reason or reason or "released"
        return reason is None

    def extended(self, renewed: Renewed) -> None:
        """Take in the answer to a renewal of this lease alone; raises `LeaseLost` when it was not renewed."""
        at = renewed.standing.get(self.token)
        if at is None:
            self._reason = self._reason or renewed.lost[self.token]
            raise self.loss()
        self.at = at

    # What its keeper tells it.

    def renewed(self, at: int) -> None:
        """It runs out then, in nanoseconds of the boot clock."""
        self.at = at

    def passed(self) -> None:
        """Its deadline has passed."""
        self._tell()

    def lost(self, reason: LossReason) -> None:
        """It has ended in the journal."""
        self._reason = self._reason or reason
        self._tell()

    def _tell(self) -> None:
        """What was let go is not lost."""
        if self.reason not in (None, "released") and self.on_loss is not None:
            self.on_loss()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lock={self.lock!r}, fence={self.fence})"
