"""Erasing what maps pseudonyms back to people. Nothing of the history is altered; what it names can no longer be told."""

from __future__ import annotations

from typing import Final

from .decision import Actor, Step, Steps
from .event import REGISTRY, Event
from .ids import SubjectKind
from .operation import TEXT_ERASED, Operation, OperationAbandoned, ReplyDeliveryFailed

# Events: the storage format.


@REGISTRY.register
class SubjectErased(Event):
    TYPE = "subject.erased"
    kind: SubjectKind
    subject: str


@REGISTRY.register
class ScopeKeyErased(Event):
    TYPE = "scope.key_erased"


# Decisions.

ERASED: Final = "erased"
"""The reason with which what waits is abandoned when its text is erased."""


def erase(operation: Operation, actor: Actor) -> Steps:
    """Return how an operation ends whose text is erased: abandoned while it waits, failed for good with a reply to send."""
    if operation.phase == "accepted":
        event: Event = OperationAbandoned(reason=ERASED, acknowledged=False)
    elif operation.ended and not operation.resolved:
        event = ReplyDeliveryFailed(attempt=operation.attempts, reason=TEXT_ERASED)
    else:
        return ()
    return (Step(operation.operation_id, event, actor.kind, actor.pseudonym, operation.version),)
