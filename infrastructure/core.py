"""What both colours of a journal share: the engine, the committer, the counters, and the checks before a command."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, TypeVar

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.errors import CounterfoilError, ForkedError, InvalidValue, JournalRefused, JournalUnavailable
from counterfoil.domain.limits import Limits

from .clock import Clock, SystemClock
from .commands.opening import EndOpening
from .committer import Committer
from .engine import Engine
from .inside import refuse_inside
from .naming import checked_url, open_engine
from .store import Store
from .tx import Fenced
from .waiting import Waiting

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_THREADS: Final = 4

STORE_FAILS: Final = (JournalUnavailable, JournalRefused)
"""What makes the answer to an event `unavailable`: the store did not take it, whatever is the matter with it."""

COUNTERS: Final = (
    "admitted",
    "denied",
    "unsupported",
    "duplicates",
    "queued",
    "active",
    "completed",
    "failed",
    "cancelled",
    "suspended",
    "deliveries",
    "delivery_failures",
    "truncated",
    "storage_failures",
    "lease_losses",
)
"""The counters of `diagnostics`: numbers since this opening began; `queued` and `active` are of now."""


class Core:
    """One opening of one journal, shared by its journal object, its desks and its runtimes."""

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        readonly: bool = False,
        create: bool = True,
        limits: Limits | None = None,
        keep_inbound: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        refuse_inside()
        text = checked_url(url)
        if keep_inbound is not None and (isinstance(keep_inbound, bool) or not isinstance(keep_inbound, int) or keep_inbound < 1):
            raise InvalidValue("keep_inbound must be a number of days from 1, or None")
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._pid = os.getpid()
        self.engine: Engine = open_engine(
            text,
            readonly=readonly,
            create=create,
            limits=self.limits,
            clock=self.clock,
            keep_inbound=keep_inbound is not None,
        )
        self.committer = Committer(self.engine.run_group, name="counterfoil-writer", after=self.engine.tidy)
        self._turns: dict[str, Fenced] = {}
        self.hosting = self.engine.hosting(self.committer, MappingProxyType(self._turns))
        """What runs a host's transactions."""
        self.waiting = Waiting(self)
        self.engine.on_rings = self.waiting.committed
        self.engine.on_begun = self.waiting.listener.open
        self.engine.on_lost = self.waiting.opening_lost
        self._readers: ThreadPoolExecutor | None = None

    @contextmanager
    def turn(self, operation_id: str, lease: Fenced) -> Iterator[None]:
        """Let a turn be settled by transactions of the host's while its agent is at work, under the lease of its route."""
        self._turns[operation_id] = lease
        try:
            yield
        finally:
            del self._turns[operation_id]

    def read(self, function: Callable[[Store], T]) -> T:
        """Run a function on a snapshot of the journal, in the calling thread."""
        with self.engine.reading() as store:
            return function(store)

    async def read_async(self, function: Callable[[Store], T]) -> T:
        """Run a function on a snapshot of the journal, in a thread beside the running event loop."""
        refuse_inside()
        self.engine.check_open()  # after a fork the threads are not there, and would never answer
        return await asyncio.get_running_loop().run_in_executor(self.readers, self.read, function)

    @property
    def readers(self) -> ThreadPoolExecutor:
        """The threads in which an event loop's reads run."""
        if self._readers is None:
            self._readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="counterfoil-reader")
        return self._readers

    def refuse_in_child(self) -> None:
        """Raise `ForkedError` in a process that was forked after the journal was opened: it is the parent's."""
        if os.getpid() != self._pid:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")

    def now(self) -> int:
        return self.clock.now()

    def is_live(self, opening_id: int) -> bool:
        """Tell whether an opening lives."""
        return self.engine.is_live(opening_id)

    def use_limits(self, limits: Limits) -> None:
        """Make these the limits of the opening from now on."""
        self.limits = self.engine.limits = limits

    def count_admission(self, admission: Admission) -> Admission:
        """Count an answer and return it."""
        counters = self.counters
        if admission.status == "accepted":
            counters["admitted"] += 1
            counters["duplicates"] += admission.duplicate
        else:
            counters["denied" if admission.status == "denied" else "unsupported"] += 1
            counters["storage_failures"] += admission.reason == "unavailable"
        return admission

    def close(self) -> None:
        """
        Record the end of the opening, if it appended anything, and close everything. Closing again does nothing.

        An end that cannot be recorded is only logged: others see it by the sign of life, as they see that of a process that died.
        """
        self.refuse_in_child()
        refuse_inside()
        if self.engine.closed:
            return
        self.hosting.close()
        self.waiting.close()
        try:
            if self.engine.opening_id is not None:
                self.committer.submit(EndOpening()).result()
        except CounterfoilError as error:
            log.warning("the end of an opening could not be recorded: %s", type(error).__name__)
        finally:
            self.committer.close()
            if self._readers is not None:
                self._readers.shutdown()
            self.engine.close()


def store_failed(error: CounterfoilError) -> Admission:
    """Return the answer to an event that the store did not take, whatever is the matter with it."""
    log.error("an admission failed with %s", type(error).__name__)
    return refused("unavailable")
