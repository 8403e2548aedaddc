"""
Admission: an inbound event becomes an operation once, with its place in its route's queue, or is refused and leaves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from .decision import Context, Payload, Step, Steps
from .duration import DAY as DAY
from .operation import EntryPutBack, EntrySteppedOver, Operation, OperationAdmitted, OperationRepeated
from .placing import Placing
from .route import Entry, Queue

AdmissionStatus: TypeAlias = Literal["accepted", "denied", "unsupported"]
AdmissionReason: TypeAlias = Literal[
    "malformed",
    "oversized",
    "rejected",
    "revoked",
    "authorization_failed",
    "capacity",
    "stopped",
    "unavailable",
    "unknown_command",
]

RETRYABLE: Final = frozenset({"capacity", "unavailable", "stopped"})
"""Refusals after which a transport must not acknowledge."""


@dataclass(frozen=True, slots=True)
class Admission:
    """
    The answer to an inbound event.

    `accepted` means that it is durable: a transport may acknowledge it. `version` and `position` are those of the operation and
    of its newest event here.
    """

    status: AdmissionStatus
    reason: AdmissionReason | None = None
    operation_id: str | None = None
    duplicate: bool = False
    version: int | None = None
    position: int | None = None
    text_differs: bool = False
    """A repeat came with another text than the first, which is the one that counts."""

    def placed(self, placing: Placing) -> Admission:
        if self.position is None or not placing.positions:
            return self
        return replace(self, position=placing.position(self.position))

    @property
    def retryable(self) -> bool:
        """Tell whether the transport should deliver the event again."""
        return self.reason in RETRYABLE


def refused(reason: AdmissionReason) -> Admission:
    """Return a refusal."""
    return Admission("unsupported" if reason == "unknown_command" else "denied", reason)


class Load(NamedTuple):
    """What this opening already has waiting."""

    pending: int
    routes: int
    route_has_work: bool


class Admit(NamedTuple):
    """An authorised inbound event; ids of people are pseudonyms already."""

    operation_id: str
    occurrence: int
    route: str
    alias: str
    actor: bytes
    principal: bytes
    revision: str
    event_id: str
    body: bytes
    received_at: int | None

    def __repr__(self) -> str:
        return f"Admit({self.operation_id})"


def superseded(existing: Operation, context: Context) -> bool:
    """Tell whether the evidence of an operation no longer makes its event a duplicate, so that a new occurrence begins."""
    return context.now - existing.admitted_at >= context.limits.dedup_days * DAY


def stale(entry: Entry, context: Context) -> bool:
    """Tell whether a waiting entry is too old to be run unasked: its opening has ended and it is older than `max_wait`."""
    world = context.world
    if entry.opening_id == world.opening_id or context.now - entry.entered_at <= context.limits.duration("max_wait"):
        return False
    return not world.is_live(entry.opening_id)


def _is_full(queue: Queue, context: Context) -> bool:
    """Tell whether a route's queue takes no more; what will be stepped over counts for no limit."""
    most = context.limits.max_pending_per_binding
    if len(queue.entries) < most:
        return False
    return sum(not stale(entry, context) for entry in queue.waiting) >= most


def admit(command: Admit, queue: Queue, load: Load, context: Context) -> Steps | AdmissionReason:
    """Admit an event that is not known yet, or say why there is no room for it."""
    limits = context.limits
    if load.pending >= limits.max_pending_per_process or _is_full(queue, context):
        return "capacity"
    if not load.route_has_work and load.routes >= limits.max_routes:
        return "capacity"
    payload = context.payload(command.body)
    event = OperationAdmitted(
        route=command.route,
        alias=command.alias,
        occurrence=command.occurrence,
        principal=command.principal.hex(),
        revision=command.revision,
        text=payload.committed,
        received_at=command.received_at,
    )
    return (Step(command.operation_id, event, "person", command.actor, payload=payload, external_id=command.event_id),)


class Repeat(NamedTuple):
    """What a second delivery of an event leads to."""

    steps: Steps
    runs: bool
    """The operation waits without a live process that would run it; the one that got the repeat does."""


def repeat(
    operation: Operation, actor: bytes, queue: Queue, kept: Payload | None, body: bytes, context: Context
) -> tuple[Repeat, bool | None]:
    """Acknowledge a repeat; the second value tells whether it has the same text, None when the first text is gone."""
    same_text = None if kept is None else Payload(kept.salt, body).committed == operation.text
    steps: list[Step] = []
    if not operation.repeated:
        steps.append(Step(operation.operation_id, OperationRepeated(same_text=same_text), "person", actor, causation=1))
    runs = False
    if operation.phase == "accepted":
        entry = queue.find(operation.position)
        if entry is not None and stale(entry, context):
            steps.append(Step(operation.operation_id, EntrySteppedOver(), causation=1))
            entry = None
        if entry is None:
            steps.append(Step(operation.operation_id, EntryPutBack(route=operation.route), "person", actor, causation=1))
        runs = entry is None or not context.world.is_live(entry.opening_id)
    return Repeat(tuple(steps), runs), same_text
