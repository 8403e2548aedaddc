"""What a decision is made in and what it gives: the steps that one append takes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .event import ActorKind, Committed, Event
from .framing import commitment
from .limits import Limits
from .lock import Clockwork


class Payload(NamedTuple):
    """Text kept outside the events, with the salt of its commitment."""

    salt: bytes
    body: bytes

    @property
    def committed(self) -> Committed:
        return Committed(length=len(self.body), commitment=commitment(self.salt, self.body))

    def __repr__(self) -> str:
        return f"Payload({len(self.body)} bytes)"


class Step(NamedTuple):
    """One event to append, and what is stored beside it under its position."""

    originator_id: str
    event: Event
    actor_kind: ActorKind = "system"
    actor: bytes | None = None
    causation: int | None = None
    payload: Payload | None = None
    external_id: str | None = None
    """The platform's id of the event or message, which the journal maps back for those who may see it."""

    def __repr__(self) -> str:
        return f"Step({self.originator_id}, {self.event!r})"


Steps = tuple[Step, ...]


class Context(NamedTuple):
    """The world as a decision sees it: time, liveness, randomness and limits all come in here."""

    now: int
    """The journal's clock: microseconds since 1970."""
    world: Clockwork
    salt: Callable[[], bytes]
    """Gives 32 fresh random bytes."""
    limits: Limits

    def payload(self, body: bytes) -> Payload:
        return Payload(self.salt(), body)


class Actor(NamedTuple):
    """Who decided: an operator by the pseudonym of its principal, or the system itself."""

    kind: ActorKind
    pseudonym: bytes | None = None


SYSTEM = Actor("system")
