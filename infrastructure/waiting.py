"""
Those who wait in this opening for keys of locks.

A key that comes free is offered, by the command that freed it, to the first in its line. The opening of that one is rung, and
takes the key by a command of its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from counterfoil.domain.errors import Closed, CounterfoilError, JournalUnavailable
from counterfoil.domain.hold import InTheWay

from .commands.holds import Advance, Advanced, Granted, Leave
from .keeper import LoopKeeper
from .listening import LOOK_NS, Listener

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)


class Seat:
    """A caller that asks for a key, and may have to wait for it."""

    __slots__ = ("_granted", "_guard", "_loop", "lease_id", "token")

    def __init__(self, lease_id: str, token: bytes, guard: threading.RLock, loop: asyncio.AbstractEventLoop | None) -> None:
        self.lease_id = lease_id
        self.token = token
        self._guard = guard
        self._loop = loop
        self._granted: Future[Granted] | None = None

    @property
    def granted(self) -> Future[Granted]:
        """What the caller waits for; made when it does, which most need not."""
        with self._guard:
            if self._granted is None:
                self._granted = Future()
            return self._granted

    def take(self, granted: Granted) -> bool:
        """Give the caller its lease, and tell whether it is still there."""
        if self._loop is not None and self._loop.is_closed():
            return False
        if not self.granted.set_running_or_notify_cancel():
            return False
        self.granted.set_result(granted)
        return True

    def close(self, error: CounterfoilError) -> None:
        """Tell the caller that it gets nothing."""
        if self.granted.set_running_or_notify_cancel():
            self.granted.set_exception(error)


class Waiting:
    """The waiting callers of one opening, whatever their threads and event loops."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._guard = threading.RLock()
        self._seats: dict[str, dict[bytes, Seat]] = {}
        self._ways: dict[str, InTheWay] = {}
        """What is in the way of those who wait for a key, as far as it is known."""
        self._watches: dict[int, Callable[[], None]] = {}
        """What takes the watch of an opening's end back."""
        self._advancing: set[str] = set()
        self._again: set[str] = set()
        """Keys that are to be looked at once more, because something was heard of them while they were being looked at."""
        self._unheard: list[tuple[int, Leave]] = []
        """What the store did not take, and when it is told again."""
        self._loops: dict[asyncio.AbstractEventLoop, LoopKeeper] = {}
        self._closing = False
        self.listener: Final = Listener(core, self)

    # Callers.

    def sit(self, lease_id: str, token: bytes, loop: asyncio.AbstractEventLoop | None = None) -> Seat:
        """Take a seat, before the key is asked for: so no grant comes to nobody. Raises `Closed` once the journal is closing."""
        seat = Seat(lease_id, token, self._guard, loop)
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
        self.give_up(seat.lease_id, seat.token)

    def give_up(self, lease_id: str, token: bytes) -> None:
        """Have a place or lease given up, again and again until the journal has that."""
        self._give_up(Leave(lease_id, token))

    def _give_up(self, command: Leave) -> None:
        with suppress(CounterfoilError):  # the places and leases of an opening that was closed end with it
            self._core.committer.submit(command).add_done_callback(partial(self._given_up, command))

    def _given_up(self, command: Leave, done: Future[None]) -> None:
        error = done.exception()
        if isinstance(error, JournalUnavailable):
            at = self._core.clock.boot() + LOOK_NS
            with self._guard:
                self._unheard.append((at, command))
            self.listener.wake_by(at)
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

    def committed(self, rings: Sequence[tuple[int, str]]) -> None:
        """A group was committed: ring whoever is to look at a key. Called on the writer thread."""
        own = self._core.engine.opening_id
        for opening_id, lease_id in rings:
            if opening_id == own:
                self.rung(lease_id)
            else:
                self._core.engine.ring(opening_id, lease_id)

    def rung(self, lease_id: str) -> None:
        """Look at a key, because it has come free or was taken from whoever holds it here."""
        self.look([lease_id])
        for keeper in (self.listener.threads, *self._loops.copy().values()):
            if keeper.has(lease_id):
                keeper.look(lease_id)

    def look(self, lease_ids: Iterable[str]) -> None:
        """Have keys given to those who wait here, if it is their turn."""
        with self._guard:
            keys = [lease_id for lease_id in lease_ids if lease_id in self._seats]
            self._again.update(self._advancing.intersection(keys))
            keys = [lease_id for lease_id in keys if lease_id not in self._advancing]
            self._advancing.update(keys)
        for lease_id in keys:
            try:
                self._core.committer.submit(Advance(lease_id)).add_done_callback(partial(self._advanced, lease_id))
            except CounterfoilError as error:
                log.debug("nobody waits any more: %s", type(error).__name__)

    def _advanced(self, lease_id: str, done: Future[Advanced]) -> None:
        with self._guard:
            self._advancing.discard(lease_id)
            again = lease_id in self._again
            self._again.discard(lease_id)
        error = done.exception()
        if error is None:
            advanced = done.result()
            if advanced.granted is not None:
                self._grant(advanced.granted)
            self._is_in_the_way(lease_id, advanced.in_the_way)
        else:
            log.debug("a look at a line failed with %s", type(error).__name__)
            self._is_in_the_way(lease_id, InTheWay(None, self._core.clock.boot() + LOOK_NS))
        if again:
            self.look([lease_id])

    def _grant(self, granted: Granted) -> None:
        with self._guard:
            seat = self._seats.get(granted.lease_id, {}).get(granted.token)
        if seat is not None:
            self.stand(seat)
        if seat is None or not seat.take(granted):
            self.give_up(granted.lease_id, granted.token)  # whoever asked has gone meanwhile

    def _is_in_the_way(self, lease_id: str, in_the_way: InTheWay | None) -> None:
        with self._guard:
            if in_the_way is None or lease_id not in self._seats:
                self._ways.pop(lease_id, None)
                return
            self._ways[lease_id] = in_the_way
        self._watch(in_the_way.opening_id)
        self.listener.wake_by(in_the_way.at)

    def _watch(self, opening_id: int | None) -> None:
        """Hear of the end of another opening at once; one that cannot be watched is looked at once a second."""
        engine = self._core.engine
        if opening_id is None or opening_id == engine.opening_id or opening_id in self._watches:
            return
        try:
            cancel = engine.watch_death(opening_id, partial(self._died, opening_id))
        except RuntimeError as error:  # no thread can be started
            log.warning("an opening cannot be watched: %s", type(error).__name__)
            return
        if cancel is not None:
            with self._guard:
                self._watches[opening_id] = cancel

    def _died(self, opening_id: int) -> None:
        with self._guard:
            self._watches.pop(opening_id, None)
            keys = [lease_id for lease_id, way in self._ways.items() if way.opening_id == opening_id]
        self.look(keys)

    def opening_lost(self, opening_id: int) -> None:
        """The opening has ended although nobody has closed it: its leases and places are gone, and whoever has one is told."""
        with self._guard:
            seats = [seat for seats in self._seats.values() for seat in seats.values()]
            self._seats.clear()
            self._ways.clear()
            self._unheard.clear()
            keepers = list(self._loops.values())
        lost = JournalUnavailable("the connection to the journal was lost, and with it the place in line; ask again")
        for seat in seats:
            seat.close(lost)
        for keeper in (self.listener.threads, *keepers):
            keeper.lose_all()
        self.ways()

    # What the listener asks.

    def ways(self) -> dict[str, InTheWay]:
        """Return what is in the way of those who wait; watches of openings that are in nobody's way are taken back."""
        with self._guard:
            ways = dict(self._ways)
            needless = self._watches.keys() - {way.opening_id for way in ways.values()}
            cancels = [self._watches.pop(opening_id) for opening_id in needless]
        for cancel in cancels:
            cancel()
        return ways

    def tell_again(self, now: int) -> None:
        """Tell the store again what it did not take."""
        with self._guard:
            told = [command for at, command in self._unheard if now >= at]
            self._unheard = [(at, command) for at, command in self._unheard if now < at]
        for command in told:
            self._give_up(command)

    @property
    def anybody(self) -> bool:
        """Whether anybody waits."""
        return bool(self._seats)

    def next_at(self) -> int | None:
        """Return when something is due, in nanoseconds of the boot clock; None while nothing is known to be."""
        with self._guard:
            times = [at for at, _ in self._unheard]
            times += [way.at for lease_id, way in self._ways.items() if lease_id not in self._advancing]
            if len(times) < len(self._seats):  # of some it is not known yet
                times.append(self._core.clock.boot() + LOOK_NS)
        return min(times, default=None)

    # Event loops.

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

    def close(self) -> None:
        """Tell everybody who waits or holds that the opening ends, and end the thread."""
        with self._guard:
            self._closing = True
            seats = [seat for seats in self._seats.values() for seat in seats.values()]
            self._seats.clear()
            self._ways.clear()
            keepers = list(self._loops.values())
        for seat in seats:
            seat.close(closed())
        for keeper in keepers:
            keeper.close()
        self.ways()
        self.listener.close()


def closed() -> Closed:
    return Closed("the journal was closed; open it again")
