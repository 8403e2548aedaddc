"""The renewal of leases: every third of its ttl each is due, and then all of one keeper are renewed by one command."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from counterfoil.domain.errors import CounterfoilError, JournalUnavailable
from counterfoil.domain.lock import LossReason

from .commands.leases import Renew, Renewed, Ticket

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)

RENEWALS: Final = 3
"""In a ttl."""
TRIES: Final = 9
"""In a ttl, while the store does not take a renewal."""


class Kept(Protocol):
    """A lease that is to be renewed."""

    lease_id: str
    token: bytes
    fence: int
    ttl: int
    """Microseconds."""
    at: int
    """When it runs out, in nanoseconds of the journal's boot clock."""
    due: float
    """When it is to be renewed, in seconds of this process's timers: a clock that a test moves moves no timer."""

    def renewed(self, at: int) -> None:
        """It runs out then."""

    def passed(self) -> None:
        """Its deadline has passed: it is lost."""

    def lost(self, reason: LossReason) -> None:
        """It has ended."""


class Keeper:
    """
    Renew leases as long as they are kept, and tell each that has ended.

    What calls `tick` is the subclass's: an event loop, which so shows that it is alive, or a thread.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._guard = threading.RLock()
        self._kept: dict[bytes, Kept] = {}
        """By token: one of a key may be lost and not know it when the next of the same key comes."""
        self._keys: Counter[str] = Counter()
        """How many leases of each key are kept."""
        self._under_way: set[bytes] = set()
        """The leases whose renewal has been submitted and not answered, by token."""
        self._closed = False

    def _arm(self, delay: float) -> None:
        """Have `tick` called after so many seconds, or before."""
        raise NotImplementedError

    def _submit(self, command: Renew, done: Callable[[Any], None]) -> None:
        """Submit a command, and call `done` with its future where `tick` is called."""
        raise NotImplementedError

    def keep(self, lease: Kept) -> None:
        """Renew a lease from now on."""
        lease.due = time.monotonic() + lease.ttl / 1e6 / RENEWALS
        with self._guard:
            self._kept[lease.token] = lease
            self._keys[lease.lease_id] += 1
            closed = self._closed
        if closed:  # between the grant and now
            self._end(lease, partial(lease.lost, "opening_ended"))
            return
        self._arm(self._delay(lease, time.monotonic(), self._core.clock.boot()))

    def leave(self, lease: Kept) -> None:
        """Renew a lease no longer."""
        with self._guard:
            self._drop(lease)

    def _drop(self, lease: Kept) -> bool:
        """Keep a lease no longer, and tell whether it was kept."""
        if self._kept.get(lease.token) is not lease:
            return False
        del self._kept[lease.token]
        self._keys[lease.lease_id] -= 1
        if not self._keys[lease.lease_id]:
            del self._keys[lease.lease_id]
        return True

    def has(self, lease_id: str) -> bool:
        """Tell whether a lease of this key is kept."""
        return lease_id in self._keys

    def look(self, lease_id: str) -> None:
        """See at once whether a lease stands: somebody says that it was taken."""
        with self._guard:
            leases = [lease for lease in self._kept.values() if lease.lease_id == lease_id]
        if leases:
            self._renew(leases)

    def close(self) -> None:
        """Tell every lease that its opening has ended, and those that come still."""
        with self._guard:
            self._closed = True
        self.lose_all()

    def lose_all(self) -> None:
        """Tell every lease that its opening has ended."""
        with self._guard:
            kept = list(self._kept.values())
        for lease in kept:
            self._end(lease, partial(lease.lost, "opening_ended"))

    def tick(self) -> float | None:
        """Tell what has run out, renew if anything is due, and return after how long to tick again; None if nothing is kept."""
        boot, now = self._core.clock.boot(), time.monotonic()
        with self._guard:
            kept = list(self._kept.values())
        for lease in kept:
            if boot >= lease.at:
                self._end(lease, lease.passed)
        with self._guard:
            idle = [lease for lease in self._kept.values() if lease.token not in self._under_way]
            due = any(now >= lease.due for lease in idle)
            if due:
                self._under_way.update(lease.token for lease in idle)
        if due:
            self._renew(idle)
        return self._next()

    def _next(self) -> float | None:
        now, boot = time.monotonic(), self._core.clock.boot()
        with self._guard:
            return min((self._delay(lease, now, boot) for lease in self._kept.values()), default=None)

    def _delay(self, lease: Kept, now: float, boot: int) -> float:
        """Return in how many seconds a lease is due, or runs out."""
        left = (lease.at - boot) / 1e9
        return left if lease.token in self._under_way else min(left, lease.due - now)

    def _renew(self, leases: list[Kept]) -> None:
        command = Renew([Ticket(lease.lease_id, lease.token, lease.fence) for lease in leases])
        try:
            self._submit(command, lambda future: self._renewed(leases, future))
        except CounterfoilError as error:  # the journal was closed
            self._failed(leases, error)

    def _renewed(self, leases: list[Kept], future: Future[Renewed] | asyncio.Future[Renewed]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if error is not None:
            self._failed(leases, error)
            return
        renewed, now = future.result(), time.monotonic()
        self._answered(leases)
        for lease in leases:
            at = renewed.standing.get(lease.token)
            if at is None:
                self._end(lease, partial(lease.lost, renewed.lost[lease.token]))
            else:
                lease.due = now + lease.ttl / 1e6 / RENEWALS
                lease.renewed(at)
        self._arm_next()

    def _failed(self, leases: list[Kept], error: BaseException) -> None:
        self._answered(leases)
        if isinstance(error, JournalUnavailable):
            self._core.counters["storage_failures"] += 1
            for lease in leases:
                lease.due = time.monotonic() + lease.ttl / 1e6 / TRIES
        else:  # nothing will renew them: nobody may go on as if it held them
            log.error("the leases are lost: their renewal failed with %s", type(error).__name__)
            for lease in leases:
                self._end(lease, partial(lease.lost, "opening_ended"))
        self._arm_next()

    def _answered(self, leases: list[Kept]) -> None:
        with self._guard:
            self._under_way.difference_update(lease.token for lease in leases)

    def _end(self, lease: Kept, tell: Callable[[], None]) -> None:
        with self._guard:
            kept = self._drop(lease)
        if kept:
            tell()

    def _arm_next(self) -> None:
        delay = self._next()
        if delay is not None:
            self._arm(delay)


class LoopKeeper(Keeper):
    """The keeper of an event loop's leases. A loop that stands still renews nothing, so that what hangs in it is not kept."""

    def __init__(self, core: Core, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(core)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0.0

    def look(self, lease_id: str) -> None:
        self._in_loop(super().look, lease_id)

    def close(self) -> None:
        self._in_loop(super().close)

    def lose_all(self) -> None:
        self._in_loop(super().lose_all)

    def _in_loop(self, call: Callable[..., None], *arguments: str) -> None:
        with suppress(RuntimeError):  # the loop has ended, and what was held in it with it
            self._loop.call_soon_threadsafe(call, *arguments)

    def _arm(self, delay: float) -> None:
        at = self._loop.time() + max(0.0, delay)
        if self._timer is not None:
            if self._armed <= at:
                return
            self._timer.cancel()
        self._armed = at
        self._timer = self._loop.call_at(at, self._rung)

    def _rung(self) -> None:
        self._timer = None
        delay = self.tick()
        if delay is not None:
            self._arm(delay)

    def _submit(self, command: Renew, done: Callable[[Any], None]) -> None:
        self._core.committer.submit_async(command).add_done_callback(done)
