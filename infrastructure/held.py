"""A lease as its holder sees it, whatever the colour of its journal; and as the keeper that renews it does."""

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
    """A lease that was granted, until it is known to have ended."""

    def __init__(self, core: Core, terms: Terms, key: str, granted: Granted) -> None:
        self._core = core
        self.lock = terms.lock
        self.key = key
        self.fence = granted.fence
        self.lease_id = granted.lease_id
        self.token = granted.token
        self.ttl = terms.ttl
        self.at = granted.at
        self.due = 0.0
        self.on_loss: Callable[[], None] | None = None
        """What is called, once, when the lease is lost while it is kept."""
        self._ends = granted.ends
        self._pid = os.getpid()
        self._letting_go = False
        self._reason: LossReason | None = None

    @property
    def ticket(self) -> Ticket:
        """What it is renewed and released by."""
        return Ticket(self.lease_id, self.token, self.fence)

    @property
    def reason(self) -> LossReason | None:
        """Why it is no longer held; None while it is. Out of time is out of time, whether or not anybody took the key."""
        if self._reason is None and self._core.clock.boot() >= self.at:
            self._ended("max_hold" if self._ends is not None and self.at >= self._ends else "ttl")
        return self._reason

    @property
    def left_ns(self) -> int:
        """Nanoseconds that it lasts from now on, unless it is renewed."""
        return 0 if self.reason is not None else max(0, self.at - self._core.clock.boot())

    @property
    def is_in_the_way(self) -> bool:
        """Whether whoever holds it would wait for itself if it asked for the key; nothing of a forked parent's is."""
        return self.reason is None and not self._letting_go and os.getpid() == self._pid

    def check(self) -> None:
        """Raise `LeaseLost` unless it stands, as far as this process knows."""
        self._core.refuse_in_child()
        if self.reason is not None:
            raise self.loss()

    def loss(self) -> LeaseLost:
        """Return what to raise for a lease that is no longer held."""
        return LeaseLost(self._reason or "released", lock=self.lock, lease_id=self.lease_id, key=self.key)

    # What the journal answers.

    def let_go(self) -> ReleaseKey:
        """Return the command that releases it; the answer goes to `released`."""
        self._letting_go = True
        return ReleaseKey(self.ticket)

    def released(self, reason: LossReason | None) -> bool:
        """Take in the answer to a release: it is not held from now on; tell whether it was until then."""
        self._ended(reason or "released")
        return reason is None

    def extended(self, renewed: Renewed) -> None:
        """Take in the answer to a renewal of this lease alone; raises `LeaseLost` when it was not renewed."""
        at = renewed.standing.get(self.token)
        if at is None:
            self._ended(renewed.lost[self.token])
            raise self.loss()
        self.at = at

    def _ended(self, reason: LossReason) -> None:
        if self._reason is None:
            self._reason = reason
            self._core.counters["lease_losses"] += reason != "released"

    # What its keeper tells it.

    def renewed(self, at: int) -> None:
        """It runs out then, in nanoseconds of the boot clock."""
        self.at = at

    def passed(self) -> None:
        """Its deadline has passed."""
        self._tell()

    def lost(self, reason: LossReason) -> None:
        """It has ended in the journal."""
        self._ended(reason)
        self._tell()

    def _tell(self) -> None:
        """What was let go is not lost."""
        if self.reason not in (None, "released") and self.on_loss is not None:
            self.on_loss()


class LeaseView:
    """What both colours of a lease show: what it is of, and how it stands."""

    def __init__(self, held: HeldLease) -> None:
        self._held = held

    @property
    def lock(self) -> str:
        """The name of the lock."""
        return self._held.lock

    @property
    def key(self) -> str:
        """The key, as text."""
        return self._held.key

    @property
    def lease_id(self) -> str:
        """What stands for the key in events."""
        return self._held.lease_id

    @property
    def fence(self) -> int:
        """A number of 128 bits, larger than every fence given before, over all locks and keys."""
        return self._held.fence

    @property
    def fence_text(self) -> str:
        """The fence with 40 digits: as text it sorts as the number does, so a database can compare it."""
        return fence_text(self._held.fence)

    @property
    def remaining(self) -> timedelta:
        """How long it lasts from now on unless it is renewed; nothing once it is lost or let go."""
        return timedelta(microseconds=self._held.left_ns // 1_000)

    def check(self) -> None:
        """
        Raise `LeaseLost` unless the lease stands, as far as this process knows; costs a look at the clock.

        What another process does to it is heard within a moment, and known for certain only inside a guarded transaction.
        """
        self._held.check()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(lock={self.lock!r}, fence={self.fence})"
