"""
The runtime: it authorises, admits, runs one turn at a time on each route, and sends what was staged.

Each route that has work is run by a task of its own, which the runtime owns and awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from pydantic import ValidationError

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.duration import in_words, microseconds
from counterfoil.domain.errors import Closed, CounterfoilError, Denied, InvalidValue, JournalUnavailable, NeedsRuntime
from counterfoil.domain.exchange import Action, Reply
from counterfoil.domain.identity import Every, Grant, Identity, Reach, Scope, reach
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation, Outcome
from counterfoil.domain.reconcile import ReconcileOutcome, Reconciliation
from counterfoil.domain.turn import Delivery

from .callbacks import Authorize, Deliver, ResolveAgent, call, send
from .commands.admission import AdmitInbound, Admitted
from .commands.leases import Renew
from .commands.opening import RecordAct
from .commands.reconcile import ResendClaimed
from .commands.turn import Claimed, Mark, Settle
from .committer import Command
from .journal_async import AsyncJournal
from .owed import Owed
from .reconciling import reconcile_command
from .remembering import remember, waiting_routes
from .route_worker import FIRST_RETRY, LONGEST_RETRY, Job, RouteWorker, Run
from .sqlite.store import SQLiteStore

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_SECONDS: Final = 0.05
"""How often routes that another process holds are looked at: its death is seen within this."""

SENDING_US: Final = (1_000, 3_600_000_000)
"""The least and the most that a sending may be given, in microseconds."""

GRACE_SECONDS: Final = 1.0
"""What a stop waits beyond `stop_deadline` for the records of what did not end."""


_RESENT: Final[dict[str, ReconcileOutcome]] = {
    "delivered": "reply_delivered",
    "delivery_failed": "reply_failed",
    "delivery_unknown": "reply_unknown",
}


class Found(NamedTuple):
    """What the journal has of an operation: whose it is, its event and its reply in the clear, and what waits on its route."""

    operation: Operation
    scope: Scope | None = None
    inbound: Inbound | None = None
    reply: Reply | None = None
    waiting: frozenset[int] = frozenset()


def find(store: SQLiteStore, operation_id: str) -> Found | None:
    """Read an operation; None if it is not known."""
    remembered = remember(store, operation_id)
    if remembered is None:
        return None
    operation = remembered.operation
    scoped = store.scope_by_id(operation.scope_id)
    scope = None if scoped is None or scoped.tenant is None else Scope(scoped.tenant, scoped.account, scoped.user)
    waiting = frozenset(entry.operation for entry in store.queue(operation.route).waiting)
    return Found(operation, scope, remembered.inbound, remembered.reply, waiting)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume found waiting and has started."""

    routes: int


def _sending_us(timeout: timedelta | str) -> int:
    """Return how long a sending may take; raises `InvalidValue` outside `SENDING_US`."""
    duration = microseconds(timeout, name="deliver_timeout")
    least, most = SENDING_US
    if not least <= duration <= most:
        raise InvalidValue(f"deliver_timeout must be {in_words(least)} to {in_words(most)}, not {duration / 1_000_000:g} s")
    return duration


class Runtime:
    """
    Run a host's agents on a journal.

    `authorize(inbound, action)` gives a `Grant` or None; `resolve_agent(alias, identity, inbound)` a callable that gets a `Turn`
    and returns text; `deliver(reply)` returns None or the message id when it was delivered, or `DeliveryFailed`. Each may be a
    coroutine function, or plain, and then runs in a thread. Use the runtime as a context manager: leaving it stops it and keeps
    what waits for the next `resume`.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        *,
        authorize: Authorize,
        resolve_agent: ResolveAgent,
        deliver: Deliver,
        limits: Limits | None = None,
        deliver_timeout: timedelta | str = "30s",
    ) -> None:
        for name, function in (("authorize", authorize), ("resolve_agent", resolve_agent), ("deliver", deliver)):
            if not callable(function):
                raise InvalidValue(f"{name} must be callable, not {type(function).__name__}")
        self.journal = journal
        self.authorize = authorize
        self.resolve_agent = resolve_agent
        self._deliver = deliver
        if limits is not None:
            journal.core.use_limits(limits)
        self._deliver_seconds = _sending_us(deliver_timeout) / 1_000_000
        self._workers: dict[str, RouteWorker] = {}
        self._room = asyncio.Event()
        self._renewer: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[Any]] = set()
        self._look = asyncio.Lock()
        self._seen = (0.0, 0)
        self._slots: asyncio.Semaphore | None = None
        self.stopping = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop(keep_queued=True)

    @property
    def limits(self) -> Limits:
        """The limits of the journal's opening; those given to the runtime became them."""
        return self.journal.limits

    @property
    def slots(self) -> asyncio.Semaphore:
        """The turns that may run at once."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.limits.max_active_sessions)
        return self._slots

    @property
    def counters(self) -> dict[str, int]:
        return self.journal.core.counters

    # Admission.

    async def admit(self, inbound: Inbound | Mapping[str, Any]) -> Admission:
        """
        Authorise one event, admit it, and schedule its turn.

        Returns after the durable append and before any model or tool call. A mapping that is no inbound event is `malformed`.
        Acknowledge to the platform unless the answer is `retryable`.
        """
        return self.journal.core.count_admission(await self._decide(inbound))

    async def _decide(self, inbound: Inbound | Mapping[str, Any]) -> Admission:
        if self.stopping:
            return refused("stopped")
        if not isinstance(inbound, Inbound):
            try:
                inbound = Inbound.model_validate(inbound)
            except ValidationError:
                return refused("malformed")
        if len(inbound.body) > self.limits.max_input_bytes:
            return refused("oversized")
        is_command = inbound.text.lstrip().startswith("/")
        grant = await self.grant_for(inbound, "command" if is_command else "message")
        if isinstance(grant, Admission):
            return grant
        if is_command:
            return refused("unknown_command")
        if self.stopping:
            return refused("stopped")
        command = AdmitInbound(inbound, grant, grant.alias)
        admitting = self.journal.core.committer.submit_async(command)
        try:
            admitted = await asyncio.shield(admitting)
        except JournalUnavailable:
            return refused("unavailable")
        except asyncio.CancelledError:
            # Whoever asked is gone; what the journal has taken by then is nobody's but this process's to run.
            admitting.add_done_callback(lambda late: self._schedule_late(command, late))
            raise
        self._schedule(command, admitted)
        return admitted.admission

    def _schedule(self, command: AdmitInbound, admitted: Admitted) -> None:
        """Have the route of an admission run it, if it is this process's to run."""
        operation_id = admitted.admission.operation_id
        if admitted.position is not None and admitted.route is not None and operation_id is not None:
            worker = self._worker(admitted.route)
            worker.add(admitted.position, Job(operation_id, command.inbound, command.grant, admitted.alias))
            worker.start()
        elif admitted.admission.reason == "capacity" and admitted.route is not None:
            self._worker(
                admitted.route
            ).start()  # what ended openings left there runs before the new event, and makes room for it

    def _schedule_late(self, command: AdmitInbound, admitting: asyncio.Future[Admitted]) -> None:
        if not admitting.cancelled() and admitting.exception() is None:
            self._schedule(command, admitting.result())

    async def grant_for(self, inbound: Inbound, action: Action) -> Grant | Admission:
        """Ask the host, and return its grant, or the refusal that follows."""
        try:
            grant = await call(self.authorize, inbound, action)
        except Exception as error:
            log.warning("authorize raised %s", type(error).__name__)
            return refused("authorization_failed")
        if not isinstance(grant, Grant):
            if grant is not None:
                log.warning("authorize returned %s, not a Grant or None", type(grant).__name__)
            return refused("rejected")
        if grant.identity.refusal(self.journal.core.now()) is not None:
            return refused("revoked")
        return grant

    def _worker(self, route: str) -> RouteWorker:
        worker = self._workers.get(route)
        if worker is None:
            worker = self._workers[route] = RouteWorker(self, route)
        return worker

    def forget(self, worker: RouteWorker) -> None:
        """A route has no work left here."""
        if self._workers.get(worker.route) is worker and worker.fence is None and worker.owed is None and not worker.jobs:
            del self._workers[worker.route]

    # Room: who feeds a runtime waits for it instead of asking again and again.

    def made_room(self) -> None:
        """An entry has left a queue."""
        self._room.set()

    async def wait_for_room(self) -> None:
        """
        Wait, after a refusal for `capacity`, until an entry has left a queue here, or for a quarter of a second for those of
        other processes.
        """
        self._room.clear()
        try:
            async with asyncio.timeout(0.25):
                await self._room.wait()
        except TimeoutError:
            return

    # What was found waiting.

    async def resume(self, identity: Identity, *, tenant: str | Every | None = None) -> Resumed:
        """
        Start what waits from openings that have ended, in the identity's scope or in the tenants that it names.

        Naming tenants is recorded as an act of the identity. Entries older than `max_wait` are stepped over: they stay accepted,
        are listed, and run when their event comes again.
        """
        core = self.journal.core
        reached = reach(identity, tenant)
        identity.require_active(core.now())
        found = await self.journal.core.read_async(lambda store: waiting_routes(store, reached))
        own = core.engine.opening_id
        idle = [
            worker
            for item in found
            if item.opening_id == own or not core.is_live(item.opening_id)
            if (worker := self._worker(item.route)).task is None
        ]
        if idle and tenant is not None:
            await self.submit(RecordAct("resumed", identity))
        for worker in idle:
            worker.start()
        return Resumed(len(idle))

    async def drain(self, timeout: timedelta | str | None = None) -> bool:  # noqa: ASYNC109 - it answers, and does not raise
        """Wait until no route has work here; tells whether that came within the time."""
        end = None if timeout is None else asyncio.get_running_loop().time() + microseconds(timeout, name="timeout") / 1_000_000
        while tasks := [worker.task for worker in self._workers.values() if worker.task is not None and not worker.task.done()]:
            left = None if end is None else end - asyncio.get_running_loop().time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(tasks, timeout=left)
        return True

    # Reconcile with sending.

    async def reconcile(
        self,
        identity: Identity,
        operation_id: str,
        *,
        expected_version: int,
        acknowledge_duplicate_risk: bool = False,
        force: bool = False,
        reason: str = "operator",
        note: str | None = None,
        command_id: str | bytes | None = None,
        tenant: str | Every | None = None,
    ) -> Reconciliation:
        """
        File what cannot be proven, and send again what has to be sent: as `Desk.reconcile`, with the sending.

        A reply that is pending or unknown needs `acknowledge_duplicate_risk`. `authorize` is asked again; without a grant nothing
        is sent. The resend is claimed in the journal before it is sent, so of two operators at once one sends. An identity that
        is not active, or may not name the tenant, is answered with `denied`.
        """
        try:
            reached = reach(identity, tenant)
            command = partial(
                reconcile_command,
                reached,
                operation_id,
                expected_version=expected_version,
                acknowledge_duplicate_risk=acknowledge_duplicate_risk,
                force=force,
                reason=reason,
                note=note,
                command_id=command_id,
            )
            command(may_send=False)  # says what is wrong with the words before anything is looked at
            identity.require_active(self.journal.core.now())
            for _ in range(2):
                found = await self._find(reached, operation_id)
                leave = "unasked" if found is None else await self._ask_again(found, expected_version, acknowledge_duplicate_risk)
                if found is not None and leave == "withdrawn":
                    return Reconciliation("denied", version=found.operation.version)
                with suppress(NeedsRuntime):  # it has become what would be sent, and the host was not asked: look again
                    answer = await self.submit(command(may_send=leave == "granted"))
                    return await self._resend(answer, found) if isinstance(answer, ResendClaimed) else answer
            return Reconciliation("conflict", detail="stale")
        except Denied:
            return Reconciliation("denied")
        except JournalUnavailable:
            return Reconciliation("unavailable")

    async def _find(self, reached: Reach, operation_id: str) -> Found | None:
        """Read an operation; None if it is not known within the reach. Where its scope was erased, nothing of it can be sent."""
        found = await self.journal.core.read_async(lambda store: find(store, operation_id))
        if found is None or (found.scope is not None and not reached.includes(found.scope)):
            return None
        return found if found.scope is not None else found._replace(inbound=None, reply=None)

    async def _ask_again(
        self, found: Found, expected_version: int, acknowledged: bool
    ) -> Literal["granted", "withdrawn", "unasked"]:
        """Ask the host anew where a reply would be sent. What cannot be sent needs no grant, and is claimed to be filed."""
        operation = found.operation
        if operation.version != expected_version or operation.resolved or not operation.ended:
            return "unasked"
        if operation.reply != "delivery_failed" and not acknowledged:
            return "unasked"
        if found.inbound is None or found.reply is None:
            return "granted" if found.reply is None else "withdrawn"
        grant = await self.grant_for(found.inbound, "message")
        return "granted" if isinstance(grant, Grant) and grant.identity.scope == found.scope else "withdrawn"

    async def _resend(self, claimed: ResendClaimed, found: Found | None) -> Reconciliation:
        if found is None or found.reply is None:
            delivery = Delivery("delivery_failed", "text_erased")
        else:
            delivery = await self.send(found.reply)
        owed = Owed(self.journal.core.committer, Mark(claimed.operation.operation_id, claimed.attempt, delivery))
        marked = await self.insist(owed, self.limits.duration("busy_wait") / 1_000_000)
        return Reconciliation("resolved", _RESENT[delivery.outcome], version=marked.operation.version)

    # What workers use.

    async def submit(self, command: Command[T]) -> T:
        """Run a command in the journal."""
        return await self.journal.core.committer.submit_async(command)

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
        found = await self.journal.core.read_async(lambda store: find(store, operation.operation_id))
        return found or Found(operation)

    async def send(self, reply: Reply) -> Delivery:
        """Call the host's `deliver`, and count what is known."""
        delivery = await send(self._deliver, reply, self._deliver_seconds, self._keep)
        self._count_delivery(delivery)
        return delivery

    def _count_delivery(self, delivery: Delivery) -> None:
        self.counters["deliveries"] += delivery.outcome == "delivered"
        self.counters["delivery_failures"] += delivery.outcome == "delivery_failed"

    def count_outcome(self, outcome: Outcome) -> None:
        self.counters["completed" if outcome == "succeeded" else outcome] += 1

    def refuse_late(self, run: Run, operation_id: str, fence: int) -> None:
        """A run did not end when it was told to: when it does, its result is refused, and the refusal recorded."""

        def ended(_: asyncio.Task[Any]) -> None:
            with suppress(CounterfoilError):
                Owed(self.journal.core.committer, Settle(operation_id, fence, run.answer())).submit()

        self._keep(run.task)
        run.task.add_done_callback(ended)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        """Hold on to a task that goes on after its time; what it raises in the end is nobody's news."""
        self._late.add(task)
        task.add_done_callback(self._late_ended)

    def _late_ended(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()

    # Leases.

    def keep_renewing(self) -> None:
        """See that the leases of this runtime are renewed as long as it has any."""
        if self._renewer is None or self._renewer.done():
            self._renewer = asyncio.create_task(self._renew(), name="counterfoil-renewal")

    async def _renew(self) -> None:
        """Renew every third of the ttl: one command for all leases. A lease that was not renewed in time is lost."""
        core = self.journal.core
        ttl = self.limits.duration("lease_ttl")
        renewed = core.clock.boot()
        while True:
            await asyncio.sleep(ttl / 3 / 1_000_000)
            held = [(worker, worker.fence) for worker in self._workers.values() if worker.fence is not None]
            if not held:
                return
            asked = core.clock.boot()
            standing: frozenset[str] = frozenset()
            try:
                standing = await self.submit(Renew())
                renewed = asked
            except JournalUnavailable:
                self.counters["storage_failures"] += 1
                if core.clock.boot() - renewed < ttl * 1_000:
                    continue
            except Exception as error:  # nothing will renew them: no run may go on as if it held its route
                log.error("the leases are lost: their renewal failed with %s", type(error).__name__)
            for worker, fence in held:
                if worker.fence == fence and worker.lease_id not in standing:
                    worker.lose_lease()

    async def wait_for_route(self, claimed: Claimed | None) -> None:
        """Wait until the opening that holds a route has ended, or the history has moved on since the claim was tried."""
        core = self.journal.core
        while claimed is not None and not self.stopping:
            await asyncio.sleep(WATCH_SECONDS)
            if claimed.holder is not None and not core.is_live(claimed.holder):
                return
            if await self._position() != claimed.position:
                return

    async def _position(self) -> int:
        """Return the position of the head, read once for all routes that wait."""
        async with self._look:
            now = asyncio.get_running_loop().time()
            if now - self._seen[0] > WATCH_SECONDS / 2:
                self._seen = (now, await self.journal.position())
            return self._seen[1]

    # The end.

    async def stop(self, *, keep_queued: bool = False) -> None:
        """
        Refuse new work, cancel what waits, abort what runs, wait at most `stop_deadline`, and give the leases back.

        With `keep_queued` what waits stays accepted, and the next `resume` runs it. A run that does not end in time is recorded
        as `execution_unknown`. Calling it again retries what failed: a store that is away is no error here; the first error of
        another kind is raised when all has been tried.
        """
        self.stopping = True
        self.made_room()
        workers = list(self._workers.values())
        errors: list[BaseException] = []
        for worker in workers:
            if worker.run is not None:
                worker.run.abort("cancelled_at_shutdown")
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
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
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
