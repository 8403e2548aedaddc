"""
What a group is about to read is loaded at once, of each kind in one statement, or presumed.

An event is nearly always new, and so is often its conversation; where that is not, nothing waits in the queue of its route. That
this is so is presumed, without a look: the append finds out, and what was presumed wrongly is loaded before the group is decided
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.lock import Deadline
from counterfoil.domain.operation import fold
from counterfoil.domain.route import Queue
from counterfoil.projections.bindings import Bindings
from counterfoil.projections.leases import Leases
from counterfoil.projections.projection import Projection
from counterfoil.projections.queues import QueueRow

from ..layered import Layered
from ..needs import Foresees, Needs
from ..rows import EventRow
from ..statements import Names
from ..unit import Unit
from .store import Busy, PostgresStore

LOAD: Final = Names("load")
_BINDINGS: Final = Bindings()
_LEASES: Final = Leases()


class Wanted:
    """What the commands of a group are about to read and what is not cached, each once."""

    def __init__(self, store: PostgresStore, unit: Unit, commands: Iterable[object], *, presume: bool) -> None:
        """With `presume` what is most probably new is put into the caches as absent."""
        caches = unit.caches
        self._store = store
        self._caches = caches
        self._reads = store.reads
        self.presumed: set[bytes] = set()
        """The conversations in which nothing is presumed to have happened."""
        self.presumed_routes: dict[str, None] = {}
        """The routes of other conversations in whose queues nothing is presumed to be."""
        self._presumed_operations: list[str] = []
        self._presumed_queues: list[str] = []
        self._operations: dict[str, None] = {}
        self._queues: dict[str, None] = {}
        self._bindings: dict[str, None] = {}
        self._leases: dict[str, None] = {}
        foreseeing = [command for command in commands if isinstance(command, Foresees)]
        self._load_scopes(foreseeing)
        for command in foreseeing:
            try:
                needs = command.needs(unit)
            except Busy:  # and so it will not be decided now
                break
            if presume and needs.conversation is not None:
                needs = self._presume(needs, needs.conversation)
            elif needs.conversation is not None:
                caches.conversations.add(needs.conversation)
            self._want(needs)

    def _load_scopes(self, commands: Iterable[Foresees]) -> None:
        known = self._caches.scopes.committed
        wanted = {scope: None for command in commands for scope in command.scopes if scope not in known}
        if not wanted:
            return
        names = {name: [scope[column] for scope in wanted] for column, name in enumerate(("tenants", "accounts", "users"))}
        found = {Scope(*row[2:]): ScopeKey(*row[:2]) for row in self._store.rows(LOAD.scopes, names)}
        _fill(self._caches.scopes, wanted, found)

    def _presume(self, needs: Needs, conversation: bytes) -> Needs:
        caches = self._caches
        for operation_id in needs.operations:
            if operation_id not in caches.operations.committed:
                caches.operations.fill(operation_id, None)
                self._presumed_operations.append(operation_id)
        routes = [route for route in needs.queues if route not in caches.queues.committed]
        if conversation not in caches.conversations:
            self.presumed.add(conversation)
        else:
            self.presumed_routes |= dict.fromkeys(routes)
        for route in routes:
            caches.queues.fill(route, Queue(route))
        self._presumed_queues += routes
        return needs._replace(operations=(), queues=())

    def _want(self, needs: Needs) -> None:
        caches = self._caches
        bindings, leases = caches.rows[_BINDINGS.NAME].committed, caches.rows[_LEASES.NAME].committed
        self._operations |= {key: None for key in needs.operations if key not in caches.operations.committed}
        self._queues |= {key: None for key in needs.queues if key not in caches.queues.committed}
        self._bindings |= {key: None for key in needs.bindings if (key,) not in bindings}
        for key in needs.leases:
            if (key,) not in leases:
                self._leases[key] = None
            elif key not in caches.deadlines.committed:
                row = leases[(key,)]
                if row is not None and row.held:
                    self._leases[key] = None
                else:
                    caches.deadlines.fill(key, None)

    @property
    def presumed_any(self) -> bool:
        """Whether anything was presumed at all."""
        return bool(self._presumed_operations or self._presumed_queues)

    def withdraw(self) -> None:
        """Presume nothing any more but what has come true: that an operation begins, and a queue with it."""
        caches = self._caches
        for operation_id in self._presumed_operations:
            if caches.operations.committed.get(operation_id) is None:
                caches.operations.evict(operation_id)
        for route in self._presumed_queues:
            queue = caches.queues.committed.get(route)
            if queue is None or not queue.entries:
                caches.queues.evict(route)

    def load(self) -> bool:
        """Put what is wanted into the caches; what is not there is known to be absent. Tells whether anything was read."""
        caches, store = self._caches, self._store
        if self._operations:
            events = (EventRow(*row) for row in store.rows(LOAD.streams, {"ids": list(self._operations)}))
            streams = {key: fold(row.recorded for row in rows) for key, rows in groupby(events, _originator)}
            caches.conversations.update(state.conversation for state in streams.values() if state is not None)
            _fill(caches.operations, self._operations, streams)
        if self._queues:
            rows = [QueueRow(*row) for row in store.rows(LOAD.queues, {"routes": list(self._queues)})]
            queues = {route: Queue(route, tuple([row.entry for row in entries])) for route, entries in groupby(rows, _route)}
            caches.untied.update(self._queues)
            _fill(caches.queues, self._queues, {route: queues.get(route, Queue(route)) for route in self._queues})
        if self._bindings:
            self._load_rows(_BINDINGS, self._bindings)
        if self._leases:
            self._load_rows(_LEASES, self._leases)
            deadlines = (Deadline(*row) for row in store.rows(LOAD.deadlines, {"ids": list(self._leases)}))
            _fill(caches.deadlines, self._leases, {deadline.lease_id: deadline for deadline in deadlines})
        return store.reads != self._reads

    def _load_rows(self, projection: Projection[Any], keys: Iterable[str]) -> None:
        found = self._store.rows_by_key(projection, list(keys))
        _fill(self._caches.rows[projection.NAME], [(key,) for key in keys], {(row[0],): row for row in found})


def _fill(layered: Layered[Any, Any], keys: Iterable[Any], found: Mapping[Any, Any]) -> None:
    for key in keys:
        layered.fill(key, found.get(key))


def _originator(row: EventRow) -> str:
    return row.originator_id


def _route(row: QueueRow) -> str:
    return row.route
