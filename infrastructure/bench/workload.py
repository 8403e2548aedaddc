"""The messages that are admitted, saved and inserted: the same for everything that is compared."""

from __future__ import annotations

from typing import Final

from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits

TEXT: Final = "where is my order, please? the parcel has not come, and nobody answers when I call the number on the note"
"""105 bytes."""
CONVERSATIONS: Final = 256
PEOPLE_IN_CONVERSATION: Final = 8
ROUTES: Final = CONVERSATIONS * PEOPLE_IN_CONVERSATION
"""Each person in a conversation has a route; messages whose numbers differ by this share one."""
LIMITS: Final = Limits(max_pending_per_process=10_000, max_pending_per_binding=32, max_routes=10_000, max_active_sessions=256)
"""Nothing that is measured is refused for want of room."""
GRANT: Final = Grant(
    identity=Identity(tenant="bench", principal="host", verified=True, permissions=frozenset({"journal:operate"})),
    aliases=("agent",),
)


def fields(number: int) -> dict[str, str]:
    """Return what a channel tells of a message."""
    conversation = number % CONVERSATIONS
    person = number // CONVERSATIONS % PEOPLE_IN_CONVERSATION
    return {
        "connection": "bench",
        "conversation": f"chat-{conversation:04}",
        "actor": f"person-{conversation:04}-{person}",
        "event_id": f"event-{number:08}",
        "text": f"{TEXT} {number:08}",
    }


def saved_fields(number: int) -> dict[str, str]:
    """Return what an application without a journal would save of a message: its fields, and who it was granted to."""
    return {**fields(number), "tenant": "bench", "principal": "host", "alias": "agent", "revision": "1"}


def inbound(number: int) -> Inbound:
    return Inbound(**fields(number))
