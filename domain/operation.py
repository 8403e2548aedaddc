"""
An operation: one admitted inbound event, from its admission to what is known of its reply.

In reading order: events, state and its fold. The decisions stand in admission.py, turn.py and reconcile.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from .event import REGISTRY, Committed, Event, Recorded
from .ids import ClassWord
from .placing import Placing

Outcome: TypeAlias = Literal["succeeded", "failed", "cancelled"]
OperationPhase: TypeAlias = Literal["accepted", "executing", "succeeded", "failed", "cancelled", "abandoned", "execution_unknown"]
ReplyPhase: TypeAlias = Literal["none", "pending", "delivered", "delivery_failed", "delivery_unknown"]
ReplyKind: TypeAlias = Literal["final", "notice"]


# Events: the storage format.


@REGISTRY.register
class OperationAdmitted(Event):
    TYPE = "operation.admitted"
    route: str
    alias: str
    occurrence: int
    principal: str
    revision: str
    text: Committed
    received_at: int | None = None


@REGISTRY.register
class OperationRepeated(Event):
    TYPE = "operation.repeated"
    same_text: bool | None = None


@REGISTRY.register
class OperationClaimed(Event):
    TYPE = "operation.claimed"
    grant: int
    admitted_at: int


@REGISTRY.register
class OperationSettled(Event):
    TYPE = "operation.settled"
    outcome: Outcome
    replied: bool
    admitted_at: int
    code: ClassWord | None = None
    fence: str | None = None
    claimed_at: int | None = None


@REGISTRY.register
class OperationLateRefused(Event):
    TYPE = "operation.late_refused"
    outcome: Outcome
    fence: str


@REGISTRY.register
class OperationAbandoned(Event):
    TYPE = "operation.abandoned"
    reason: ClassWord
    acknowledged: bool
    note: Committed | None = None


@REGISTRY.register
class OperationExecutionUnknown(Event):
    TYPE = "operation.execution_unknown"
    reason: ClassWord
    acknowledged: bool
    forced: bool
    note: Committed | None = None


@REGISTRY.register
class EntrySteppedOver(Event):
    TYPE = "entry.stepped_over"


@REGISTRY.register
class EntryPutBack(Event):
    TYPE = "entry.put_back"
    route: str


@REGISTRY.register
class ReplyStaged(Event):
    TYPE = "reply.staged"
    kind: ReplyKind
    text: Committed
    truncated: bool


@REGISTRY.register
class ReplyResendClaimed(Event):
    TYPE = "reply.resend_claimed"
    attempt: int
    acknowledged: bool
    reason: ClassWord
    note: Committed | None = None


@REGISTRY.register
class ReplyDelivered(Event):
    TYPE = "reply.delivered"
    attempt: int
    admitted_at: int


@REGISTRY.register
class ReplyDeliveryFailed(Event):
    TYPE = "reply.delivery_failed"
    attempt: int
    reason: ClassWord


@REGISTRY.register
class ReplyDeliveryUnknown(Event):
    TYPE = "reply.delivery_unknown"
    attempt: int
    reason: ClassWord


TEXT_ERASED: Final = "text_erased"
"""The reason with which an operator files that a reply has failed for good: there is no text left to send."""


# State and fold.

OPERATION_PREFIX: Final = "op-"


class Operation(NamedTuple):
    """What is known of one operation. Ids of people are pseudonyms, instants integer microseconds, places positions."""

    operation_id: str
    position: int
    version: int
    phase: OperationPhase
    scope_id: bytes
    connection: str
    conversation: bytes
    thread: bytes | None
    actor: bytes
    correlation: bytes
    route: str
    alias: str
    occurrence: int
    admitted_at: int
    admitted_by: int
    """The opening that put it into its queue: the one that admitted it, or that put it back."""
    text: Committed
    repeated: bool = False
    stepped_over: bool = False
    grant: int | None = None
    claimed_at: int | None = None
    claimed_by: int | None = None
    reply: ReplyPhase = "none"
    reply_kind: ReplyKind = "final"
    reply_position: int | None = None
    attempts: int = 0
    reply_erased: bool = False
    """Its reply cannot be sent any more: the text was erased, and an operator has filed that."""

    def placed(self, placing: Placing) -> Operation:
        return self._replace(
            position=placing.position(self.position),
            admitted_at=placing.time(self.admitted_at),
            claimed_at=None if self.claimed_at is None else placing.time(self.claimed_at),
            reply_position=None if self.reply_position is None else placing.position(self.reply_position),
        )

    @property
    def ended(self) -> bool:
        """Tell whether the run is over, so that the inbound text is erased."""
        return self.phase not in ("accepted", "executing")

    @property
    def resolved(self) -> bool:
        """Tell whether nothing is left for an operator to look at."""
        return self.ended and (self.reply in ("none", "delivered") or self.reply_erased)


def admitted(recorded: Recorded) -> Operation:
    """Return the state that an admission begins."""
    event, header = recorded.event, recorded.header
    assert isinstance(event, OperationAdmitted)
    assert (
        header.scope_id
        and header.connection
        and header.conversation
        and header.actor
        and header.correlation
        and header.opening_id
    )
    return Operation(
        operation_id=recorded.originator_id,
        position=recorded.position,
        version=recorded.originator_version,
        phase="accepted",
        scope_id=header.scope_id,
        connection=header.connection,
        conversation=header.conversation,
        thread=header.thread,
        actor=header.actor,
        correlation=header.correlation,
        route=event.route,
        alias=event.alias,
        occurrence=event.occurrence,
        admitted_at=recorded.recorded_at,
        admitted_by=header.opening_id,
        text=event.text,
    )


def _claimed(state: Operation, recorded: Recorded, event: OperationClaimed) -> Operation:
    return state._replace(
        phase="executing", grant=event.grant, claimed_at=recorded.recorded_at, claimed_by=recorded.header.opening_id
    )


def _put_back(state: Operation, recorded: Recorded, event: EntryPutBack) -> Operation:
    assert recorded.header.opening_id is not None
    return state._replace(stepped_over=False, admitted_by=recorded.header.opening_id)


def _staged(state: Operation, recorded: Recorded, event: ReplyStaged) -> Operation:
    return state._replace(reply="pending", reply_kind=event.kind, reply_position=recorded.position, attempts=1)


def _not_delivered(reply: ReplyPhase) -> Evolve:
    """A mark of an attempt counts while it is the newest; one that was delivered stays so."""

    def evolve(state: Operation, recorded: Recorded, event: Any) -> Operation:
        if event.attempt != state.attempts or state.reply == "delivered":
            return state
        erased = event.reason == TEXT_ERASED and recorded.header.actor_kind == "operator"
        return state._replace(reply=reply, reply_erased=erased)

    return evolve


Evolve: TypeAlias = Callable[[Operation, Recorded, Any], Operation]

_EVOLVE: Final[dict[type[Event], Evolve]] = {
    OperationRepeated: lambda state, _, event: state._replace(repeated=True),
    OperationClaimed: _claimed,
    OperationSettled: lambda state, _, event: state._replace(phase=event.outcome),
    OperationLateRefused: lambda state, _, event: state,
    OperationAbandoned: lambda state, _, event: state._replace(phase="abandoned"),
    OperationExecutionUnknown: lambda state, _, event: state._replace(phase="execution_unknown"),
    EntrySteppedOver: lambda state, _, event: state._replace(stepped_over=True),
    EntryPutBack: _put_back,
    ReplyStaged: _staged,
    ReplyResendClaimed: lambda state, _, event: state._replace(reply="pending", attempts=event.attempt),
    ReplyDelivered: lambda state, _, event: state._replace(reply="delivered"),
    ReplyDeliveryFailed: _not_delivered("delivery_failed"),
    ReplyDeliveryUnknown: _not_delivered("delivery_unknown"),
}


def evolve(state: Operation | None, recorded: Recorded) -> Operation:
    """Fold one event into an operation."""
    if state is None:
        return admitted(recorded)
    event = recorded.event
    assert event is not None
    return _EVOLVE[type(event)](state, recorded, event)._replace(version=recorded.originator_version)


def fold(events: Iterable[Recorded]) -> Operation | None:
    """Return the state of an operation from its stream."""
    state: Operation | None = None
    for recorded in events:
        state = evolve(state, recorded)
    return state
