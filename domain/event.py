"""
Events: immutable facts about one aggregate, and the registry that knows their types.

What is written here is the storage format (docs/format.md): a field may be added with a new version of the type and an upcaster,
never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

ActorKind: TypeAlias = Literal["person", "agent", "operator", "system"]
State: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[State], State]


class Event(BaseModel):
    """
    A fact. Subclasses name their stable type and its version.

    Fields hold ids of ours, pseudonyms and commitments as hex, class words, counts and instants in integer microseconds: no text,
    no secret, no id of a person.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1


class Committed(BaseModel):
    """What an event holds of a payload: its length in bytes and the commitment to it, as hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    length: int
    commitment: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Header(NamedTuple):
    """The columns of an event beside its own state, in the order in which they are hashed."""

    opening_id: int | None = None
    actor_kind: ActorKind | None = None
    scope_id: bytes | None = None
    connection: str | None = None
    conversation: bytes | None = None
    thread: bytes | None = None
    actor: bytes | None = None
    operation: int | None = None
    correlation: bytes | None = None
    causation: int | None = None


class Recorded(NamedTuple):
    """
    An event with its place. `event` is None where the registry does not know the type: it is carried and chained, and folded by
    nobody.
    """

    position: int
    recorded_at: int
    originator_id: str
    originator_version: int
    header: Header
    event: Event | None


E = TypeVar("E", bound=type[Event])


class UnknownEvent(ValueError):
    """A journal in a known format holds an event type or version that this release does not know."""


class Registry:
    """Find event classes by stable name and version; nothing is ever imported by name."""

    def __init__(self) -> None:
        self._current: dict[str, type[Event]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def register(self, cls: E) -> E:
        """Make a class the current version of its type."""
        if cls.TYPE in self._current:
            raise ValueError(f"event type {cls.TYPE} is registered already")
        self._current[cls.TYPE] = cls
        return cls

    def upcast(self, event_type: str, version: int, upcaster: Upcaster) -> None:
        """Say how the state of an older version becomes that of the next."""
        self._upcasters[event_type, version] = upcaster

    def types(self) -> dict[str, type[Event]]:
        return dict(sorted(self._current.items()))

    def decode(self, event_type: str, version: int, state: bytes) -> Event | None:
        """
        Return the event, upcast to the current version; None for version 0, which is not ours.

        Raises `UnknownEvent` for a type or version of ours that is not registered.
        """
        if version == 0:
            return None
        cls = self._current.get(event_type)
        if cls is None:
            raise UnknownEvent(f"event type {event_type} is not known to this release")
        if version == cls.VERSION:
            return cls.model_validate_json(state)
        values: State = orjson.loads(state)
        for older in range(version, cls.VERSION):
            upcaster = self._upcasters.get((event_type, older))
            if upcaster is None:
                break
            values = upcaster(values)
        else:
            if version < cls.VERSION:
                return cls.model_validate(values)
        raise UnknownEvent(f"version {version} of event type {event_type} is not known to this release")


REGISTRY: Final = Registry()
"""The event types of this release."""


def encode(event: Event) -> bytes:
    """Return the stored state of an event."""
    return event.__pydantic_serializer__.to_json(event, exclude_none=True)
