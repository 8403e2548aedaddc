"""
One route's work: its entries are claimed, run, settled and answered one after the other, by one task.

The journal decides what is next. What this process admitted it has at hand; the head of somebody else it reads, and asks the host
for anew.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import Closed, JournalUnavailable
from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.domain.identity import Grant
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.operation import Operation
from counterfoil.domain.turn import Answer, Delivery, cut

from .callbacks import Agent, call, is_async
from .commands.turn import Claim, Claimed, GiveUp, Mark, Release, Settle, Settled, SettleUnclaimed
from .committer import Command
from .remembering import reply_to, text_of

if TYPE_CHECKING:
    from .runtime import Runtime

log = logging.getLogger(__name__)

T = TypeVar("T")

FAILURE_NOTICE: Final = "Sorry, this could not be answered."
"""What a person is told when a run failed: never what the failure said."""
FIRST_RETRY: Final = 0.05
LONGEST_RETRY: Final = 2.0

Step: TypeAlias = Literal["again", "idle", "wait", "retry"]


class Job(NamedTuple):
    """An admitted event with the grant that it may be run under."""

    operation_id: str
    inbound: Inbound
    grant: Grant


class Run:
    """An agent at work on one turn."""

    def __init__(self, agent: Agent, turn: Turn) -> None:
        self.cancellable = is_async(agent)
        self.reason: str | None = None
        self.aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Any] = asyncio.create_task(call(agent, turn), name="counterfoil-run")

    def abort(self, reason: str) -> None:
        """Tell the run to end. A plain function in a thread cannot be told; it is waited for."""
        if self.reason is None:
            self.reason = reason
            self.aborted.set_result(None)
            if self.cancellable:
                self.task.cancel()

    async def ended(self, max_turn: float, deadline: float) -> bool:
        """
        Wait for the end, abort a run that takes longer than `max_turn`, and tell whether it ended within `deadline` of an abort.
        """
        await asyncio.wait({self.task, self.aborted}, timeout=max_turn, return_when=asyncio.FIRST_COMPLETED)
        if not self.task.done():
            self.abort("max_turn")
            await asyncio.wait({self.task}, timeout=deadline)
        return self.task.done()

    def answer(self) -> Answer:
        """Return how an ended run is settled."""
        if self.task.cancelled():
            return Answer("cancelled", self.reason or "cancelled_by_agent")
        error = self.task.exception()
        if error is not None:
            log.warning("an agent raised %s", type(error).__name__)
            return Answer("failed", "run_failed", FAILURE_NOTICE)
        result = self.task.result()
        if isinstance(result, AgentAnswer):
            return Answer("succeeded", reply=result.text, leaf=result.leaf)
        if result is None or isinstance(result, str):
            return Answer("succeeded", reply=result or None)
        log.warning("an agent returned %s, not text", type(result).__name__)
        return Answer("failed", "unexpected_answer", FAILURE_NOTICE)


class RouteWorker:
    """Run what waits on one route until nothing does."""

    def __init__(self, runtime: Runtime, route: str) -> None:
        self.runtime = runtime
        self.route = route
        self.jobs: dict[int, Job] = {}
        """By position of the admission, what this process may run."""
        self.fence: int | None = None
        self.lease_id = ""
        self.last_run = ""
        """The operation that was claimed last under the lease."""
        self.run: Run | None = None
        self.task: asyncio.Task[None] | None = None
        self._next: int | None = None
        self._claimed: Claimed | None = None

    def add(self, position: int, job: Job) -> None:
        if position not in self.jobs:
            self.jobs[position] = job
            self.runtime.counters["queued"] += 1

    def start(self) -> None:
        """Begin, if it is not at work already; what is at work sees what was added."""
        if self.task is None:
            self.task = asyncio.create_task(self._work(), name="counterfoil-route")

    def lose_lease(self) -> None:
        """The route is no longer this process's: stop what runs under its lease."""
        self.fence = None
        self.runtime.counters["lease_losses"] += 1
        if self.run is not None:
            self.run.abort("lease_lost")

    async def _work(self) -> None:
        retry = FIRST_RETRY
        try:
            while not self.runtime.stopping:
                step = await self._guarded_step()
                if step == "idle":
                    break
                if step == "wait":
                    await self.runtime.wait_for_route(self._claimed)
                if step == "retry":
                    await asyncio.sleep(retry)
                retry = min(retry * 2, LONGEST_RETRY) if step == "retry" else FIRST_RETRY
        finally:
            self.task = None
            if self.jobs and not self.runtime.stopping:
                self.start()
            else:
                self.runtime.forget(self)

    async def _guarded_step(self) -> Step:
        try:
            async with self.runtime.slots:
                return "idle" if self.runtime.stopping else await self._step()
        except JournalUnavailable:
            self.runtime.counters["storage_failures"] += 1
        except Closed:
            return "idle"
        except Exception as error:
            log.error(
                "a step of a route failed with %s; it is tried again",
                type(error).__name__,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
        return "retry"

    async def _step(self) -> Step:
        """Claim and run the next entry, or find out what is in its way."""
        expected = self._next if self._next in self.jobs else min(self.jobs, default=None)
        self._next = None
        known = set(self.jobs)
        job: Job | None = None
        agent: Agent | None = None
        if expected is not None:
            job = self.jobs[expected]
            agent = await self._prepare(expected, job)
            if agent is None:
                return "again"
        claimed = self._claimed = await self._claim(expected)
        match claimed.found:
            case "claimed":
                assert job is not None and agent is not None and expected is not None
                self._drop(expected)
                return await self._turn(claimed, job, agent)
            case "head":
                assert claimed.operation is not None
                await self._look_at(claimed.operation)
                return "again"
            case "empty":
                for position in known:
                    self._drop(position)
                return await self._rest()
        return "wait"

    async def _claim(self, expected: int | None) -> Claimed:
        claimed: Claimed = await self.runtime.submit(Claim(self.route, expected))
        if claimed.found == "claimed":
            assert claimed.operation is not None
            self.fence, self.lease_id, self.last_run = claimed.fence, claimed.lease_id, claimed.operation.operation_id
            self.runtime.keep_renewing()
        return claimed

    async def _rest(self) -> Step:
        """Nothing waits: give the lease back, if one is left. A failure keeps it, for the next time."""
        if self.fence is not None and await self.runtime.submit(Release(self.route, self.fence, self.last_run)):
            self.fence = None
        return "idle" if not self.jobs else "again"

    def _drop(self, position: int) -> Job | None:
        job = self.jobs.pop(position, None)
        if job is not None:
            self.runtime.counters["queued"] -= 1
            self.runtime.made_room()
        return job

    # Before the claim.

    async def _prepare(self, position: int, job: Job) -> Agent | None:
        """Return the agent for an entry; None when it has been ended instead."""
        if job.grant.identity.refusal(self.runtime.journal.core.now()) is not None:
            await self._end_unclaimed(position, job, Answer("failed", "identity_revoked"))
            return None
        try:
            agent = await call(self.runtime.resolve_agent, job.grant.alias, job.grant.identity, job.inbound)
        except Exception as error:
            log.warning("resolve_agent raised %s", type(error).__name__)
            agent = None
        if not callable(agent):
            await self._end_unclaimed(position, job, Answer("failed", "runtime_error", FAILURE_NOTICE))
            return None
        return agent  # type: ignore[no-any-return]

    async def _look_at(self, head: Operation) -> None:
        """Make the head of the route this process's next job: what others admitted is authorised anew from its stored text."""
        if head.position not in self.jobs:
            remembered = await self.runtime.remembered(head.operation_id)
            inbound = None if remembered is None else remembered.inbound
            if inbound is None or not inbound.text:
                await self._refuse(head, "rejected")
                return
            grant = await self.runtime.grant_for(inbound, "message")
            if isinstance(grant, Admission):
                await self._refuse(head, "authorization_failed" if grant.reason == "authorization_failed" else "rejected")
                return
            self.add(head.position, Job(head.operation_id, inbound, grant))
        self._next = head.position

    async def _refuse(self, head: Operation, code: str) -> None:
        await self.runtime.submit(SettleUnclaimed(head.operation_id, Answer("failed", code)))
        self.runtime.count_outcome("failed")

    async def _end_unclaimed(self, position: int, job: Job, answer: Answer) -> None:
        operation: Operation | None = await self.runtime.submit(SettleUnclaimed(job.operation_id, answer))
        self._drop(position)
        if operation is not None:
            self.runtime.count_outcome(answer.outcome)
            if answer.reply:
                await self._deliver(operation, job, answer.reply)

    async def cancel_waiting(self) -> None:
        """End what waits as cancelled, durably."""
        for position, job in list(self.jobs.items()):
            await self._end_unclaimed(position, job, Answer("cancelled", "cancelled_at_shutdown"))

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
        limits = self.runtime.limits
        run = self.run = Run(agent, turn)
        if self.runtime.stopping:
            run.abort("cancelled_at_shutdown")
        self.runtime.counters["active"] += 1
        try:
            ended = await run.ended(limits.duration("max_turn") / 1e6, limits.duration("stop_deadline") / 1e6)
        finally:
            self.runtime.counters["active"] -= 1
            self.run = None
        if not ended:
            await self._insist(GiveUp(operation.operation_id, run.reason or "stop_deadline"))
            self.runtime.refuse_late(run, operation.operation_id, fence)
            return await self._rest()
        answer = run.answer()
        settled: Settled = await self._insist(Settle(operation.operation_id, fence, answer))
        if settled.found == "late":
            if self.fence == fence:
                self.lose_lease()
            return "again"
        self.runtime.count_outcome(answer.outcome)
        if answer.reply:
            settled = await self._deliver(settled.operation, job, answer.reply)
        if settled.released:
            self.fence = None
            return "idle" if not self.jobs else "again"
        return "again"

    async def _deliver(self, operation: Operation, job: Job, text: str) -> Settled:
        """Send a staged reply and record what is known of it. An identity that is no longer active sends nothing."""
        runtime = self.runtime
        body, truncated = cut(text, runtime.limits.max_response_bytes)
        runtime.counters["truncated"] += truncated
        try:
            if job.grant.identity.refusal(runtime.journal.core.now()) is not None:
                delivery = Delivery("delivery_failed", "identity_revoked")
            else:
                delivery = await runtime.send(reply_to(operation, job.inbound, text_of(body)))
        except asyncio.CancelledError:
            with suppress(Closed, JournalUnavailable):
                await asyncio.shield(
                    runtime.submit(Mark(operation.operation_id, 1, Delivery("delivery_unknown", "stop_deadline")))
                )
            raise
        marked: Settled = await self._insist(Mark(operation.operation_id, 1, delivery, self.fence))
        return marked

    async def _insist(self, command: Command[T]) -> T:
        """Run a command that must not be lost: while the store cannot take it, try again."""
        retry = FIRST_RETRY
        while True:
            try:
                return await self.runtime.submit(command)
            except JournalUnavailable:
                self.runtime.counters["storage_failures"] += 1
                await asyncio.sleep(retry)
                retry = min(retry * 2, LONGEST_RETRY)
