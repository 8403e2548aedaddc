"""A message as a channel received it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from .identity import Instant
from .ids import Id, OptionalId
from .model import Model

_FORBIDDEN_TYPE: Final = "must be text, not {kind}"


def _body(value: Any) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("text_type", _FORBIDDEN_TYPE, {"kind": type(value).__name__})
    if not value:
        raise PydanticCustomError("text_empty", "must not be empty")
    return value


class Inbound(Model):
    """
    One event of a messaging platform.

    Ids are opaque text of 1 to 256 bytes. `event_id` is what the platform delivers again when it was not acknowledged. `claims`
    is untrusted and reaches `authorize` alone; it is never stored.
    """

    connection: Id
    conversation: Id
    actor: Id
    event_id: Id
    text: Annotated[str, BeforeValidator(_body)]
    thread: OptionalId = None
    received_at: Instant | None = None
    claims: dict[str, Any] | None = None

    SHOWN: ClassVar[tuple[str, ...]] = ("connection",)

    @staticmethod
    def remembered(
        *,
        connection: str,
        conversation: str,
        thread: str | None,
        actor: str,
        event_id: str,
        text: str,
        received_at: datetime | None,
    ) -> Inbound:
        """Return an event as the journal kept it: without claims, and with an empty text once that was erased."""
        return Inbound.model_construct(
            connection=connection,
            conversation=conversation,
            thread=thread,
            actor=actor,
            event_id=event_id,
            text=text,
            received_at=received_at,
            claims=None,
        )

    @property
    def body(self) -> bytes:
        """The text as it is stored; a lone surrogate keeps its own three bytes, so that any text comes back as it was."""
        return self.text.encode("utf-8", "surrogatepass")
