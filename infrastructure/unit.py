"""
A unit of work: the commands of one group are decided on the state that stands, and what they append is written once.

Nothing is written while commands are decided, so what is loaded is what was committed; what earlier commands of the group did is
seen through the caches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from counterfoil.domain.decision import Step, Steps
from counterfoil.domain.event import Event, Header, Recorded, encode
from counterfoil.domain.framing import chain_digest, leaf_digest
from counterfoil.domain.hold import Terms
from counterfoil.domain.ids import opening_originator
from counterfoil.domain.limits import Limits
from counterfoil.domain.opening import OpeningEpochRaised, OpeningStarted, next_epoch
from counterfoil.domain.operation import OPERATION_PREFIX, Operation

from .caches import Caches
from .clocks import Clocks
from .places import Place
from .rows import Head
from .scopes import Scopes
from .states import States
from .store import Store

RELEASE: Final = "0.1.0"


class Elsewhere(Exception):
    """
    A command builds on what an earlier one of its group did, whose place is not known yet: it belongs into the next group.

    Only units that decide ahead raise it; nothing of the command is part of the group then.
    """


class OpeningState:
    """What this process knows of its own opening."""

    def __init__(self) -> None:
        self.opening_id: int | None = None
        self.started = False


class Unit(States, Scopes):
    """
    One group's view of the journal.

    A command reads states through it and appends steps; `keep` or `drop` ends the command. `write` is the engine's part.

    With `ahead` it is decided ahead of the append: positions above the head and times from `now` on are provisional, no event
    names any, and `changes.events` hold leaf digests where otherwise the chain's are.
    """

    def __init__(
        self,
        *,
        store: Store,
        caches: Caches,
        head: Head,
        opening: OpeningState,
        clocks: Clocks,
        limits: Limits,
        raise_epoch: Callable[[int], int],
        keep_inbound: bool,
        ahead: bool = False,
        on_top_of: Unit | None = None,
    ) -> None:
        """`on_top_of` is the group before, when its places are not known yet: nothing may build on its events either."""
        assert opening.opening_id is not None
        super().__init__(
            store=store,
            caches=caches,
            head=head,
            opening_id=opening.opening_id,
            clocks=clocks,
            limits=limits,
            keep_inbound=keep_inbound,
            ahead=ahead,
        )
        self._opening = opening
        self._before = opening.started
        self._committed: int = head.position if on_top_of is None else on_top_of._committed
        """Up to where positions are known."""
        self._kept = (head, opening.started)
        self._marks = self.changes.marks()
        self._raise_epoch = raise_epoch
        self.foreseen: dict[int, Any] = {}
        """What commands have worked out when they told what they need, by their identity."""
        self._touched: set[str] = set() if on_top_of is None else set(on_top_of._touched)
        """The aggregates to which earlier commands of the group have appended."""
        self._kept_events = 0

    @property
    def begins_opening(self) -> bool:
        """Tell whether the events of the group are the first of this opening."""
        return self._opening.started and not self._before

    @property
    def opening_started(self) -> bool:
        return self._opening.started

    # Appending.

    def start_opening(self) -> None:
        """Append that the opening has begun, if it has not: what it is to be known by needs its sign of life."""
        if not self._opening.started:
            self._start_opening()

    def append(self, steps: Steps, header: Header) -> list[Recorded]:
        """Append the steps of one decision; `header` gives what they share."""
        if steps:
            self.start_opening()
        return [self._append(step, header) for step in steps]

    def append_for(self, state: Operation, steps: Steps) -> list[Recorded]:
        """Append the steps of a decision about an operation."""
        return self.append(steps, header_of(state))

    def _append(self, step: Step, shared: Header) -> Recorded:
        event = step.event
        if self.ahead and self._builds_on_the_group(step.originator_id, shared.operation):
            raise Elsewhere
        header = Header(
            self.opening_id, step.actor_kind, *shared[2:6], step.actor, shared.operation, shared.correlation, step.causation
        )
        recorded = self.write_event(
            step.originator_id, self._version(step.originator_id) + 1, event.TYPE, event.VERSION, header, encode(event), event
        )
        position = recorded.position
        if (step.payload is not None or step.external_id is not None) and not self._was_erased(shared.operation):
            if step.payload is not None:
                self.changes.payloads.append((position, step.payload.salt, step.payload.body))
            if step.external_id is not None:
                self.changes.external_ids.append((position, step.external_id))
        self._fold(recorded)
        return recorded

    def _builds_on_the_group(self, originator_id: str, operation: int | None) -> bool:
        if operation is not None and operation > self._committed:
            return True
        return originator_id in self._touched and originator_id.startswith(OPERATION_PREFIX)

    def only_counts(self, operation: Operation) -> bool:
        """
        Tell whether a repeat of an operation's event is only counted, because an event of it would have to name a place that is
        not known yet, and there is no next group.
        """
        return False

    def _was_erased(self, operation: int | None) -> bool:
        """Tell whether an operation's ids were erased while it ran: nothing that would bring them back is kept any more."""
        return operation is not None and operation <= self._committed and self.store.external_id(operation) is None

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
        digest = leaf_digest(originator_id, version, event_type, type_version, *header, state)
        if not self.ahead:
            digest = chain_digest(head.digest, position, recorded_at, digest)
        self.head = Head(head.format, position, digest, recorded_at, head.epoch, head.opening_id, head.journal_key)
        self.changes.events.append(
            (position, recorded_at, originator_id, version, event_type, type_version, *header, state, digest)
        )
        recorded = Recorded(position, recorded_at, originator_id, version, header, event)
        if self.ahead:
            self.changes.decoded.append(recorded)
        return recorded

    # Lines of locks.

    def first_in_line(self, lease_id: str) -> Place | None:
        """Return the first who waits for a key, of those whose openings live and look."""
        caches = self.caches
        if caches.nobody_waits is None:
            caches.nobody_waits = not self.store.lines.anybody()
        if caches.nobody_waits:
            return None
        return self.store.lines.first(lease_id, self.opening_id, self.context.world.is_live, self.context.world.shared_now)

    def enter_line(self, lease_id: str, token: bytes, terms: Terms) -> None:
        """Take the last place in the line of a key."""
        self.start_opening()
        self.caches.nobody_waits = False
        self.store.lines.enter(lease_id, self.opening_id, token, terms, self.now)

    def leave_line(self, lease_id: str, token: bytes) -> None:
        """Give up a place."""
        self.caches.nobody_waits = None
        self.store.lines.leave(lease_id, token)

    def remember_key(self, lease_id: str, key: str) -> None:
        """Keep what key an id stands for."""
        if self.caches.lock_keys.get(lease_id) is None:
            self.caches.lock_keys.put(lease_id, key)
            self.store.lines.remember_key(lease_id, key)

    # The opening.

    def _start_opening(self) -> None:
        originator = opening_originator(self.head.journal_key, self.opening_id)
        self._opening.started = True
        self.head = self.head._replace(opening_id=self.opening_id)
        self._append(Step(originator, OpeningStarted(release=RELEASE, process=os.getpid())), Header())
        epoch = self._raise_epoch(next_epoch(self.head.epoch, 0, self._clocks.stamps() // 1_000))
        self._append(Step(originator, OpeningEpochRaised(epoch=epoch)), Header())
        self.head = self.head._replace(epoch=epoch)
        self.store.lines.leave_of_ended(self.context.world.is_live)

    @property
    def effects(self) -> tuple[int, int, int]:
        """What grows with each change that a command makes, but for what is only remembered: scopes, people and keys."""
        changes = self.changes
        return len(changes.events), len(changes.actions) + len(changes.rings), self.caches.puts

    # The end of a command.

    def keep(self) -> None:
        """Make what the command did part of the group."""
        self.caches.keep()
        if self.ahead:
            self._touched.update([row[2] for row in self.changes.events[self._kept_events :]])
            self._kept_events = len(self.changes.events)
        self._marks = self.changes.marks()
        self._kept = (self.head, self._opening.started)

    def drop(self) -> None:
        """Undo what the command did; inside `nested`, what the command in it did."""
        self.caches.drop()
        self.changes.cut(self._marks)
        self.head, self._opening.started = self._kept

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Run a command inside the running one; it may drop what it did, and what it raises undoes just that."""
        outer, floor = (self._marks, self._kept), self.caches.nest()
        self._marks, self._kept = self.changes.marks(), (self.head, self._opening.started)
        try:
            yield
        except BaseException:
            self.drop()
            raise
        finally:
            self._marks, self._kept = outer
            self.caches.unnest(floor)

    # The end of the group.

    def move(self, times: int) -> None:
        """Move what the group has appended in time; what it has cached is moved by the caches."""
        changes = self.changes
        self.now += times
        self.head = self.head._replace(recorded_at=self.head.recorded_at + times)
        changes.events[:] = [(row[0], row[1] + times, *row[2:]) for row in changes.events]
        changes.decoded[:] = [row._replace(recorded_at=row.recorded_at + times) for row in changes.decoded]

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
