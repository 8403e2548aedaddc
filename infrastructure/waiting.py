"""
Those who wait in this opening for keys of locks, and the one thread that hears for all of them.

A key that comes free is offered, by the command that freed it, to the first in its line. The opening of that one is rung, and
takes the key by a command of its own. What nobody rings for is seen here: that an opening in the way has died, that a lease or an
offer has run out, and, four times a second while anybody waits, what a ring that was lost would have told.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from counterfoil.domain.errors import Closed, CounterfoilError, JournalUnavailable
from counterfoil.domain.hold import InTheWay
from counterfoil.domain.lock import Clockwork, stands

from .commands.holds import Advance, Advanced, Granted, Leave
from .commands.leases import Renew
from .found import LEASES
from .keeper import Keeper, LoopKeeper
from .sqlite.bell import Bell, new_bell, ring
from .sqlite.deaths import watch_death
from .sqlite.descriptor import side_file
from .sqlite.outside import Outside
from .sqlite.store import SQLiteStore

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)

LOOK_NS: Final = 250_000_000
"""How often somebody who waits is looked after, whether or not anything was heard."""
BURST: Final = 8
"""Rings that are heard at once from which some may have been lost: the kernel keeps about ten for whoever does not listen."""


class Seat:
    """A caller that asks for a key, and may have to wait for it."""

    __slots__ = ("_granted", "lease_id", "token")

    def __init__(self, lease_id: str, token: bytes) -> None:
        self.lease_id = lease_id
        self.token = token
        self._granted: Future[Granted] | None = None

    @property
    def granted(self) -> Future[Granted]:
        """What the caller waits for; made when it does, which most need not."""
        if self._granted is None:
            with _making:
                self._granted = self._granted or Future()
        return self._granted


_making: Final = threading.Lock()


class Waiting:
    """The waiting callers of one opening, whatever their threads and event loops."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._guard = threading.RLock()
        self._seats: dict[str, dict[bytes, Seat]] = {}
        self._ways: dict[str, InTheWay] = {}
        self._watched: set[int] = set()
        self._advancing: set[str] = set()
        self._again: set[str] = set()
        """Keys that are to be looked at once more, because something was heard of them while they were being looked at."""
        self._unheard: list[tuple[int, Leave]] = []
        """What the store did not take, and when it is told again."""
        self._armed: int | None = None
        """When the thread looks again by itself; None while it does not, and while it looks: then it is to look once more."""
        self._loops: dict[asyncio.AbstractEventLoop, LoopKeeper] = {}
        self._bell: Bell | None = None
        self._thread: threading.Thread | None = None
        self._next_look = 0.0
        """When all keys are looked at again, in seconds of this process's timers."""
        self._closing = False
        self.threads = ThreadKeeper(core, self)

    # Callers.

    def sit(self, lease_id: str, token: bytes) -> Seat:
        """Take a seat, before the key is asked for: so no grant comes to nobody. Raises `Closed` once the journal is closing."""
        seat = Seat(lease_id, token)
        with self._guard:
            if self._closing:
                raise closed()
            self._seats.setdefault(lease_id, {})[token] = seat
        return seat

    def stand(self, seat: Seat) -> None:
        """Give up a seat that came to nothing in the journal."""
        with self._guard:
            seats = self._seats.get(seat.lease_id, {})
            seats.pop(seat.token, None)
            if not seats:
                self._seats.pop(seat.lease_id, None)
                self._ways.pop(seat.lease_id, None)

    def leave(self, seat: Seat) -> None:
        """Give up a seat, and in the journal the place or the lease that it came to; until the journal has that."""
        self.stand(seat)
        self.give_up(Leave(seat.lease_id, seat.token))

    def give_up(self, command: Leave) -> None:
        """Have a place or lease given up, again and again until the journal has that."""
        with suppress(CounterfoilError):  # the places and leases of an opening that was closed end with it
            self._core.committer.submit(command).add_done_callback(partial(self._given_up, command))

    def _given_up(self, command: Leave, done: Future[None]) -> None:
        error = done.exception()
        if isinstance(error, JournalUnavailable):
            with self._guard:
                self._unheard.append((self._core.clock.boot() + LOOK_NS, command))
            self._wake()
        elif error is not None:
            log.warning("a place or a lease could not be given up: %s", type(error).__name__)

    def wait_behind(self, seat: Seat, in_the_way: InTheWay) -> None:
        """The journal has a place for the seat; look after it from now on."""
        with self._guard:
            if seat.lease_id not in self._seats or seat.lease_id in self._ways:
                return
        self._is_in_the_way(seat.lease_id, in_the_way)
        self.look([seat.lease_id])  # what was rung before anybody listened is seen now

    # What is heard.

    def open(self, opening_id: int) -> None:
        """Begin to listen, once the opening has its number."""
        if self._thread is not None:
            return
        with self._guard:
            if self._thread is None and not self._closing:
                self._bell = new_bell(self._core.engine.path, opening_id, self._core.is_live)
                self._thread = threading.Thread(target=self._listen, name="counterfoil-locks", daemon=True)
                self._thread.start()

    def committed(self, rings: Sequence[tuple[int, str]]) -> None:
        """A group was committed: ring whoever is to look at a key. Called on the writer thread."""
        own = self._core.engine.opening_id
        for opening_id, lease_id in rings:
            if opening_id == own:
                self.look([lease_id])
                self._look_at_lease(lease_id)
            elif self._core.engine.path is not None:
                ring(self._core.engine.path, opening_id, lease_id.encode())

    def look(self, lease_ids: Iterable[str]) -> None:
        """Have keys given to those who wait here, if it is their turn."""
        with self._guard:
            keys = [lease_id for lease_id in lease_ids if lease_id in self._seats]
            self._again.update(self._advancing.intersection(keys))
            keys = [lease_id for lease_id in keys if lease_id not in self._advancing]
            self._advancing.update(keys)
        if keys:
            try:
                self._core.committer.submit(Advance(keys)).add_done_callback(partial(self._advanced, keys))
            except CounterfoilError as error:
                log.debug("nobody waits any more: %s", type(error).__name__)

    def _advanced(self, keys: list[str], done: Future[dict[str, Advanced]]) -> None:
        with self._guard:
            self._advancing.difference_update(keys)
            again = self._again.intersection(keys)
            self._again.difference_update(keys)
        if done.cancelled() or (error := done.exception()) is not None:
            log.debug("a look at lines failed with %s", "cancellation" if done.cancelled() else type(error).__name__)
            again_at = self._core.clock.boot() + LOOK_NS
            for lease_id in keys:
                self._is_in_the_way(lease_id, InTheWay(None, again_at))
            return
        for lease_id, advanced in done.result().items():
            if advanced.granted is not None:
                self._grant(advanced.granted)
            self._is_in_the_way(lease_id, advanced.in_the_way)
        if again:
            self.look(again)

    def _grant(self, granted: Granted) -> None:
        with self._guard:
            seat = self._seats.get(granted.lease_id, {}).get(granted.token)
        if seat is not None:
            self.stand(seat)
            if seat.granted.set_running_or_notify_cancel():
                seat.granted.set_result(granted)
                return
        self.give_up(Leave(granted.lease_id, granted.token))  # whoever asked has gone meanwhile

    def _is_in_the_way(self, lease_id: str, in_the_way: InTheWay | None) -> None:
        with self._guard:
            if in_the_way is None or lease_id not in self._seats:
                self._ways.pop(lease_id, None)
                return
            sooner = in_the_way.at < min((way.at for way in self._ways.values()), default=in_the_way.at + 1)
            self._ways[lease_id] = in_the_way
            opening_id, path = in_the_way.opening_id, self._core.engine.path
            watch = opening_id not in (None, self._core.engine.opening_id) and opening_id not in self._watched
            if watch and opening_id is not None:
                self._watched.add(opening_id)
        if watch and opening_id is not None and path is not None:
            watch_death(side_file(path, "live"), opening_id, partial(self._died, opening_id))
        if sooner:
            self._wake()

    def _died(self, opening_id: int) -> None:
        with self._guard:
            self._watched.discard(opening_id)
            keys = [lease_id for lease_id, way in self._ways.items() if way.opening_id == opening_id]
        self.look(keys)

    def _look_at_lease(self, lease_id: str) -> None:
        for keeper in (self.threads, *self._loops.values()):
            if keeper.has(lease_id):
                keeper.look(lease_id)

    # Keepers.

    def of_loop(self) -> LoopKeeper:
        """Return the keeper of the leases of the running event loop."""
        loop = asyncio.get_running_loop()
        keeper = self._loops.get(loop)
        if keeper is None:
            with self._guard:
                for ended in [each for each in self._loops if each.is_closed()]:
                    del self._loops[ended]
                keeper = self._loops[loop] = LoopKeeper(self._core, loop)
                if self._closing:
                    keeper.close()
        return keeper

    # The thread.

    def wake_by(self, at: int) -> None:
        """See that the thread looks then, in nanoseconds of the boot clock, or before."""
        if self._armed is None or at < self._armed:
            self._wake()

    def _wake(self) -> None:
        if self._bell is not None:
            self._bell.interrupt()

    def _listen(self) -> None:
        bell, outside = self._bell, self._core.engine.outside()
        assert bell is not None
        try:
            while not self._closing:
                at, clock = self._armed, self._core.clock
                heard = bell.hear(None if at is None else max(0, at - clock.boot()) / 1e9)
                self._armed = None
                if self._closing:
                    return
                try:
                    self._armed = self._look_around({message.decode("ascii", "replace") for message in heard}, outside)
                except Exception as error:  # whatever it is, those who wait are looked after again
                    log.warning("a look at what waits failed with %s", type(error).__name__)
                    self._armed = clock.boot() + LOOK_NS
        finally:
            outside.close()
            bell.close()

    def _look_around(self, heard: set[str], outside: Outside) -> int | None:
        """See to all that is due, and return when something is again; None while nobody waits."""
        for lease_id in heard:
            self._look_at_lease(lease_id)
        now = self._core.clock.boot()
        with self._guard:
            due = {lease_id for lease_id, way in self._ways.items() if now >= way.at}
            waited = set(self._ways) - due
            told = [command for at, command in self._unheard if now >= at]
            self._unheard = [(at, command) for at, command in self._unheard if now < at]
        for command in told:
            self.give_up(command)
        if waited and (time.monotonic() >= self._next_look or len(heard) >= BURST):
            self._next_look = time.monotonic() + LOOK_NS / 1e9
            due |= self._unrung(waited, outside)
        self.look(heard | due)
        delay = self.threads.tick()
        with self._guard:
            times = [at for at, _ in self._unheard]
            times += [way.at for lease_id, way in self._ways.items() if lease_id not in self._advancing]
            if self._seats:
                times.append(now + LOOK_NS)
        if delay is not None:
            times.append(self._core.clock.boot() + int(delay * 1e9))
        return min(times, default=None)

    def _unrung(self, waited: set[str], outside: Outside) -> set[str]:
        """Return the keys that have come free, although nobody may have rung for them."""
        with self._guard:
            ways = {lease_id: self._ways[lease_id] for lease_id in waited if lease_id in self._ways}
        openings = {way.opening_id for way in ways.values() if way.opening_id is not None}
        ended = {opening_id for opening_id in openings if not self._core.is_live(opening_id)}
        free = {lease_id for lease_id, way in ways.items() if way.opening_id in ended}
        return free | self._core.read(partial(self._free, waited - free)) if outside.changed() else free

    def _free(self, lease_ids: set[str], store: SQLiteStore) -> set[str]:
        """Return those of these keys that nobody holds."""
        clock = self._core.clock
        world = Clockwork(self._core.engine.opening_id or 0, clock.boot_id(), clock.boot(), self._core.is_live)
        return {
            lease_id
            for lease_id in lease_ids
            if (row := store.row(LEASES, (lease_id,))) is None or not stands(row.lease(), store.deadline(lease_id), world)
        }

    def close(self) -> None:
        """Tell everybody who waits or holds that the opening ends, and end the thread."""
        with self._guard:
            self._closing = True
            seats = [seat for seats in self._seats.values() for seat in seats.values()]
            self._seats.clear()
            self._ways.clear()
        for seat in seats:
            if seat.granted.set_running_or_notify_cancel():
                seat.granted.set_exception(closed())
        for keeper in (self.threads, *self._loops.values()):
            keeper.close()
        self._wake()
        if self._thread is not None:
            self._thread.join()


def closed() -> Closed:
    return Closed("the journal was closed; open it again")


class ThreadKeeper(Keeper):
    """The keeper of the leases that are held in threads: a thread that waits or works cannot renew by itself."""

    def __init__(self, core: Core, waiting: Waiting) -> None:
        super().__init__(core)
        self._waiting = waiting

    def _arm(self, delay: float) -> None:
        self._waiting.wake_by(self._core.clock.boot() + int(delay * 1e9))

    def _submit(self, command: Renew, done: Callable[[Any], None]) -> None:
        self._core.committer.submit(command).add_done_callback(done)
