"""
The one thread of an opening that hears what concerns its locks, and renews the leases that are held in threads.

What nobody rings for is seen here: that a lease or an offer has run out; twice a second while anybody waits, what others
have committed, as a ring that was lost would have told; and once a second the death of an opening that could not be watched.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from counterfoil.domain.errors import Closed
from counterfoil.domain.hold import InTheWay
from counterfoil.domain.lock import stands

from .bell import Bell
from .commands.leases import Renew
from .engine import Outside
from .found import LEASES
from .keeper import Keeper
from .store import Store

if TYPE_CHECKING:
    from .core import Core
    from .waiting import Waiting

log = logging.getLogger(__name__)

LOOK_NS: Final = 500_000_000
"""How often it is looked whether anybody has committed, while somebody waits, whether or not anything was heard."""
FULL_SECONDS: Final = 1.0
"""How often those who wait are looked after, whether or not anybody has committed."""
BURST: Final = 8
"""Rings that are heard at once from which some may have been lost: the kernel keeps about ten for whoever does not listen."""


class Listener:
    """Listen for one opening, from its first lease or place on."""

    def __init__(self, core: Core, waiting: Waiting) -> None:
        self._core = core
        self._waiting = waiting
        self._guard = threading.RLock()
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        self._armed: int | None = None
        """When the thread looks again by itself; None while it does not, and while it looks: then it is to look once more."""
        self._next_look = 0.0
        """When all keys may be looked at again, in seconds of this process's timers."""
        self._full_at = 0.0
        """When they are looked at even if nobody has committed."""
        self._due: int | None = None
        """When something is due, in nanoseconds of the boot clock."""
        self._called = True
        """Somebody in this process has something to see to."""
        self._stale = False
        """Somebody has committed since all keys were looked at."""
        self._closing = False
        self.threads: Final = ThreadKeeper(core, self)

    def open(self, opening_id: int) -> None:
        """Begin to listen, once the opening has its number. Raises what a system says that has no thread or file left."""
        if self._thread is not None:
            return
        with self._guard:
            if self._thread is not None or self._closing:
                return
            bell = self._core.engine.new_bell(opening_id)
            thread = threading.Thread(target=self._listen, args=(bell,), name="counterfoil-locks", daemon=True)
            self._bell = bell
            try:
                thread.start()
            except BaseException:
                self._bell = None
                bell.close()
                raise
            self._thread = thread

    def wake_by(self, at: int) -> None:
        """See that the thread looks then, in nanoseconds of the boot clock, or before."""
        if self._armed is None or at < self._armed:
            self._wake()

    def _wake(self) -> None:
        self._called = True
        if self._bell is not None:
            self._bell.interrupt()

    def _listen(self, bell: Bell) -> None:
        outside, clock = self._core.engine.outside(), self._core.clock
        try:
            while not self._closing:
                at = self._armed
                try:
                    heard = bell.hear(None if at is None else max(0, at - clock.boot()) / 1e9)
                except Closed:
                    return
                self._armed = None
                self._armed = self._look_around([message.decode("ascii", "replace") for message in heard], outside)
        finally:
            outside.close()
            bell.close()

    def _look_around(self, heard: list[str], outside: Outside) -> int | None:
        """See to all that is due, and return when something is again; None while nobody waits. What fails keeps nothing else."""
        now = self._core.clock.boot()
        if not heard and self._is_quiet(now, outside):
            assert self._due is not None
            return min(self._due, now + LOOK_NS)
        times = []
        delay = self._safely(self.threads.tick)
        if delay is not None:
            times.append(now + int(delay * 1e9))
        for lease_id in dict.fromkeys(heard):
            self._safely(partial(self._waiting.rung, lease_id))
        self._safely(partial(self._look_at_waiting, now, len(heard) >= BURST, outside))
        at = self._safely(self._waiting.next_at)
        if at is not None:
            times.append(at)
        self._due = min(times, default=None)
        if self._due is not None and self._waiting.anybody:
            return min(self._due, now + LOOK_NS)
        return self._due

    def _is_quiet(self, now: int, outside: Outside) -> bool:
        """Tell whether nothing is due and nobody has called, rung or committed: most looks of a process that waits are such."""
        called, self._called = self._called, False
        if called or self._due is None or now >= self._due or self._stale or time.monotonic() >= self._full_at:
            return False
        self._stale = bool(self._safely(outside.changed))
        return not self._stale

    def _look_at_waiting(self, now: int, burst: bool, outside: Outside) -> None:
        self._waiting.tell_again(now)
        ways = self._waiting.ways()
        self._waiting.look([lease_id for lease_id, way in ways.items() if now >= way.at])
        if ways and (burst or time.monotonic() >= self._next_look):
            self._next_look, self._full_at = time.monotonic() + LOOK_NS / 1e9, time.monotonic() + FULL_SECONDS
            self._waiting.look(self._unrung(ways, outside))

    def _unrung(self, ways: dict[str, InTheWay], outside: Outside) -> set[str]:
        """Return the keys that have come free, although nobody may have rung for them."""
        openings = {way.opening_id for way in ways.values() if way.opening_id is not None}
        ended = {opening_id for opening_id in openings if not self._core.is_live(opening_id)}
        free = {lease_id for lease_id, way in ways.items() if way.opening_id in ended}
        self._stale = outside.changed() or self._stale
        if self._stale:
            free |= self._core.read(partial(self._free, ways.keys() - free))
            self._stale = False
        return free

    def _free(self, lease_ids: set[str], store: Store) -> set[str]:
        """Return those of these keys that nobody holds."""
        engine = self._core.engine
        world = engine.clocks.world(engine.opening_id or 0)
        return {
            lease_id
            for lease_id in lease_ids
            if (row := store.row(LEASES, (lease_id,))) is None or not stands(row.lease(), store.deadline(lease_id), world)
        }

    def _safely(self, work: Callable[[], Any]) -> Any:
        """Do one thing of a look; what it raises is tried again with the next."""
        try:
            return work()
        except Exception as error:
            log.warning("a look at what waits failed with %s", type(error).__name__)
            return None

    def close(self) -> None:
        """Tell every lease that is held in a thread that its opening has ended, and end the own thread."""
        with self._guard:
            self._closing = True
        self.threads.close()
        self._wake()
        if self._thread is not None:
            self._thread.join()


class ThreadKeeper(Keeper):
    """The keeper of the leases that are held in threads: a thread that waits or works cannot renew by itself."""

    def __init__(self, core: Core, listener: Listener) -> None:
        super().__init__(core)
        self._listener = listener

    def _arm(self, delay: float) -> None:
        self._listener.wake_by(self._core.clock.boot() + int(delay * 1e9))

    def _submit(self, command: Renew, done: Callable[[Any], None]) -> None:
        self._core.committer.submit(command).add_done_callback(done)
