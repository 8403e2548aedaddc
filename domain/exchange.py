"""What a host's callbacks get and return: a turn for the agent, a reply for the channel."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .ids import CLASS_WORD, Id
from .model import Model
from .operation import ReplyKind


class Turn(Model):
    """One message for an agent. `session_id` and `generation` name the agent session of the route that it came on."""

    SHOWN: ClassVar[tuple[str, ...]] = ("operation_id",)

    operation_id: str
    connection: str
    conversation: str
    thread: str | None
    actor: str
    event_id: str
    text: str
    session_id: str
    generation: int


class AgentAnswer(Model):
    """
    What an agent may return instead of text, when it also has a place in its session tree to remember.

    An empty text succeeds and sends nothing.
    """

    text: str
    leaf: Id | None = None


class Reply(Model):
    """
    One text for a channel. `in_reply_to` is the platform's event id; `kind` is `final`, or `notice` for what is not the agent's
    answer.
    """

    SHOWN: ClassVar[tuple[str, ...]] = ("operation_id", "kind")

    operation_id: str
    connection: str
    conversation: str
    thread: str | None
    actor: str
    in_reply_to: str
    kind: ReplyKind
    text: str


class DeliveryFailed(Model):
    """Returned by `deliver` when it knows that nothing arrived. `reason` is a class word, for example `forbidden`."""

    SHOWN: ClassVar[tuple[str, ...]] = ("reason",)

    reason: Annotated[str, Field(pattern=CLASS_WORD)] = "failed"

    def __init__(self, reason: str = "failed", **unknown: object) -> None:
        super().__init__(**{"reason": reason, **unknown})


Action = Literal["message", "command"]
"""What a host is asked to authorise."""
