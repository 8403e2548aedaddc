"""The committed state that the writer keeps between groups, and what it is loaded from."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, TypeAlias

from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey, SubjectKind
from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import Operation, fold
from counterfoil.domain.placing import Placing
from counterfoil.domain.route import Queue
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from .layered import Layered, Undo, undo_all
from .rows import Scoped
from .store import Store


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
        self._store = store
        self._undo: Undo = []
        undo = self._undo
        self.operations: Layered[str, Operation] = Layered(self._load_operation, undo)
        self.queues: Layered[str, Queue] = Layered(self._load_queue, undo)
        self.deadlines: Layered[str, Deadline] = Layered(store.deadline, undo)
        """Those of other openings may be moved without an event, and are to be looked up anew by each group."""
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
        self.conversations: set[bytes] = set()
        """All those of which anything may be cached, but for routes whose conversation is not known."""
        self.untied: set[str] = set()
        """Cached routes whose conversation is not known."""
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

    def _load_operation(self, operation_id: str) -> Operation | None:
        operation = fold(self._store.stream(operation_id))
        if operation is not None:
            self.conversations.add(operation.conversation)
        return operation

    def _load_queue(self, route: str) -> Queue:
        self.untied.add(route)
        return self._store.queue(route)

    def begin(self, operation_id: str, route: str) -> None:
        """An operation and its route are of a scope that begins with the group, so that neither can have been there before."""
        self.operations.fill(operation_id, None)
        if route not in self.queues.committed:
            self.queues.fill(route, Queue(route))

    def tie(self, route: str, conversation: bytes) -> None:
        """A route is one of this conversation."""
        self.untied.discard(route)
        self.conversations.add(conversation)

    def work_of(self, opening_id: int) -> Work:
        """Return how much work the own opening has."""
        if self._work is None:
            self._work = Work(self._store.load_of_opening(opening_id))
        return self._work

    def forget_work(self) -> None:
        """Others may have moved what this opening has waiting."""
        self._work = None

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

    @property
    def puts(self) -> int:
        """How many deadlines and kept answers the group has put, each time it did."""
        return self.deadlines.puts + self.commands.puts

    def place(self, placing: Placing) -> None:
        """What the group changed has got its real places."""
        self.operations.change(lambda operation: operation.placed(placing))
        self.queues.change(lambda queue: queue.placed(placing))
        for projection in BUILT_IN:
            rows = self.rows[projection.NAME]
            rows.change(partial(placed_row, projection, placing))
            rows.rekey(partial(_key_of, projection))
        self.commands.change(lambda kept: (*kept[:2], placing.time(kept[2])))
        self.epochs.forget()

    def place_latest(self, placing: Placing) -> None:
        """
        What the group changed that was committed last has got its real times, and stands where it was thought to.

        The times of the group on top of it are moved with them: so they stay above, and are provisional still.
        """
        self.operations.change_latest(lambda operation: operation.placed(placing))
        self.queues.change_latest(lambda queue: queue.placed(placing))
        for projection in BUILT_IN:
            if projection.TIMES:
                self.rows[projection.NAME].change_latest(partial(placed_row, projection, placing))
        self.commands.change_latest(lambda kept: (*kept[:2], placing.time(kept[2])))

    def evict_latest(self) -> None:
        """What the group changed that was committed last does not stand, or stands elsewhere."""
        for layered in self._all:
            layered.evict_latest()

    def commit(self) -> None:
        """End a group: what it changed is committed."""
        self.conversations.update([operation.conversation for _, operation in self.operations.changed() if operation is not None])
        for layered in self._all:
            layered.commit()

    def rollback(self) -> None:
        """End a group: what it changed is forgotten."""
        self._undo.clear()
        for layered in self._all:
            layered.rollback()
        self._work = None
        self.nobody_waits = None

    def forget_what_moves_without_events(self, opening_id: int | None) -> None:
        """Drop what others may have changed without an event: their deadlines, and that a scope or a kept answer is absent."""
        for layered in (self.scopes, self.scope_ids, self.commands):
            layered.forget_absent()
        others = [
            lease_id
            for lease_id, deadline in self.deadlines.committed.items()
            if deadline is None or deadline.opening_id != opening_id
        ]
        for lease_id in others:
            self.deadlines.evict(lease_id)

    def forget_committed(self) -> None:
        """Drop all but what the group changed: somebody else has written."""
        for layered in self._all:
            layered.forget_committed()
        self._work = None
        self.conversations.clear()
        self.untied.clear()

    def forget(self) -> None:
        """Drop everything: somebody else has written."""
        self.rollback()
        for layered in self._all:
            layered.forget()
        self.conversations.clear()
        self.untied.clear()


def _key_of(projection: Projection[Any], row: Any) -> Key:
    key: Key = row[: projection.KEY_COLUMNS]
    return key


def placed_row(projection: Projection[Any], placing: Placing, row: Any) -> Any:
    """Return a row of a projection with its real places."""
    positions, times = _places_of(type(projection))
    values = list(row)
    for column in positions:
        if values[column] is not None:
            values[column] = placing.position(values[column])
    for column in times:
        if values[column] is not None:
            values[column] = placing.time(values[column])
    return row._make(values)


@cache
def _places_of(projection: type[Projection[Any]]) -> tuple[list[int], list[int]]:
    """Return which columns hold positions, and which hold times."""
    columns = projection.ROW._fields
    return [columns.index(name) for name in projection.POSITIONS], [columns.index(name) for name in projection.TIMES]


def _row_loader(store: Store, projection: Projection[Any]) -> Any:
    return lambda key: store.row(projection, key)
