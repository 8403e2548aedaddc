"""Claim, settle and mark: the commands of a turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from counterfoil.domain import turn
from counterfoil.domain.decision import SYSTEM, Actor, Payload, Step, Steps
from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.event import Header
from counterfoil.domain.exchange import AgentAnswer
from counterfoil.domain.ids import ROUTE_LOCK, ScopeKey, lock_id
from counterfoil.domain.lock import LockReleased, is_current
from counterfoil.domain.operation import Operation, Outcome, ReplyStaged
from counterfoil.domain.placing import Placing
from counterfoil.domain.turn import Answer, Delivery

from ..needs import Foresees, Needs
from ..tx import Fenced
from ..unit import Unit, header_of
from .guarding import check_lease
from .holds import Granted, granted

OUTCOMES: Final = get_args(Outcome)


def route_lease(unit: Unit, route: str) -> str:
    """Return the originator id of the lock that a route is run under."""
    return lock_id(unit.head.journal_key, ROUTE_LOCK, route)


class Claimed(NamedTuple):
    """What a claim found. `fence` is set when it was claimed, `operation` when there is a head."""

    found: Literal["claimed", "head", "held", "busy", "empty"]
    operation: Operation | None = None
    fence: int | None = None
    session_id: str = ""
    generation: int = 0
    lease: Granted | None = None
    """The route's lease, when it was claimed."""
    holder: int | None = None
    """The opening that holds the route, when that is another."""
    position: int = 0
    """The head of the history at which this was found."""
    free_at: int | None = None
    """When the lease that is in the way runs out unless it is renewed, in nanoseconds of the boot clock."""

    def placed(self, placing: Placing) -> Claimed:
        return self._replace(
            operation=None if self.operation is None else self.operation.placed(placing),
            fence=None if self.fence is None else placing.fence(self.fence),
            lease=None if self.lease is None else self.lease.placed(placing),
            position=placing.position(self.position),
        )


@dataclass(frozen=True, slots=True)
class Claim(Foresees):
    """Claim the head of a route if it is the expected operation; otherwise tell which it is."""

    route: str
    expected: int | None

    def needs(self, unit: Unit) -> Needs:
        return Needs(queues=(self.route,), bindings=(self.route,), leases=(route_lease(unit, self.route),))

    def run(self, unit: Unit) -> Claimed:
        expected = self._expected(unit)
        if expected is not None:
            unit.caches.tie(self.route, expected.conversation)
        lease_id = route_lease(unit, self.route)
        lease, deadline, binding = unit.lease(lease_id), unit.deadline(lease_id), unit.binding(self.route)
        queue = unit.queue(self.route)
        session_id = self._session(unit, expected)
        plan = turn.claim(expected, queue, lease_id, lease, deadline, binding, session_id, unit.context)
        shared = expected or (None if plan.head is None else unit.operation(plan.head.operation_id))
        for step in plan.steps:
            state = unit.operation(step.originator_id) if step.originator_id.startswith("op-") else shared
            unit.append((step,), Header() if state is None else header_of(state))
        if plan.head is None:
            return Claimed("empty", position=unit.head.position)
        operation = unit.operation(plan.head.operation_id)
        if plan.found != "claimed":
            holder = None if lease is None else lease.opening_id
            free_at = None
            if deadline is not None and plan.found in ("held", "busy"):
                free_at = unit.context.world.end_of(deadline)
            return Claimed(plan.found, operation, holder=holder, position=unit.head.position, free_at=free_at)
        lease, binding = unit.lease(lease_id), unit.binding(self.route)
        assert lease is not None and binding is not None
        given = granted(unit, lease_id)
        return Claimed("claimed", operation, lease.fence, binding.session_id, binding.generation, given)

    def _expected(self, unit: Unit) -> Operation | None:
        if self.expected is None:
            return None
        entry = unit.queue(self.route).find(self.expected)
        return unit.operation_at(self.expected) if entry is None else unit.operation(entry.operation_id)

    def _session(self, unit: Unit, expected: Operation | None) -> str:
        if expected is None:
            return ""
        key = unit.scope_key(expected.scope_id) or ScopeKey(expected.scope_id, unit.head.journal_key)
        return key.session(self.route, 0)

    def give_back(self, answer: Claimed) -> Settle | None:
        """A claim whose caller is gone ends as cancelled: nothing has run."""
        if answer.found != "claimed" or answer.operation is None or answer.fence is None:
            return None
        return Settle(answer.operation.operation_id, answer.fence, Answer("cancelled", "cancelled_before_start"))


SettleAnswer: TypeAlias = Literal["settled", "late", "before"]


class Staged(NamedTuple):
    """A reply that is to be sent, as it was staged."""

    payload: Payload
    truncated: bool


class Settled(NamedTuple):
    """How a turn is settled; `before` is by a host's transaction, with what it has staged."""

    found: SettleAnswer
    operation: Operation
    released: bool = False
    staged: Staged | None = None

    def placed(self, placing: Placing) -> Settled:
        return self._replace(operation=self.operation.placed(placing))


@dataclass(frozen=True, slots=True)
class Settle:
    """
    Settle a claimed operation with its answer, in one append, unless a host's transaction has. Without a reply to send, an idle
    route's lease goes with it.
    """

    operation_id: str
    fence: int
    answer: Answer

    def run(self, unit: Unit) -> Settled:
        operation = unit.operation(self.operation_id)
        assert operation is not None
        if (before := settled_before(unit, operation)) is not None:
            released = before.staged is None and release_if_idle(unit, operation, self.fence)
            return before._replace(released=released)
        lease_id = route_lease(unit, operation.route)
        settled, steps = turn.settle(
            operation, self.answer, self.fence, unit.lease(lease_id), unit.deadline(lease_id), unit.context
        )
        unit.append_for(operation, steps)
        released = settled and not self.answer.reply and release_if_idle(unit, operation, self.fence)
        return Settled("settled" if settled else "late", _now(unit, operation), released)


@dataclass(frozen=True, slots=True)
class SettleInside:
    """Settle a running turn in a host's transaction. Its worker keeps the lease, and goes on when the agent has ended."""

    operation_id: str
    lease: Fenced
    answer: str | AgentAnswer | None

    def run(self, unit: Unit) -> None:
        """Raises `LeaseLost` when the route is no longer this opening's, and `InvalidValue` when the turn has ended already."""
        check_lease(unit, self.lease)
        operation = unit.operation(self.operation_id)
        assert operation is not None
        lease_id = self.lease.lease_id
        settled, steps = turn.settle(
            operation, answer_of(self.answer), self.lease.fence, unit.lease(lease_id), unit.deadline(lease_id), unit.context
        )
        if not settled:
            raise InvalidValue("the turn has been settled already, or has ended without")
        unit.append_for(operation, steps)


def answer_of(result: str | AgentAnswer | None) -> Answer:
    """Return how a run is settled whose agent returned this."""
    if isinstance(result, AgentAnswer):
        return Answer("succeeded", reply=result.text, leaf=result.leaf)
    return Answer("succeeded", reply=result or None)


def settled_before(unit: Unit, operation: Operation) -> Settled | None:
    """
    Return how a claimed operation was settled that is to be settled or given up by its worker now; None when it was not.

    It is claimed once, so it was for the same run: by a host's transaction, or by an answer that was lost on its way back.
    """
    if operation.grant is None or operation.phase not in OUTCOMES:
        return None
    staged = None
    if operation.reply == "pending" and operation.attempts == 1 and operation.reply_position is not None:
        payload, event = unit.payload(operation.reply_position), unit.store.event_at(operation.reply_position)
        if payload is not None:
            staged = Staged(payload, isinstance(event, ReplyStaged) and event.truncated)
    return Settled("before", operation, staged=staged)


@dataclass(frozen=True, slots=True)
class Disown:
    """
    Refuse the result of a worker that has taken its lease for lost, be it that the lease stands: it cut its run off, and what it
    has is no answer. Nobody can tell what the run did, so the operation stays as it is; a lease that stands is given back.
    """

    operation_id: str
    fence: int
    outcome: Outcome

    def run(self, unit: Unit) -> Settled | None:
        """Return how a host's transaction has settled the turn, None when none has."""
        operation = unit.operation(self.operation_id)
        assert operation is not None
        lease_id = route_lease(unit, operation.route)
        before = settled_before(unit, operation)
        if before is None:
            unit.append_for(operation, turn.refuse_late(operation, self.outcome, self.fence))
        if is_current(unit.lease(lease_id), unit.deadline(lease_id), self.fence, unit.context.world):
            unit.append_for(operation, (Step(lease_id, LockReleased()),))
        return before


@dataclass(frozen=True, slots=True)
class SettleUnclaimed:
    """End an operation that waits: refused when looked at anew, or cancelled."""

    operation_id: str
    answer: Answer

    def run(self, unit: Unit) -> Operation | None:
        """Return the operation, or None when it waits no longer."""
        operation = unit.operation(self.operation_id)
        assert operation is not None
        steps = turn.settle_unclaimed(operation, self.answer, unit.context)
        unit.append_for(operation, steps)
        return _now(unit, operation) if steps else None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Record that nobody can tell what a run did, unless a host's transaction has told."""

    operation_id: str
    reason: str

    def run(self, unit: Unit) -> Settled | None:
        """Return how a host's transaction has settled the turn, None when none has."""
        operation = unit.operation(self.operation_id)
        assert operation is not None
        unit.append_for(operation, turn.give_up(operation, self.reason))
        return settled_before(unit, operation)


@dataclass(frozen=True, slots=True)
class Mark:
    """Record what is known of a sending; when the route is idle then, its lease goes in the same append."""

    operation_id: str
    attempt: int
    delivery: Delivery
    fence: int | None = None
    actor: Actor = SYSTEM

    def run(self, unit: Unit) -> Settled:
        operation = unit.operation(self.operation_id)
        assert operation is not None
        unit.append_for(operation, turn.mark(operation, self.attempt, self.delivery, self.actor))
        released = self.fence is not None and release_if_idle(unit, operation, self.fence)
        return Settled("settled", _now(unit, operation), released)

    def keeping_lease(self) -> Mark | None:
        """Return the same without giving the lease back: what became of a sending must not wait for that."""
        return None if self.fence is None else replace(self, fence=None)


ReleaseAnswer: TypeAlias = Literal["released", "needed", "gone"]


@dataclass(frozen=True, slots=True)
class Release:
    """
    Give a route's lease back, on behalf of the operation that was run last.

    With `force` also while entries wait: a clean stop leaves them to the next process.
    """

    route: str
    fence: int
    operation_id: str
    force: bool = False

    def run(self, unit: Unit) -> ReleaseAnswer:
        """Tell whether the lease is free now, is needed for entries that wait or run, or was no longer held."""
        lease_id = route_lease(unit, self.route)
        lease, deadline = unit.lease(lease_id), unit.deadline(lease_id)
        if not is_current(lease, deadline, self.fence, unit.context.world):
            return "gone"
        if self.force:
            steps: Steps = (Step(lease_id, LockReleased()),)
        else:
            steps = turn.release(lease_id, unit.queue(self.route), lease, deadline, self.fence, unit.context)
        operation = unit.operation(self.operation_id)
        assert operation is not None
        unit.append_for(operation, steps)
        return "released" if steps else "needed"


def release_if_idle(unit: Unit, operation: Operation, fence: int) -> bool:
    lease_id = route_lease(unit, operation.route)
    queue = unit.queue(operation.route)
    steps = turn.release(lease_id, queue, unit.lease(lease_id), unit.deadline(lease_id), fence, unit.context)
    unit.append_for(operation, steps)
    return bool(steps)


def _now(unit: Unit, operation: Operation) -> Operation:
    state = unit.operation(operation.operation_id)
    assert state is not None
    return state
