"""The states that the commands of a group decide on, and what the events of the group do to them."""

from __future__ import annotations

from typing import Any, Final

from counterfoil.domain import operation, route
from counterfoil.domain.admission import Load
from counterfoil.domain.decision import Payload
from counterfoil.domain.event import REGISTRY, Event, Recorded
from counterfoil.domain.lock import Deadline, Lease, LockGranted, end_of
from counterfoil.domain.operation import Operation
from counterfoil.domain.route import Binding, Queue
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.leases import LeaseRow
from counterfoil.projections.projection import Projection

from .group import Group
from .tokens import new_token

_BY_EVENT: Final[dict[type[Event], tuple[Projection[Any], ...]]] = {
    cls: tuple(projection for projection in BUILT_IN if cls in projection.EVENTS) for cls in REGISTRY.types().values()
}
_LEASES: Final = "leases"
_BINDINGS: Final = "bindings"
_EPOCHS: Final = "epochs"


class States(Group):
    """What was committed, with what the group did so far."""

    # What commands read.

    def operation(self, operation_id: str) -> Operation | None:
        return self.caches.operations.get(operation_id)

    def operation_at(self, position: int) -> Operation | None:
        originator_id = self.store.originator_at(position)
        return None if originator_id is None else self.operation(originator_id)

    def queue(self, route_id: str) -> Queue:
        return self.caches.queues.get(route_id) or Queue(route_id)

    def lease(self, lease_id: str) -> Lease | None:
        row = self.caches.rows[_LEASES].get((lease_id,))
        return None if row is None else row.lease(self._epoch_at(row.position))

    def binding(self, route_id: str) -> Binding | None:
        row = self.caches.rows[_BINDINGS].get((route_id,))
        return None if row is None else row.binding

    def deadline(self, lease_id: str) -> Deadline | None:
        """Return a lease's running deadline; a renewal by another opening is a commit, after which nothing is cached."""
        return self.caches.deadlines.get(lease_id)

    def payload(self, position: int) -> Payload | None:
        """Return a text that was committed by an earlier group or by this one."""
        for place, salt, body in self.changes.payloads:
            if place == position:
                return Payload(salt, body)
        return self.store.payload(position)

    def load(self, route_id: str) -> Load:
        """Return how much work this opening has waiting, and whether the route is part of it."""
        work = self.caches.work_of(self.opening_id)
        return Load(work.waiting, len(work.routes), route_id in work.routes)

    def _version(self, originator_id: str) -> int:
        """Return the version of the last event of an aggregate, 0 before its first."""
        state: Operation | LeaseRow | Binding | None
        match originator_id[:3]:
            case "op-":
                state = self.operation(originator_id)
            case "lk-":
                state = self.caches.rows[_LEASES].get((originator_id,))
            case "rt-":
                state = self.binding(originator_id)
            case _:
                pending = [row[3] for row in self.changes.events if row[2] == originator_id]
                return pending[-1] if pending else self.store.stream_version(originator_id)
        return 0 if state is None else state.version

    def has_event(self, originator_id: str, version: int) -> bool:
        return any(row[2] == originator_id and row[3] == version for row in self.changes.events) or self.store.has_event(
            originator_id, version
        )

    def grant_at(self, lease_id: str, position: int) -> tuple[int, int] | None:
        """Return the opening that was given a lease at a position, and the version of the grant; None when none was."""
        for row in self.changes.events:
            if row[0] == position and row[2] == lease_id and row[4] == LockGranted.TYPE:
                return row[6], row[3]
        return self.store.grant_at(lease_id, position)

    def event_of(self, originator_id: str, version: int) -> Event | None:
        """Return an event by its place in its aggregate's stream, of the past or of this group."""
        for row in self.changes.events:
            if row[2] == originator_id and row[3] == version:
                return REGISTRY.decode(row[4], row[5], row[16])
        return self.store.event_of(originator_id, version)

    def position_of(self, originator_id: str, version: int) -> int | None:
        """Return the position of an event by its place in its aggregate's stream."""
        for row in self.changes.events:
            if row[2] == originator_id and row[3] == version:
                return int(row[0])
        return self.store.position_of(originator_id, version)

    def _epoch_at(self, position: int) -> int:
        """Return the epoch that stands at a position of the past, or of this group."""
        known = self.caches.epochs.get(position)
        if known is None:
            raised = (row for _, row in self.caches.rows[_EPOCHS].changed() if row is not None)
            pending = [row for row in raised if row.position < position]
            known = pending[-1].epoch if pending else self.store.epoch_at(position)
            self.caches.epochs.put(position, known)
        return known

    # What moves them.

    def put_deadline(self, deadline: Deadline) -> None:
        self.caches.deadlines.put(deadline.lease_id, deadline)

    def _fold(self, recorded: Recorded) -> None:
        """Take in an event that was appended."""
        event = recorded.event
        assert event is not None
        for projection in _BY_EVENT[type(event)]:
            if self.ahead and projection.AGGREGATED:
                continue
            key = projection.key(recorded)
            if key is not None:
                rows = self.caches.rows[projection.NAME]
                row = None if type(event) in projection.BEGIN else rows.get(key)
                rows.put(key, projection.fold(row, recorded))
        match recorded.originator_id[:3]:
            case "op-":
                self._fold_operation(recorded)
            case "lk-":
                self._fold_lease(recorded)

    def _fold_operation(self, recorded: Recorded) -> None:
        operations = self.caches.operations
        before = operations.get(recorded.originator_id)
        after = operation.evolve(before, recorded)
        operations.put(recorded.originator_id, after)
        self.caches.tie(after.route, after.conversation)
        queue = self.queue(after.route)
        changed = route.evolve_queue(queue, recorded)
        if changed is not queue:
            self._count(queue, changed)
            self.caches.queues.put(after.route, changed)
        if after.ended and before is not None and not before.ended and not self.keep_inbound:
            self.changes.erased.append((after.position,))

    def _fold_lease(self, recorded: Recorded) -> None:
        lease_id = recorded.originator_id
        if not isinstance(recorded.event, LockGranted):
            self.caches.deadlines.put(lease_id, None)
            return
        self.caches.epochs.put(recorded.position, self.head.epoch)
        event, world = recorded.event, self.context.world
        ends = None if event.max_hold is None else world.boot_now + event.max_hold * 1_000
        at = end_of(world.boot_now, event.ttl, ends)
        self.put_deadline(Deadline(lease_id, self.opening_id, new_token(), world.boot_id, at, 0, event.ttl, ends))

    def _count(self, before: Queue, after: Queue) -> None:
        work = self.caches.work_of(self.opening_id)
        if len(after.entries) > len(before.entries):  # what comes is this opening's, and waits
            entries, waiting = work.routes.get(after.route, (0, 0))
            work.put(after.route, (entries + 1, waiting + 1))
            return
        mine = [entry for entry in after.entries if entry.opening_id == self.opening_id]
        work.put(after.route, (len(mine), sum(entry.waiting for entry in mine)) if mine else None)
