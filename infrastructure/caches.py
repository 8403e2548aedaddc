"""The committed state that the writer keeps between groups, and what it is loaded from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from counterfoil.domain import operation
from counterfoil.domain.decision import Payload
from counterfoil.domain.event import Event, Recorded
from counterfoil.domain.hold import Terms
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey, SubjectKind
from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import Operation
from counterfoil.domain.route import Queue
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from .layered import Layered, Undo, undo_all
from .places import Place
from .rows import Scoped


class Lines(Protocol):
    """The lines of hosts' locks. What is written is seen at once, by whoever reads in the same transaction."""

    def remember_key(self, lease_id: str, key: str) -> None: ...
    def forget_keys(self, key: str) -> None: ...
    def forget_keys_of_scope(self, scope_id: bytes) -> None: ...
    def enter(self, lease_id: str, opening_id: int, token: bytes, terms: Terms, asked_at: int) -> None: ...
    def leave(self, place: int) -> None: ...
    def leave_with_opening(self, opening_id: int) -> None: ...
    def leave_of_ended(self, is_live: Callable[[int], bool]) -> None: ...
    def anybody(self) -> bool: ...
    def is_full(self, lease_id: str, most: int) -> bool: ...
    def place_of(self, lease_id: str, token: bytes) -> int | None: ...
    def awake(self, lease_id: str, opening_id: int) -> None: ...
    def first(self, lease_id: str, own: int, is_live: Callable[[int], bool], boot_now: int) -> Place | None: ...
    def offer(self, place: int, until: int) -> None: ...
    def hold_back(self, lease_id: str, boot_id: str, until: int) -> None: ...
    def held_back(self, lease_id: str, boot_id: str) -> int: ...
    def let_go(self, lease_id: str) -> None: ...


class Store(Protocol):
    """What a unit reads of an engine, inside its transaction."""

    def stream(self, originator_id: str) -> list[Recorded]: ...
    def stream_version(self, originator_id: str) -> int: ...
    def originator_at(self, position: int) -> str | None: ...
    def queue(self, route_id: str) -> Queue: ...
    def row(self, projection: Projection[Any], key: Key) -> Any | None: ...
    def deadline(self, lease_id: str) -> Deadline | None: ...
    def epoch_at(self, position: int) -> int: ...
    def event_of(self, originator_id: str, version: int) -> Event | None: ...
    def has_event(self, originator_id: str, version: int) -> bool: ...
    def payload(self, position: int) -> Payload | None: ...
    def subject(self, pseudonym: bytes) -> str | None: ...
    def external_id(self, position: int) -> str | None: ...
    def unresolved_of_subject(self, pseudonym: bytes) -> list[str]: ...
    def unresolved_of_scope(self, scope_id: bytes) -> list[str]: ...
    def kept_command(self, key: tuple[bytes, bytes]) -> tuple[bytes, bytes, int] | None: ...
    def scope_of(self, scope: Scope) -> ScopeKey | None: ...
    def scope_by_id(self, scope_id: bytes) -> Scoped | None: ...
    def load_of_opening(self, opening_id: int) -> dict[str, tuple[int, int]]: ...
    def grant_at(self, lease_id: str, position: int) -> tuple[int, int] | None: ...
    @property
    def lines(self) -> Lines: ...


class Work:
    """How many entries an opening has in each route, and how many of them wait."""

    def __init__(self, routes: dict[str, tuple[int, int]]) -> None:
        self.routes = routes
        self.waiting = sum(waiting for _, waiting in routes.values())
        self._before: list[tuple[str, tuple[int, int] | None]] = []
        """What the running command changed, and what was there."""

    @property
    def changes(self) -> int:
        """How many changes of the running command `drop` would undo."""
        return len(self._before)

    def put(self, route_id: str, counts: tuple[int, int] | None) -> None:
        """Set what a route has; None for a route without entries."""
        self._before.append((route_id, self.routes.get(route_id)))
        self._set(route_id, counts)

    def keep(self) -> None:
        """End a command: what it changed is part of the group."""
        self._before.clear()

    def drop(self, floor: int) -> None:
        """Forget what the running command changed after its first `floor` changes."""
        while len(self._before) > floor:
            self._set(*self._before.pop())

    def _set(self, route_id: str, counts: tuple[int, int] | None) -> None:
        self.waiting -= self.routes.pop(route_id, (0, 0))[1]
        if counts is not None:
            self.routes[route_id] = counts
            self.waiting += counts[1]


Floor: TypeAlias = tuple[int, int]
"""How many changes of the running command stay when one inside it is undone: of the layers, and of `Work`."""


class Caches:
    """States and rows by key. They are dropped whenever somebody else has written."""

    def __init__(self, store: Store) -> None:
        self._load_of_opening = store.load_of_opening
        self._undo: Undo = []
        undo = self._undo
        self.operations: Layered[str, Operation] = Layered(lambda key: fold_operation(store.stream(key)), undo)
        self.queues: Layered[str, Queue] = Layered(store.queue, undo)
        self.deadlines: Layered[str, Deadline] = Layered(store.deadline, undo)
        self.rows: dict[str, Layered[Key, Any]] = {
            projection.NAME: Layered(_row_loader(store, projection), undo) for projection in BUILT_IN
        }
        self.scopes: Layered[Scope, ScopeKey] = Layered(store.scope_of, undo)
        self.scope_ids: Layered[bytes, Scoped] = Layered(store.scope_by_id, undo)
        self.subjects: Layered[tuple[bytes, SubjectKind, str | None, str], bytes] = Layered(lambda key: None, undo)
        self.commands: Layered[tuple[bytes, bytes], tuple[bytes, bytes, int]] = Layered(store.kept_command, undo)
        self.epochs: Layered[int, int] = Layered(lambda position: None, undo)
        """By position, the epoch that stands there."""
        self.lock_keys: Layered[str, str] = Layered(lambda lease_id: None, undo)
        """Keys of hosts' locks that are known to be kept, by their ids."""
        self.nobody_waits: bool | None = None
        """Whether no line of a lock has anybody in it; None where it has to be looked up."""
        self._work: Work | None = None
        self._floor: Floor = (0, 0)
        self._all: tuple[Layered[Any, Any], ...] = (
            self.operations,
            self.queues,
            self.deadlines,
            *self.rows.values(),
            self.scopes,
            self.scope_ids,
            self.subjects,
            self.commands,
            self.epochs,
            self.lock_keys,
        )

    def work_of(self, opening_id: int) -> Work:
        """Return how much work the own opening has."""
        if self._work is None:
            self._work = Work(self._load_of_opening(opening_id))
        return self._work

    def keep(self) -> None:
        """End a command: what it changed is part of the group."""
        self._undo.clear()
        if self._work is not None:
            self._work.keep()

    def drop(self) -> None:
        """Forget what the running command changed, or since `nest` what the command inside it changed."""
        undo_all(self._undo, self._floor[0])
        if self._work is not None:
            self._work.drop(self._floor[1])

    def nest(self) -> Floor:
        """Begin a command inside the running one: `drop` goes back to here. Returns what `unnest` takes when it ends."""
        outer = self._floor
        self._floor = (len(self._undo), 0 if self._work is None else self._work.changes)
        return outer

    def unnest(self, outer: Floor) -> None:
        """End a command inside the running one: what is left of its changes is the running one's."""
        self._floor = outer

    def commit(self) -> None:
        """End a group: what it changed is committed."""
        for layered in self._all:
            layered.commit()

    def rollback(self) -> None:
        """End a group: what it changed is forgotten."""
        self._undo.clear()
        for layered in self._all:
            layered.rollback()
        self._work = None
        self.nobody_waits = None

    def forget(self) -> None:
        """Drop everything: somebody else has written."""
        self.rollback()
        for layered in self._all:
            layered.forget()


def _row_loader(store: Store, projection: Projection[Any]) -> Any:
    return lambda key: store.row(projection, key)


def fold_operation(events: Iterable[Recorded]) -> Operation | None:
    """Return the state of an operation from its stream."""
    state: Operation | None = None
    for recorded in events:
        state = operation.evolve(state, recorded)
    return state
