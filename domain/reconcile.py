"""
Reconcile: an operator files what cannot be proven, as an event after the others. Nothing earlier is changed, and no model is
called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from .decision import Actor, Context, Payload, Step, Steps
from .lock import Deadline, Lease, LockRevoked, stands
from .operation import (
    TEXT_ERASED,
    Operation,
    OperationAbandoned,
    OperationExecutionUnknown,
    ReplyDeliveryFailed,
    ReplyResendClaimed,
)

ReconcileStatus: TypeAlias = Literal["resolved", "not_found", "conflict", "denied", "unavailable"]
ReconcileOutcome: TypeAlias = Literal[
    "abandoned", "execution_unknown", "reply_delivered", "reply_failed", "reply_unknown", "none"
]
ReconcileDetail: TypeAlias = Literal["stale", "duplicate_risk", "holder_alive"]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The answer to an operator: what was filed, or why nothing was. `version` is that of the operation now."""

    status: ReconcileStatus
    outcome: ReconcileOutcome | None = None
    detail: ReconcileDetail | None = None
    version: int | None = None


class Reconcile(NamedTuple):
    """What an operator asks for and acknowledges. `reason` is a class word, `note` free text that is kept as a payload."""

    expected_version: int
    acknowledge_duplicate_risk: bool
    force: bool
    reason: str
    note: str | None

    def __repr__(self) -> str:
        return f"Reconcile(expected_version={self.expected_version}, reason={self.reason})"

    def payload(self, context: Context) -> Payload | None:
        return None if self.note is None else context.payload(self.note.encode("utf-8", "surrogatepass"))


class Resend(NamedTuple):
    """The claim of a resend: who appends it is the one that sends."""

    steps: Steps
    attempt: int


def _conflict(operation: Operation, detail: ReconcileDetail) -> Reconciliation:
    return Reconciliation("conflict", detail=detail, version=operation.version)


def reconcile(
    operation: Operation,
    command: Reconcile,
    lease_id: str,
    lease: Lease | None,
    deadline: Deadline | None,
    actor: Actor,
    context: Context,
    *,
    reply_kept: bool = True,
) -> tuple[Reconciliation, Steps] | Resend:
    """
    Decide what to file for an operation; a reply that has to be sent again comes back as `Resend`, claimed by its steps.

    One whose text was erased, so that `reply_kept` is false, is filed as failed for good.
    """
    if operation.version != command.expected_version:
        return _conflict(operation, "stale"), ()
    version = operation.version
    if operation.phase == "accepted":
        payload = command.payload(context)
        abandoned = OperationAbandoned(
            reason=command.reason, acknowledged=command.acknowledge_duplicate_risk, note=payload and payload.committed
        )
        step = Step(operation.operation_id, abandoned, actor.kind, actor.pseudonym, version, payload)
        return Reconciliation("resolved", "abandoned", version=version + 1), (step,)
    if operation.phase == "executing":
        return _file_execution(operation, command, lease_id, lease, deadline, actor, context)
    if operation.resolved:
        return Reconciliation("resolved", "none", version=version), ()
    if not reply_kept:
        failed = ReplyDeliveryFailed(attempt=operation.attempts, reason=TEXT_ERASED)
        step = Step(operation.operation_id, failed, actor.kind, actor.pseudonym, version)
        return Reconciliation("resolved", "reply_failed", version=version + 1), (step,)
    if operation.reply != "delivery_failed" and not command.acknowledge_duplicate_risk:
        return _conflict(operation, "duplicate_risk"), ()
    payload = command.payload(context)
    claimed = ReplyResendClaimed(
        attempt=operation.attempts + 1,
        acknowledged=command.acknowledge_duplicate_risk,
        reason=command.reason,
        note=payload and payload.committed,
    )
    step = Step(operation.operation_id, claimed, actor.kind, actor.pseudonym, version, payload)
    return Resend((step,), operation.attempts + 1)


def _file_execution(
    operation: Operation,
    command: Reconcile,
    lease_id: str,
    lease: Lease | None,
    deadline: Deadline | None,
    actor: Actor,
    context: Context,
) -> tuple[Reconciliation, Steps]:
    if not command.acknowledge_duplicate_risk:
        return _conflict(operation, "duplicate_risk"), ()
    alive = lease is not None and lease.grant == operation.grant and stands(lease, deadline, context.world)
    if alive and not command.force:
        return _conflict(operation, "holder_alive"), ()
    payload = command.payload(context)
    unknown = OperationExecutionUnknown(
        reason=command.reason, acknowledged=True, forced=command.force, note=payload and payload.committed
    )
    steps: list[Step] = []
    if alive:
        revoked = LockRevoked(reason=command.reason)
        steps.append(Step(lease_id, revoked, actor.kind, actor.pseudonym, operation.version))
    steps.append(Step(operation.operation_id, unknown, actor.kind, actor.pseudonym, operation.version, payload))
    return Reconciliation("resolved", "execution_unknown", version=operation.version + 1), tuple(steps)
