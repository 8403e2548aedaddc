"""
The routes that have work here: a worker for each, the leases that they hold, and the end of them all.

What workers share is here: the commands, the host, the room, the turns that may run at once, and the looks at other holders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from math import inf
from typing import Any, Final, TypeVar

from counterfoil.domain.errors import Closed, CounterfoilError, JournalUnavailable
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation, Outcome

from .callbacks import Ended
from .commands.admission import AdmitInbound, Admitted
from .commands.turn import Claimed, Disown, Settle
from .committer import Command
from .core import Core
from .found import Found, fences, find
from .hosted import Hosted
from .journal_async import AsyncJournal
from .keeper import LoopKeeper
from .owed import Owed
from .route_worker import FIRST_RETRY, LEASE_LOST, LONGEST_RETRY, Job, RouteWorker, Run

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_SECONDS: Final = 0.05
"""How often routes that another process holds are looked at: its death is seen within this."""

GRACE_SECONDS: Final = 1.0
"""What a stop waits beyond `stop_deadline` for the records of what did not end."""


class Routes:
    """Own the workers, and what they share."""

    def __init__(self, journal: AsyncJournal, host: Hosted) -> None:
        self.host = host
        self.stopping = False
        self._journal = journal
        self._workers: dict[str, RouteWorker] = {}
        self._admitting: set[asyncio.Future[Admitted]] = set()
        self._room = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._look = asyncio.Lock()
        self._seen = (0.0, 0)
        self._slots: asyncio.Semaphore | None = None

    @property
    def core(self) -> Core:
        return self._journal.core

    @property
    def limits(self) -> Limits:
        return self.core.limits

    @property
    def counters(self) -> dict[str, int]:
        return self.core.counters

    @property
    def slots(self) -> asyncio.Semaphore:
        """The turns that may run at once."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.limits.max_active_sessions)
        return self._slots

    def worker(self, route: str) -> RouteWorker:
        """Return the worker of a route."""
        worker = self._workers.get(route)
        if worker is None:
            worker = self._workers[route] = RouteWorker(self, route)
        return worker

    def forget(self, worker: RouteWorker) -> None:
        """A route has no work left here."""
        if self._workers.get(worker.route) is worker and worker.fence is None and worker.owed is None and not worker.jobs:
            del self._workers[worker.route]

    def admit(self, command: AdmitInbound) -> asyncio.Future[Admitted]:
        """Submit an admission; its event is scheduled before anybody has the answer, also when nobody waits for it any more."""
        admitting = self.core.committer.submit_async(command)
        self._admitting.add(admitting)
        admitting.add_done_callback(lambda done: self._admitted(command, done))
        return admitting

    def _admitted(self, command: AdmitInbound, admitting: asyncio.Future[Admitted]) -> None:
        self._admitting.discard(admitting)
        if not admitting.cancelled() and admitting.exception() is None:
            self._schedule(command, admitting.result())

    def _schedule(self, command: AdmitInbound, admitted: Admitted) -> None:
        """Have the route of an admission run it, if it is this process's to run."""
        operation_id = admitted.admission.operation_id
        if admitted.position is not None and admitted.route is not None and operation_id is not None:
            worker = self.worker(admitted.route)
            worker.add(admitted.position, Job(operation_id, command.inbound, command.grant, admitted.alias))
            worker.start()
        elif admitted.admission.reason == "capacity" and admitted.route is not None:
            self.worker(admitted.route).start()  # what ended openings left there runs before the new event, and makes room for it

    def made_room(self) -> None:
        """An entry has left a queue."""
        self._room.set()

    async def wait_for_room(self) -> None:
        """Wait until there is room, or for a quarter of a second: that of other processes is not heard of."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.25):
                await self._room.wait()
        self._room.clear()  # afterwards: what was made between a refusal and this call is not missed

    async def drain(self, patience_s: float | None) -> bool:
        """Wait until no worker is at work; tells whether that came within the time."""
        now = asyncio.get_running_loop().time
        end = None if patience_s is None else now() + patience_s
        while tasks := [worker.task for worker in self._workers.values() if worker.task is not None and not worker.task.done()]:
            left = None if end is None else end - now()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(tasks, timeout=left)
        return True

    # What workers use.

    async def submit(self, command: Command[T]) -> T:
        """Run a command in the journal."""
        return await self.core.committer.submit_async(command)

    async def insist(self, owed: Owed[T], patience_s: float = inf) -> T:
        """Wait until the journal has what must not be lost: while the store cannot take it, try again."""
        end = asyncio.get_running_loop().time() + patience_s
        retry = FIRST_RETRY
        while True:
            try:
                return await owed.answer()
            except JournalUnavailable:
                self.counters["storage_failures"] += 1
                if asyncio.get_running_loop().time() + retry > end:
                    raise
            await asyncio.sleep(retry)
            retry = min(retry * 2, LONGEST_RETRY)

    async def look_up(self, operation: Operation) -> Found:
        """Read what an operation was, and what waits on its route."""
        found = await self.core.read_async(lambda store: find(store, operation.operation_id))
        return found or Found(operation)

    def count_outcome(self, outcome: Outcome) -> None:
        self.counters["completed" if outcome == "succeeded" else outcome] += 1

    def refuse_late(self, run: Run, operation_id: str, fence: int) -> None:
        """A run did not end when it was told to: when it does, its result is refused, and the refusal recorded."""

        def ended(_: asyncio.Task[Ended]) -> None:
            with suppress(CounterfoilError):
                answer = run.answer()
                lost = run.reason == LEASE_LOST
                command = Disown(operation_id, fence, answer.outcome) if lost else Settle(operation_id, fence, answer)
                Owed(self.core.committer, command).submit()

        self.host.keep(run.task)
        run.task.add_done_callback(ended)

    # Leases.

    @property
    def keeper(self) -> LoopKeeper:
        """What renews the leases of this event loop, those of hosts' locks among them."""
        return self.core.waiting.of_loop()

    def keep_watching(self) -> None:
        """See that a lease that others end is missed as long as a turn runs under it."""
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch(), name="counterfoil-watch")

    async def _watch(self) -> None:
        """Look at the leases of what runs, whenever the history has moved on."""
        seen = None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if not any(worker.run is not None for worker in self._workers.values()):
                return
            try:
                position = await self._position()
                if position != seen:
                    await self.look_at_leases()
                    seen = position
            except Closed:
                return
            except Exception as error:  # whether the leases last through that is the renewal's to say
                log.debug("a look at the leases failed with %s; it is taken again", type(error).__name__)

    async def look_at_leases(self) -> None:
        """Abort what runs under a lease that was revoked, or has run out and was taken by another."""
        running = [(worker, worker.run, worker.lease) for worker in self._workers.values() if worker.run and worker.lease]
        ids = {lease.lease_id for _, _, lease in running}
        standing = await self.core.read_async(lambda store: fences(store, ids))
        for worker, run, lease in running:
            if worker.run is run and standing.get(lease.lease_id) != lease.fence:
                worker.lose_lease(lease)

    async def wait_for_route(self, claimed: Claimed | None) -> None:
        """
        Wait until the opening that holds a route has ended, its lease has run out, or the history has moved on since the claim
        was tried.

        A renewal moves the end of the lease and nothing in the history: the next claim tells when it runs out then.
        """
        core = self.core
        while claimed is not None and not self.stopping:
            await asyncio.sleep(WATCH_SECONDS)
            if claimed.holder is not None and not core.is_live(claimed.holder):
                return
            if claimed.free_at is not None and core.clock.boot() >= claimed.free_at:
                return
            if await self._position() != claimed.position:
                return

    async def _position(self) -> int:
        """Return the position of the head, read once for all routes that wait."""
        async with self._look:
            now = asyncio.get_running_loop().time()
            if now - self._seen[0] > WATCH_SECONDS / 2:
                self._seen = (now, await self._journal.position())
            return self._seen[1]

    # The end.

    async def stop(self, *, keep_queued: bool = False) -> None:
        """As `Runtime.stop`."""
        self.stopping = True
        self.made_room()
        errors: list[BaseException] = []
        for worker in self._workers.values():
            if worker.run is not None:
                worker.run.abort("cancelled_at_shutdown")
        if self._admitting:  # what the journal takes after all waits here as what it took before
            await asyncio.wait(self._admitting, timeout=self.limits.duration("stop_deadline") / 1_000_000)
        workers = list(self._workers.values())
        if keep_queued:
            for worker in workers:
                worker.leave()
        else:
            errors += await self._tried(worker.cancel_waiting() for worker in workers)
        tasks = {worker.task for worker in workers if worker.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self.limits.duration("stop_deadline") / 1_000_000 + GRACE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        errors += await self._tried(worker.let_go() for worker in workers)
        for worker in workers:
            self.forget(worker)
        if errors:
            raise errors[0]

    async def _tried(self, steps: Iterable[Coroutine[Any, Any, None]]) -> list[BaseException]:
        """
        Take steps of the end, all of them to their end, and return what is wrong with the journal or with us.

        One that fails is taken again by the next call of `stop`.
        """
        errors = [error for error in await asyncio.gather(*steps, return_exceptions=True) if error is not None]
        self.counters["storage_failures"] += sum(isinstance(error, JournalUnavailable) for error in errors)
        return [error for error in errors if not isinstance(error, JournalUnavailable | Closed)]
