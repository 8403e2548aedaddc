"""
A route: what runs one turn at a time. Its queue is a fold over the events of its operations; its binding has a stream of its own.

In reading order: events, state and its folds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .event import REGISTRY, Event, Recorded
from .ids import Id
from .operation import (
    EntryPutBack,
    EntrySteppedOver,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationSettled,
)
from .placing import Placing

# Events: the storage format.


@REGISTRY.register
class BindingOpened(Event):
    TYPE = "binding.opened"
    alias: str
    generation: int
    session_id: str


@REGISTRY.register
class BindingAdvanced(Event):
    TYPE = "binding.advanced"
    leaf: Id


# State and folds.


class Entry(NamedTuple):
    """An operation in a route's queue: waiting, or running under a grant."""

    operation: int
    """Position of its admission."""
    operation_id: str
    place: int
    """Position of the event that put it at the end of the queue; the head has the smallest."""
    opening_id: int
    """The opening that put it there."""
    entered_at: int
    grant: int | None = None
    """Version of the grant it was claimed under, None while it waits."""
    claimed_by: int | None = None

    @property
    def waiting(self) -> bool:
        return self.grant is None

    def placed(self, placing: Placing) -> Entry:
        return Entry(
            placing.position(self.operation),
            self.operation_id,
            placing.position(self.place),
            self.opening_id,
            placing.time(self.entered_at),
            self.grant,
            self.claimed_by,
        )


class Binding(NamedTuple):
    """A route's agent session."""

    route: str
    version: int
    alias: str
    generation: int
    session_id: str
    leaf: str | None = None


class Queue(NamedTuple):
    """The entries of a route, in order of their places."""

    route: str
    entries: tuple[Entry, ...] = ()

    @property
    def waiting(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.waiting)

    def placed(self, placing: Placing) -> Queue:
        return Queue(self.route, tuple([entry.placed(placing) for entry in self.entries]))

    def find(self, operation: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.operation == operation), None)


_LEAVING: Final = frozenset((OperationSettled, OperationAbandoned, OperationExecutionUnknown, EntrySteppedOver))


def evolve_queue(state: Queue, recorded: Recorded) -> Queue:
    """Fold one event of an operation into the queue of its route; returns the same queue when it changes nothing."""
    event, operation = recorded.event, recorded.header.operation
    if isinstance(event, OperationAdmitted | EntryPutBack):
        opening_id = recorded.header.opening_id
        assert opening_id is not None
        place = recorded.position
        entry = Entry(place if operation is None else operation, recorded.originator_id, place, opening_id, recorded.recorded_at)
        return Queue(state.route, (*state.entries, entry))
    if isinstance(event, OperationClaimed):
        opening_id = recorded.header.opening_id
        entries = (
            entry._replace(grant=event.grant, claimed_by=opening_id) if entry.operation == operation else entry
            for entry in state.entries
        )
        return Queue(state.route, tuple(entries))
    if type(event) in _LEAVING:
        return Queue(state.route, tuple([entry for entry in state.entries if entry.operation != operation]))
    return state


def evolve_binding(state: Binding | None, recorded: Recorded) -> Binding:
    """Fold one event into a binding."""
    match recorded.event:
        case BindingOpened(alias=alias, generation=generation, session_id=session_id):
            return Binding(recorded.originator_id, recorded.originator_version, alias, generation, session_id)
        case BindingAdvanced(leaf=leaf):
            assert state is not None
            return state._replace(version=recorded.originator_version, leaf=leaf)
    raise AssertionError(f"not an event of a binding: {type(recorded.event).__name__}")
