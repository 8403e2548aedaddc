"""
One route's work: its entries are claimed, run, settled and answered one after the other, by one task.

The journal decides what is next. What this process admitted it has at hand; the head of somebody else it reads, and asks the host
for anew.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import Closed, JournalUnavailable
from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.domain.identity import Grant
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.lock import LossReason
from counterfoil.domain.operation import Operation, Outcome
from counterfoil.domain.turn import Answer, Delivery, cut

from .callbacks import Agent, Ended, in_thread, is_async
from .commands.holds import Granted
from .commands.turn import Claim, Claimed, Disown, GiveUp, Mark, Release, Settle, Settled, SettleUnclaimed, answer_of
from .owed import Owed
from .remembering import reply_to, text_of

if TYPE_CHECKING:
    from .routes import Routes

log = logging.getLogger(__name__)

FAILURE_NOTICE: Final = "Sorry, this could not be answered."
"""What a person is told when a run failed: never what the failure said."""
LEASE_LOST: Final = "lease_lost"
"""Why a run was told to end that may no longer tell how it ended."""
FIRST_RETRY: Final = 0.05
LONGEST_RETRY: Final = 2.0

Step: TypeAlias = Literal["again", "idle", "wait", "retry", "closed"]


class Job(NamedTuple):
    """An admitted event with the grant that it may be run under."""

    operation_id: str
    inbound: Inbound
    grant: Grant
    alias: str
    """The agent of its route."""
    adopted: bool = False
    """It was found waiting, and did not come to this process."""


class Run:
    """An agent at work on one turn."""

    def __init__(self, agent: Agent, turn: Turn) -> None:
        self.reason: str | None = None
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_thread = False
        self.task: asyncio.Task[Ended] = asyncio.create_task(self._call(agent, turn), name="counterfoil-run")

    async def _call(self, agent: Agent, turn: Turn) -> Ended:
        try:
            if is_async(agent):
                return Ended(await agent(turn))  # type: ignore[misc]
            self._in_thread = True
            result = (await in_thread(agent, turn)).result()
            self._in_thread = False
            if not inspect.isawaitable(result):
                return Ended(result)
            if self.reason is None:
                return Ended(await result)
            if inspect.iscoroutine(result):
                result.close()
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return Ended.by(error)

    def abort(self, reason: str) -> None:
        """Tell the run to end. A plain function in a thread cannot be told; it is waited for."""
        if self.reason is None:
            self.reason = reason
            self.aborted.set_result(None)
            if not self._in_thread:
                self.task.cancel()

    async def ended(self, max_turn: float, deadline: float) -> bool:
        """
        Wait for the end, abort a run that takes longer than `max_turn`, and tell whether it ended within `deadline` of an abort.
        """
        either: set[asyncio.Future[Any]] = {self.task, self.aborted}
        await asyncio.wait(either, timeout=max_turn, return_when=asyncio.FIRST_COMPLETED)
        if not self.task.done():
            self.abort("max_turn")
            await asyncio.wait({self.task}, timeout=deadline)
        return self.task.done()

    def answer(self) -> Answer:
        """Return how an ended run is settled."""
        if self.task.cancelled():
            return Answer("cancelled", self.reason or "cancelled_by_agent")
        ended = self.task.result()
        if ended.error is not None:
            log.warning("an agent raised %s", type(ended.error).__name__)
            return Answer("failed", "run_failed", FAILURE_NOTICE)
        result = ended.result()
        if result is None or isinstance(result, str | AgentAnswer):
            return answer_of(result)
        log.warning("an agent returned %s, not text", type(result).__name__)
        return Answer("failed", "unexpected_answer", FAILURE_NOTICE)


class RouteLease:
    """The lease of a route, as the keeper of leases sees it."""

    def __init__(self, worker: RouteWorker, granted: Granted, ttl: int) -> None:
        self._worker = worker
        self.fence = granted.fence
        self.lease_id = granted.lease_id
        self.token = granted.token
        self.ttl = ttl
        self.at = granted.at
        self.due = 0.0

    def renewed(self, at: int) -> None:
        self.at = at

    def passed(self) -> None:
        self._worker.lose_lease(self)

    def lost(self, reason: LossReason) -> None:
        self._worker.lose_lease(self)


class RouteWorker:
    """Run what waits on one route until nothing does."""

    def __init__(self, routes: Routes, route: str) -> None:
        self.routes = routes
        self.route = route
        self.jobs: dict[int, Job] = {}
        """By position of the admission, what this process may run."""
        self.lease: RouteLease | None = None
        self.last_run = ""
        """The operation that was claimed last under the lease."""
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self.owed: Owed[Settled | None] | None = None
        """What the journal has to be told, and is not known to have taken yet."""
        self._next: int | None = None
        self._claimed: Claimed | None = None

    def add(self, position: int, job: Job) -> None:
        if position not in self.jobs:
            self.jobs[position] = job
            self.routes.counters["queued"] += 1

    def start(self) -> None:
        """Begin, if it is not at work already; what is at work sees what was added."""
        if self.task is None:
            self.task = asyncio.create_task(self._work(), name="counterfoil-route")

    @property
    def fence(self) -> int | None:
        """Of the lease that it has on its route."""
        return None if self.lease is None else self.lease.fence

    def _take(self, granted: Granted) -> None:
        """The route's lease is this worker's, and is renewed from now on."""
        if granted.fence != self.fence:
            self._let_go()
            self.lease = RouteLease(self, granted, self.routes.limits.duration("lease_ttl"))
            self.routes.keeper.keep(self.lease)

    def _let_go(self) -> None:
        """The route's lease is no longer this worker's."""
        if self.lease is not None:
            self.routes.keeper.leave(self.lease)
            self.lease = None

    def lose_lease(self, lease: RouteLease | None) -> None:
        """The route is no longer this process's: stop what runs under its lease."""
        if lease is None or lease is not self.lease:
            return
        self._let_go()
        self.routes.counters["lease_losses"] += 1
        if self.run is not None:
            self.run.abort(LEASE_LOST)

    async def _work(self) -> None:
        retry = FIRST_RETRY
        try:
            while not self.routes.stopping:
                step = await self._guarded_step()
                if step == "closed":
                    self.leave()
                if step in ("idle", "closed"):
                    break
                if step == "retry":
                    await asyncio.sleep(retry)
                retry = min(retry * 2, LONGEST_RETRY) if step == "retry" else FIRST_RETRY
        finally:
            self.task = None
            self.routes.forget(self)
        if self.jobs and not self.routes.stopping:  # never when it was cancelled: whoever did that wants it to end
            self.start()

    async def _guarded_step(self) -> Step:
        try:
            async with self.routes.slots:
                step = "idle" if self.routes.stopping else await self._step()
            if step == "wait":
                await self.routes.wait_for_route(self._claimed)
            return step
        except JournalUnavailable:
            self.routes.counters["storage_failures"] += 1
        except Closed:
            return "closed"
        except Exception as error:
            log.error("a step of a route failed with %s; it is tried again", type(error).__name__)
            log.debug("where it failed: %s", "".join(traceback.format_tb(error.__traceback__)))  # its message may hold ids
        return "retry"

    async def _step(self) -> Step:
        """Claim and run the next entry, or find out what is in its way."""
        if (owed := self.owed) is not None:  # a step before has failed after its run; the route is not free until that is told
            self._landed(owed, await owed.answer())
        expected = None
        if self._next in self.jobs:
            expected = self._next
        elif self._claimed is None or self._claimed.found not in ("held", "busy"):  # then only look whether it is free by now
            expected = min(self.jobs, default=None)
        self._next = None
        known = set(self.jobs)
        job = None if expected is None else self.jobs[expected]
        prepared = None if job is None else await self._prepare(job)
        if self.routes.stopping:
            return "idle"
        claimed = self._claimed = await self._claim(None if isinstance(prepared, Answer) else expected)
        match claimed.found:
            case "claimed":
                assert job is not None and expected is not None and prepared is not None and not isinstance(prepared, Answer)
                self._drop(expected)
                return await self._turn(claimed, job, prepared)
            case "head":
                assert claimed.operation is not None
                if job is not None and isinstance(prepared, Answer) and claimed.operation.position == expected:
                    await self._end_unclaimed(expected, job, prepared)
                    return "again"
                return await self._look_at(claimed.operation, known)
            case "empty":
                for position in known:
                    self._drop(position)
                return await self._rest()
        return "wait"

    async def _claim(self, expected: int | None) -> Claimed:
        claimed: Claimed = await self.routes.submit(Claim(self.route, expected))
        if claimed.found == "claimed":
            assert claimed.operation is not None
            assert claimed.lease is not None
            self._take(claimed.lease)
            self.last_run = claimed.operation.operation_id
        return claimed

    async def _rest(self) -> Step:
        """Nothing waits: give the lease back, if one is left. A failure keeps it, for the next time."""
        if self.fence is not None:
            if await self.routes.submit(Release(self.route, self.fence, self.last_run)) == "needed":
                return "wait"  # for the history to move on: an entry came since the claim, or another runtime runs one
            self._let_go()
        return "idle" if not self.jobs else "again"

    def leave(self) -> None:
        """Leave what waits to others: the journal has it."""
        for position in list(self.jobs):
            self._drop(position)

    def _drop(self, position: int) -> Job | None:
        job = self.jobs.pop(position, None)
        if job is not None:
            self.routes.counters["queued"] -= 1
            self.routes.made_room()
        return job

    # Before the claim.

    async def _prepare(self, job: Job) -> Agent | Answer:
        """Return the agent for an entry, or how the entry ends instead once it is the head."""
        if job.grant.identity.refusal(self.routes.core.now()) is not None:
            return Answer("failed", "identity_revoked")
        if job.alias not in job.grant.aliases:
            return Answer("failed", "rejected")
        agent = await self.routes.host.agent(job.alias, job.grant, job.inbound)
        return Answer("failed", "runtime_error", FAILURE_NOTICE) if agent is None else agent

    async def _look_at(self, head: Operation, known: set[int]) -> Step:
        """Make the head of the route this process's next job: what others admitted is authorised anew from its stored text."""
        if head.position not in self.jobs:
            found = await self.routes.look_up(head)
            for position in known - found.waiting:
                self._drop(position)
            if found.inbound is None or not found.inbound.text:
                await self._refuse(head, "rejected")
                return "again"
            grant = await self.routes.host.authorize(found.inbound, "message")
            if isinstance(grant, Admission) and grant.reason == "authorization_failed":
                return "retry"  # the host could not say: what was accepted waits until it can
            if isinstance(grant, Admission) or grant.identity.scope != found.scope:
                await self._refuse(head, "rejected")
                return "again"
            self.add(head.position, Job(head.operation_id, found.inbound, grant, head.alias, adopted=True))
        self._next = head.position
        return "again"

    async def _refuse(self, head: Operation, code: str) -> None:
        if await self.routes.submit(SettleUnclaimed(head.operation_id, Answer("failed", code))) is not None:
            self.routes.count_outcome("failed")

    async def _end_unclaimed(self, position: int, job: Job, answer: Answer) -> None:
        operation: Operation | None = await self.routes.submit(SettleUnclaimed(job.operation_id, answer))
        self._drop(position)
        if operation is not None:
            self.routes.count_outcome(answer.outcome)
            if answer.reply:
                await self._deliver(operation, job, *self._cut(answer.reply))

    async def cancel_waiting(self) -> None:
        """End, durably, what came to this process and waits. What it found waiting is left to the next."""
        for position, job in list(self.jobs.items()):
            if not job.adopted:
                await self._end_unclaimed(position, job, Answer("cancelled", "cancelled_at_shutdown"))

    async def let_go(self) -> None:
        """Tell the journal what it could not be told before, and give the lease back; what fails is kept for the next time."""
        if (owed := self.owed) is not None:
            self._landed(owed, await owed.answer())
        if self.fence is not None:
            await self.routes.submit(Release(self.route, self.fence, self.last_run, force=True))
            self._let_go()

    # The turn.

    async def _turn(self, claimed: Claimed, job: Job, agent: Agent) -> Step:
        operation, fence = claimed.operation, claimed.fence
        assert operation is not None and fence is not None
        turn = Turn(
            operation_id=operation.operation_id,
            connection=operation.connection,
            conversation=job.inbound.conversation,
            thread=job.inbound.thread,
            actor=job.inbound.actor,
            event_id=job.inbound.event_id,
            text=job.inbound.text,
            session_id=claimed.session_id,
            generation=claimed.generation,
        )
        answer = await self._answer(operation, fence, agent, turn)
        settled = await self._insist(Settle(operation.operation_id, fence, answer)) if isinstance(answer, Answer) else answer
        if settled is None or settled.found == "late":
            return "again"
        if settled.staged is not None:
            settled = await self._deliver(settled.operation, job, settled.staged.payload.body, settled.staged.truncated)
        elif settled.found == "settled" and isinstance(answer, Answer) and answer.reply:
            settled = await self._deliver(settled.operation, job, *self._cut(answer.reply))
        return "idle" if settled.released and not self.jobs else "again"

    async def _answer(self, operation: Operation, fence: int, agent: Agent, turn: Turn) -> Answer | Settled | None:
        """
        Run the agent and return how the run ended; None when nobody can tell, or it is no longer this worker's to tell. Then a
        transaction of the host's may have settled it before.
        """
        if self.routes.stopping:
            return Answer("cancelled", "cancelled_at_shutdown")
        limits = self.routes.limits
        run = self.run = Run(agent, turn)
        self.routes.keep_watching()
        self.routes.counters["active"] += 1
        ended = False
        assert self.lease is not None
        try:
            with self.routes.core.turn(operation.operation_id, self.lease):
                ended = await run.ended(limits.duration("max_turn") / 1e6, limits.duration("stop_deadline") / 1e6)
        finally:
            self.routes.counters["active"] -= 1
            self.run = None
            if not run.task.done():
                self.routes.refuse_late(run, operation.operation_id, fence)
        if run.reason == LEASE_LOST:
            return await self._tell(Disown(operation.operation_id, fence, run.answer().outcome)) if ended else None
        if ended:
            return run.answer()
        return await self._tell(GiveUp(operation.operation_id, run.reason or "stop_deadline"))

    def _cut(self, text: str) -> tuple[bytes, bool]:
        return cut(text, self.routes.limits.max_response_bytes)

    async def _deliver(self, operation: Operation, job: Job, body: bytes, truncated: bool) -> Settled:
        """Send a staged reply and record what is known of it. An identity that is no longer active sends nothing."""
        routes = self.routes
        routes.counters["truncated"] += truncated
        try:
            if job.grant.identity.refusal(routes.core.now()) is not None:
                delivery = Delivery("delivery_failed", "identity_revoked")
            else:
                delivery = await routes.host.send(reply_to(operation, job.inbound, text_of(body)))
        except asyncio.CancelledError:
            with suppress(Closed):
                self._owe(Mark(operation.operation_id, 1, Delivery("delivery_unknown", "stop_deadline")))
            raise
        return await self._insist(Mark(operation.operation_id, 1, delivery, self.fence))

    # What must not be lost.

    def _owe(self, command: Settle | Disown | GiveUp | Mark) -> Owed[Settled | None]:
        """Submit a command that must not be lost; the end of this task leaves it, under way or not, to the next `stop`."""
        self.owed = owed = Owed[Settled | None](self.routes.core.committer, command)
        owed.submit()
        return owed

    async def _tell(self, command: Disown | GiveUp) -> Settled | None:
        """Submit a command until the journal has it; its answer is what a transaction of the host's has settled before."""
        owed = self._owe(command)
        before = await self.routes.insist(owed)
        self._landed(owed, before)
        return before

    async def _insist(self, command: Settle | Mark) -> Settled:
        """Submit a command until the journal has it."""
        owed = self._owe(command)
        settled = await self.routes.insist(owed)
        self._landed(owed, settled)
        assert settled is not None
        return settled

    def _landed(self, owed: Owed[Settled | None], settled: Settled | None) -> None:
        """The journal has what it was owed: count it, once, and see what has become of the lease."""
        if self.owed is not owed:
            return
        self.owed = None
        command = owed.command
        if settled is None:
            return
        if isinstance(command, Settle) and settled.found == "settled":
            self.routes.count_outcome(command.answer.outcome)
        elif settled.found == "before":
            self.routes.count_outcome(cast(Outcome, settled.operation.phase))
        if isinstance(command, Settle | Mark) and command.fence is not None and command.fence == self.fence:
            if settled.found == "late":
                self.lose_lease(self.lease)
            elif settled.released:
                self._let_go()
