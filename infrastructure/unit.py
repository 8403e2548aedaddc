"""
A unit of work: the commands of one group are decided on the state that stands, and what they append is written once.

Nothing is written while commands are decided, so what is loaded is what was committed; what earlier commands of the group did is
seen through the caches.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from counterfoil.domain import operation, route
from counterfoil.domain.admission import Load
from counterfoil.domain.decision import Context, Payload, Step, Steps
from counterfoil.domain.event import REGISTRY, Event, Header, Recorded, encode
from counterfoil.domain.framing import chain_digest, leaf_digest
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey, SubjectKind, opening_originator
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import Clockwork, Deadline, Lease, LockGranted
from counterfoil.domain.opening import OpeningEpochRaised, OpeningStarted, next_epoch
from counterfoil.domain.operation import Operation
from counterfoil.domain.route import Binding, Queue
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Projection

from .caches import Caches, Store, Work
from .changes import Changes
from .clock import Clock
from .rows import Head, Scoped

RELEASE: Final = "0.1.0"

_BY_EVENT: Final[dict[type[Event], tuple[Projection[Any], ...]]] = {
    cls: tuple(projection for projection in BUILT_IN if cls in projection.EVENTS) for cls in REGISTRY.types().values()
}
_LEASES: Final = "leases"
_BINDINGS: Final = "bindings"
_EPOCHS: Final = "epochs"


class OpeningState:
    """What this process knows of its own opening."""

    def __init__(self) -> None:
        self.opening_id: int | None = None
        self.started = False


class Unit:
    """
    One group's view of the journal.

    A command reads states through it and appends steps; `keep` or `drop` ends the command. `write` is the engine's part.
    """

    def __init__(
        self,
        *,
        store: Store,
        caches: Caches,
        head: Head,
        opening: OpeningState,
        clock: Clock,
        limits: Limits,
        is_live: Callable[[int], bool],
        raise_epoch: Callable[[int], int],
        keep_inbound: bool,
    ) -> None:
        self.store = store
        self.caches = caches
        self.head = head
        self.changes = Changes()
        self.limits = limits
        self.keep_inbound = keep_inbound
        self._opening = opening
        self._before = opening.started
        self._kept = (head, opening.started)
        self._raise_epoch = raise_epoch
        self._clock = clock
        assert opening.opening_id is not None
        self.opening_id: int = opening.opening_id
        self.now = max(clock.now(), head.recorded_at + 1)
        world = Clockwork(self.opening_id, clock.boot_id(), clock.boot(), is_live)
        self.context = Context(self.now, world, lambda: os.urandom(32), limits)
        self._marks = self.changes.marks()
        self._work_before: dict[str, tuple[int, int] | None] = {}

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
        return None if row is None else row.lease._replace(epoch=self.epoch_at(row.position))

    def binding(self, route_id: str) -> Binding | None:
        row = self.caches.rows[_BINDINGS].get((route_id,))
        return None if row is None else row.binding

    def deadline(self, lease_id: str) -> Deadline | None:
        """Return a lease's running deadline; another opening's is read anew, because a renewal moves it without an event."""
        deadline = self.caches.deadlines.get(lease_id)
        if self.caches.deadlines.touched(lease_id) or (deadline is not None and deadline.opening_id == self.opening_id):
            return deadline
        return self.store.deadline(lease_id)

    def payload(self, position: int) -> Payload | None:
        """Return a text that was committed by an earlier group or by this one."""
        for place, salt, body in self.changes.payloads:
            if place == position:
                return Payload(salt, body)
        return self.store.payload(position)

    def load(self, route_id: str) -> Load:
        """Return how much work this opening has waiting, and whether the route is part of it."""
        work = self._work()
        return Load(work.waiting, len(work.routes), route_id in work.routes)

    def deadlines_of_opening(self) -> list[Deadline]:
        """Return the running deadlines of this opening's leases, with what this group did to them."""
        deadlines = {deadline.lease_id: deadline for deadline in self.store.deadlines_of_opening(self.opening_id)}
        for lease_id, deadline in self.caches.deadlines.changed():
            if deadline is None:
                deadlines.pop(lease_id, None)
            else:
                deadlines[lease_id] = deadline
        return list(deadlines.values())

    def epoch_at(self, position: int) -> int:
        """Return the epoch that stands at a position of the past, or of this group."""
        known = self.caches.epochs.get(position)
        if known is None:
            raised = (row for _, row in self.caches.rows[_EPOCHS].changed() if row is not None)
            pending = [row for row in raised if row.position < position]
            known = pending[-1].epoch if pending else self.store.epoch_at(position)
            self.caches.epochs.put(position, known)
        return known

    @property
    def opening_started(self) -> bool:
        return self._opening.started

    # Scopes and people.

    def known_scope(self, scope: Scope) -> ScopeKey | None:
        return self.caches.scopes.get(scope)

    def scope(self, scope: Scope) -> ScopeKey:
        """Return a scope's id and key; a new scope gets fresh ones."""
        known = self.caches.scopes.get(scope)
        if known is None:
            known = ScopeKey(os.urandom(16), os.urandom(32))
            self.caches.scopes.put(scope, known)
            self.caches.scope_ids.put(known.scope_id, Scoped(known.scope_id, known.key, *scope))
            self.changes.scopes.append((known.scope_id, *scope, known.key))
        return known

    def scope_by_id(self, scope_id: bytes) -> Scoped | None:
        return self.caches.scope_ids.get(scope_id)

    def scope_key(self, scope_id: bytes) -> ScopeKey | None:
        """Return the key of a scope, None once it was erased."""
        scoped = self.scope_by_id(scope_id)
        return None if scoped is None or scoped.key is None else ScopeKey(scope_id, scoped.key)

    def subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str) -> bytes:
        """Return the pseudonym of a person's id, and remember whom it stands for."""
        known = self.caches.subjects.get((key.scope_id, kind, connection, value))
        if known is None:
            known = key.pseudonym(kind, connection, value)
            self.caches.subjects.put((key.scope_id, kind, connection, value), known)
            self.changes.subjects.append((known, key.scope_id, kind, connection, value))
        return known

    def is_known_subject(self, pseudonym: bytes) -> bool:
        return any(row[0] == pseudonym for row in self.changes.subjects) or self.store.subject(pseudonym) is not None

    def forget_subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str) -> None:
        """The pseudonym stands for nobody from now on."""
        self.caches.subjects.put((key.scope_id, kind, connection, value), None)
        self.changes.actions.append(("erase_subject", (key.pseudonym(kind, connection, value),)))

    def forget_scope(self, scope: Scope, scope_id: bytes) -> None:
        """The scope has no key from now on: the next one of the same people is another."""
        self.caches.scopes.put(scope, None)
        self.caches.scope_ids.put(scope_id, Scoped(scope_id, None, None, None, None))

    # Command ids.

    def kept_command(self, scope_id: bytes, command_id: bytes) -> tuple[bytes, bytes, int] | None:
        """Return fingerprint, answer and time of a command id that was used."""
        return self.caches.commands.get((scope_id, command_id))

    def keep_command(self, scope_id: bytes, command_id: bytes, fingerprint: bytes, answer: bytes) -> None:
        self.caches.commands.put((scope_id, command_id), (fingerprint, answer, self.now))

    # Appending.

    def has_event(self, originator_id: str, version: int) -> bool:
        return any(row[2] == originator_id and row[3] == version for row in self.changes.events) or self.store.has_event(
            originator_id, version
        )

    def append(self, steps: Steps, header: Header) -> list[Recorded]:
        """Append the steps of one decision; `header` gives what they share."""
        if steps and not self._opening.started:
            self._start_opening()
        return [self._append(step, header) for step in steps]

    def append_for(self, state: Operation, steps: Steps) -> list[Recorded]:
        """Append the steps of a decision about an operation."""
        return self.append(steps, header_of(state))

    def new_version(self, originator_id: str) -> int:
        """Return the version of the next event of an aggregate."""
        match originator_id[:3]:
            case "op-":
                state = self.operation(originator_id)
                return 1 if state is None else state.version + 1
            case "lk-":
                lease = self.lease(originator_id)
                return 1 if lease is None else lease.version + 1
            case "rt-":
                binding = self.binding(originator_id)
                return 1 if binding is None else binding.version + 1
        pending = [row[3] for row in self.changes.events if row[2] == originator_id]
        return (pending[-1] if pending else self.store.stream_version(originator_id)) + 1

    def _append(self, step: Step, shared: Header) -> Recorded:
        event = step.event
        header = Header(
            self.opening_id, step.actor_kind, *shared[2:6], step.actor, shared.operation, shared.correlation, step.causation
        )
        recorded = self.write_event(
            step.originator_id, self.new_version(step.originator_id), event.TYPE, event.VERSION, header, encode(event), event
        )
        position = recorded.position
        if step.payload is not None:
            self.changes.payloads.append((position, step.payload.salt, step.payload.body))
        if step.external_id is not None:
            self.changes.external_ids.append((position, step.external_id))
        self._fold(recorded)
        return recorded

    def write_event(
        self,
        originator_id: str,
        version: int,
        event_type: str,
        type_version: int,
        header: Header,
        state: bytes,
        event: Event | None,
    ) -> Recorded:
        """Give an event its place, its time and its digest."""
        head = self.head
        position = head.position + 1
        recorded_at = max(self.now, head.recorded_at + 1)
        leaf = leaf_digest(originator_id, version, event_type, type_version, *header, state)
        digest = chain_digest(head.digest, position, recorded_at, leaf)
        self.head = Head(head.format, position, digest, recorded_at, head.epoch, head.opening_id, head.journal_key)
        self.changes.events.append(
            (position, recorded_at, originator_id, version, event_type, type_version, *header, state, digest)
        )
        return Recorded(position, recorded_at, originator_id, version, header, event)

    def _fold(self, recorded: Recorded) -> None:
        event = recorded.event
        assert event is not None
        for projection in _BY_EVENT[type(event)]:
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
        ttl = recorded.event.ttl
        world = self.context.world
        self.caches.deadlines.put(
            lease_id,
            Deadline(lease_id, self.opening_id, os.urandom(16), world.boot_id, world.boot_now + ttl * 1_000, 0, ttl),
        )

    def put_deadline(self, deadline: Deadline) -> None:
        self.caches.deadlines.put(deadline.lease_id, deadline)

    # The opening.

    def _start_opening(self) -> None:
        originator = opening_originator(self.head.journal_key, self.opening_id)
        self._opening.started = True
        self.head = self.head._replace(opening_id=self.opening_id)
        self._append(Step(originator, OpeningStarted(release=RELEASE, process=os.getpid())), Header())
        epoch = self._raise_epoch(next_epoch(self.head.epoch, 0, self._clock.now() // 1_000))
        self._append(Step(originator, OpeningEpochRaised(epoch=epoch)), Header())
        self.head = self.head._replace(epoch=epoch)

    # How much work this opening has.

    def _work(self) -> Work:
        work = self.caches.work
        if work is None:
            work = self.caches.work = Work(self.store.load_of_opening(self.opening_id))
        return work

    def _count(self, before: Queue, after: Queue) -> None:
        work = self._work()
        counts = work.routes.get(after.route)
        self._work_before.setdefault(after.route, counts)
        if len(after.entries) > len(before.entries):  # what comes is this opening's, and waits
            entries, waiting = counts or (0, 0)
            work.put(after.route, (entries + 1, waiting + 1))
            return
        mine = [entry for entry in after.entries if entry.opening_id == self.opening_id]
        work.put(after.route, (len(mine), sum(entry.waiting for entry in mine)) if mine else None)

    # The end of a command.

    def keep(self) -> None:
        """Make what the command did part of the group."""
        self.caches.keep()
        self._work_before.clear()
        self._marks = self.changes.marks()
        self._kept = (self.head, self._opening.started)

    def drop(self) -> None:
        """Undo what the command did."""
        self.caches.drop()
        self.changes.cut(self._marks)
        self.head, self._opening.started = self._kept
        if self.caches.work is not None:
            for route_id, counts in self._work_before.items():
                self.caches.work.put(route_id, counts)
        self._work_before.clear()

    # The end of the group.

    def commit(self) -> None:
        """What the kept commands did was committed: the caches hold it from now on."""
        self.caches.commit()

    def rollback(self) -> None:
        """Nothing was committed: everything is as it was before the group."""
        self.caches.rollback()
        self._opening.started = self._before


def header_of(state: Operation) -> Header:
    """Return what the events on behalf of an operation share."""
    return Header(
        scope_id=state.scope_id,
        connection=state.connection,
        conversation=state.conversation,
        thread=state.thread,
        operation=state.position,
        correlation=state.correlation,
    )
