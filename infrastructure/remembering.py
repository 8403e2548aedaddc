"""
What the journal kept of an operation, in the clear: for the agent that runs it, the channel that it answers, and a host asked
anew.
"""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.exchange import Reply
from counterfoil.domain.identity import Reach, instant_of
from counterfoil.domain.ids import is_operation_id
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.operation import Operation, OperationAdmitted

from .store import Store


class Remembered(NamedTuple):
    """An operation with its event, and its reply if one was staged. Both are None where the ids were erased."""

    operation: Operation
    inbound: Inbound | None
    reply: Reply | None


def remember(store: Store, operation_id: str) -> Remembered | None:
    """Read an operation with what maps it back; None if it is not known."""
    operation = store.operation(operation_id) if is_operation_id(operation_id) else None
    if operation is None:
        return None
    people = [
        None if pseudonym is None else store.subject(pseudonym)
        for pseudonym in (operation.conversation, operation.thread, operation.actor)
    ]
    conversation, thread, actor = people
    event_id = store.external_id(operation.position)
    if conversation is None or actor is None or event_id is None or (operation.thread is not None and thread is None):
        return Remembered(operation, None, None)
    admitted = store.event_at(operation.position)
    received_at = admitted.received_at if isinstance(admitted, OperationAdmitted) else None
    payload = store.payload(operation.position)
    inbound = Inbound.remembered(
        connection=operation.connection,
        conversation=conversation,
        thread=thread,
        actor=actor,
        event_id=event_id,
        text="" if payload is None else text_of(payload.body),
        received_at=None if received_at is None else instant_of(received_at),
    )
    reply = None
    if operation.reply_position is not None and (staged := store.payload(operation.reply_position)) is not None:
        reply = reply_to(operation, inbound, text_of(staged.body))
    return Remembered(operation, inbound, reply)


def reply_to(operation: Operation, inbound: Inbound, text: str) -> Reply:
    """Return the reply of an operation, addressed to where its event came from."""
    return Reply(
        operation_id=operation.operation_id,
        connection=operation.connection,
        conversation=inbound.conversation,
        thread=inbound.thread,
        actor=inbound.actor,
        in_reply_to=inbound.event_id,
        kind=operation.reply_kind,
        text=text,
    )


def text_of(body: bytes) -> str:
    """Return a stored text; a lone surrogate comes back as it was."""
    return body.decode("utf-8", "surrogatepass")


class WaitingRoute(NamedTuple):
    """A route with entries that wait, and the opening of its head."""

    route: str
    opening_id: int


def waiting_routes(store: Store, reach: Reach) -> list[WaitingRoute]:
    """Read the routes with waiting entries in a reach, oldest head first."""
    found = []
    for route, opening_id, scope_id in store.waiting_routes():
        scoped = store.scope_by_id(scope_id)
        if scoped is not None and scoped.scope is not None and reach.includes(scoped.scope):
            found.append(WaitingRoute(route, opening_id))
    return found
