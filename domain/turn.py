"""A turn: the head of a route is claimed, run, settled with its answer in one append, and its reply marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from .admission import stale
from .decision import SYSTEM, Actor, Context, Payload, Step, Steps
from .ids import ROUTE_LOCK
from .lock import (
    Deadline,
    Lease,
    LockExpired,
    LockGranted,
    LockReleased,
    ended_by,
    fence_text,
    is_current,
)
from .operation import (
    EntrySteppedOver,
    Operation,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationLateRefused,
    OperationSettled,
    Outcome,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyKind,
    ReplyStaged,
)
from .route import Binding, BindingAdvanced, BindingOpened, Entry, Queue

TRUNCATED: Final = "\n[truncated]"
"""What a reply that was cut ends in; it counts towards the limit."""
MARKERS: Final = (TRUNCATED, "…", "~")
"""What it ends in where the limit is small: the first of these that leaves room for a character of the text."""


def cut(text: str, most: int) -> tuple[bytes, bool]:
    """
    Return a reply's bytes within `most`, cut on a code-point boundary, and whether it was cut.

    What was cut ends in a marker, so it is never empty, however small the limit: where none leaves room for a character, the
    longest marker that fits stands alone.
    """
    body = text.encode("utf-8", "surrogatepass")
    if len(body) <= most:
        return body, False
    markers = [marker for each in MARKERS if len(marker := each.encode()) <= most]
    for marker in markers:
        end = most - len(marker)
        while end and body[end] & 0xC0 == 0x80:
            end -= 1
        if end:
            return body[:end] + marker, True
    return markers[0], True


# Claim.


class ClaimPlan(NamedTuple):
    """How a claim goes: the steps in order, and what it found."""

    found: Literal["claimed", "head", "held", "busy", "empty"]
    steps: Steps = ()
    head: Entry | None = None
    granted: bool = False
    """The steps hold a new grant, so a deadline begins."""


def acquire(
    lease_id: str, lease: Lease | None, deadline: Deadline | None, context: Context, causation: int | None
) -> Steps | None:
    """Return the steps that give the route's lease to this opening: none when it has it, None when somebody else does."""
    if lease is not None and lease.held:
        cause = ended_by(lease, deadline, context.world)
        if cause is None:
            return () if lease.opening_id == context.world.opening_id else None
        expired: Steps = (Step(lease_id, LockExpired(cause=cause), causation=causation),)
    else:
        expired = ()
    grant = LockGranted(lock=ROUTE_LOCK, ttl=context.limits.duration("lease_ttl"))
    return (*expired, Step(lease_id, grant, causation=causation))


def claim(
    expected: Operation | None,
    queue: Queue,
    lease_id: str,
    lease: Lease | None,
    deadline: Deadline | None,
    binding: Binding | None,
    session_id: str,
    context: Context,
) -> ClaimPlan:
    """
    Claim the head of a route, if it is the operation that the caller has prepared; otherwise name the head.

    Entries of ended openings that waited too long are stepped over on the way.
    """
    waiting = queue.waiting
    passed = tuple(entry for entry in waiting if stale(entry, context))
    steps: Steps = tuple(Step(entry.operation_id, EntrySteppedOver(), causation=1) for entry in passed)
    head = next((entry for entry in waiting if entry not in passed), None)
    if head is None:
        return ClaimPlan("empty", steps)
    causation = expected.version if expected is not None else None
    acquired = acquire(lease_id, lease, deadline, context, causation)
    if acquired is None:
        return ClaimPlan("held", steps, head)
    if not acquired and lease is not None and any(entry.grant == lease.grant for entry in queue.entries):
        return ClaimPlan("busy", steps, head)
    if expected is None or expected.position != head.operation:
        return ClaimPlan("head", steps, head)
    grant = lease.grant if not acquired and lease is not None else (lease.version if lease is not None else 0) + len(acquired)
    opened: Steps = ()
    if binding is None:
        opened = (
            Step(queue.route, BindingOpened(alias=expected.alias, generation=0, session_id=session_id), causation=causation),
        )
    claimed = Step(
        expected.operation_id, OperationClaimed(grant=grant, admitted_at=expected.admitted_at), causation=expected.version
    )
    return ClaimPlan("claimed", (*steps, *acquired, *opened, claimed), head, granted=bool(acquired))


# Settlement.


class Answer(NamedTuple):
    """How a run ended. `reply` is staged in the same append; a run that succeeded with an empty text has none."""

    outcome: Outcome
    code: str | None = None
    reply: str | None = None
    """Sent as `final` after a success, and as a `notice` otherwise."""
    leaf: str | None = None

    def __repr__(self) -> str:
        return f"Answer({self.outcome}, code={self.code})"


def _staged(operation: Operation, answer: Answer, causation: int, context: Context) -> Steps:
    if not answer.reply:
        return ()
    body, truncated = cut(answer.reply, context.limits.max_response_bytes)
    payload: Payload = context.payload(body)
    kind: ReplyKind = "final" if answer.outcome == "succeeded" else "notice"
    staged = ReplyStaged(kind=kind, text=payload.committed, truncated=truncated)
    return (Step(operation.operation_id, staged, "system", causation=causation, payload=payload),)


def settle(
    operation: Operation, answer: Answer, fence: int, lease: Lease | None, deadline: Deadline | None, context: Context
) -> tuple[bool, Steps]:
    """
    Settle a claimed operation under its fence; a result that comes without the current one is refused, and the refusal recorded.
    """
    current = (
        operation.phase == "executing"
        and lease is not None
        and operation.grant == lease.grant
        and is_current(lease, deadline, fence, context.world)
    )
    if not current:
        return False, refuse_late(operation, answer.outcome, fence)
    settled = OperationSettled(
        outcome=answer.outcome,
        replied=bool(answer.reply),
        code=answer.code,
        fence=fence_text(fence),
        admitted_at=operation.admitted_at,
        claimed_at=operation.claimed_at,
    )
    settled_at = operation.version + 1
    steps = [Step(operation.operation_id, settled, "agent", causation=operation.version)]
    steps += _staged(operation, answer, settled_at, context)
    if answer.leaf is not None:
        steps.append(Step(operation.route, BindingAdvanced(leaf=answer.leaf), "agent", causation=settled_at))
    return True, tuple(steps)


def refuse_late(operation: Operation, outcome: Outcome, fence: int) -> Steps:
    """Record that a result was refused, because its worker had lost its lease."""
    refusal = OperationLateRefused(outcome=outcome, fence=fence_text(fence))
    return (Step(operation.operation_id, refusal, "agent", causation=operation.version),)


def settle_unclaimed(operation: Operation, answer: Answer, context: Context) -> Steps:
    """
    End an operation that was never claimed: refused when looked at anew, or cancelled while it waited. Nothing if it waits no
    longer.
    """
    if operation.phase != "accepted":
        return ()
    settled = OperationSettled(
        outcome=answer.outcome, replied=bool(answer.reply), code=answer.code, admitted_at=operation.admitted_at
    )
    return (
        Step(operation.operation_id, settled, causation=operation.version),
        *_staged(operation, answer, operation.version + 1, context),
    )


def give_up(operation: Operation, reason: str) -> Steps:
    """Record that nobody can tell what a run did: it did not end when it was told to."""
    if operation.phase != "executing":
        return ()
    unknown = OperationExecutionUnknown(reason=reason, acknowledged=False, forced=False)
    return (Step(operation.operation_id, unknown, causation=operation.version),)


# Delivery.

DeliveryOutcome: TypeAlias = Literal["delivered", "delivery_failed", "delivery_unknown"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is known of one sending. `reason` is a class word, `message_id` the platform's."""

    outcome: DeliveryOutcome
    reason: str | None = None
    message_id: str | None = field(default=None, repr=False)


def mark(operation: Operation, attempt: int, delivery: Delivery, actor: Actor = SYSTEM) -> Steps:
    """
    Record what is known of a sending. A mark that comes late, after another attempt was claimed, is recorded too: it is evidence.
    """
    if operation.reply == "none":
        return ()
    event: ReplyDelivered | ReplyDeliveryFailed | ReplyDeliveryUnknown
    match delivery.outcome:
        case "delivered":
            event = ReplyDelivered(attempt=attempt, admitted_at=operation.admitted_at)
        case "delivery_failed":
            event = ReplyDeliveryFailed(attempt=attempt, reason=delivery.reason or "failed")
        case "delivery_unknown":
            event = ReplyDeliveryUnknown(attempt=attempt, reason=delivery.reason or "unknown")
    return (
        Step(
            operation.operation_id,
            event,
            actor.kind,
            actor.pseudonym,
            causation=operation.version,
            external_id=delivery.message_id if delivery.outcome == "delivered" else None,
        ),
    )


def release(lease_id: str, queue: Queue, lease: Lease | None, deadline: Deadline | None, fence: int, context: Context) -> Steps:
    """Give a route's lease back, unless an entry waits on the route or runs under this grant."""
    if lease is None or not is_current(lease, deadline, fence, context.world):
        return ()
    if any(entry.grant in (None, lease.grant) for entry in queue.entries):
        return ()
    return (Step(lease_id, LockReleased()),)
