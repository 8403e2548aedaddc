"""
What a process knows of a journal, and what it decides on that: a draft, to be appended elsewhere, and taken in when it was.

All of it is about one position, the head that it stands at. What others have appended since is found out by the append.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from counterfoil.domain.limits import Limits
from counterfoil.domain.placing import Placing, placed

from ..caches import Caches
from ..committer import Request
from ..rows import Head
from ..statements import Names
from ..unit import OpeningState, Unit
from .access import Access
from .appending import Appended
from .clocks import ServerClocks
from .deciding import Draft, decide, is_alone
from .folding import catch_up, fold_slice
from .gaps import SLICE
from .loading import Wanted
from .record import FOLDS
from .refreshing import refresh
from .store import Busy, PostgresStore
from .unfolded import Unfolded, placed_event

CALLS: Final = Names("calls")


class Knowledge:
    """What is cached of a journal by one connection, where that stands, and what is decided on it."""

    def __init__(
        self,
        store: PostgresStore,
        access: Access,
        *,
        opening: OpeningState,
        shares_work: Callable[[], bool],
        clocks: ServerClocks,
        limits: Callable[[], Limits],
        keep_inbound: bool,
        readonly: bool,
        newest: int,
    ) -> None:
        """
        `newest` is the highest position that this process has ever seen, and `shares_work` tells whether hosts' transactions
        admit events in the name of its opening.
        """
        self.store = store
        self.caches = Caches(store)
        self.opening = opening
        self.head: Head | None = None
        """The head that the caches stand at; None where it has to be looked at."""
        self.newest = newest
        self.erasures = 0
        self.undisturbed = True
        """Whether nobody else had appended before what was last appended."""
        self._shares_work = shares_work
        self._access = access
        self._clocks = clocks
        self._limits = limits
        self._keep_inbound = keep_inbound
        self._readonly = readonly
        self._own = Unfolded()
        self._unfolded = 0
        """How many events were appended since some were last folded into the aggregated projections."""

    def draft(self, part: list[Request[Any]], presume: bool) -> Draft | list[Request[Any]]:
        """Decide what belongs together; return the requests that are to be decided again where there is nothing to append."""
        unit, wanted = self._prepare(part, presume)
        try:
            reads = self.store.reads
            decided = decide(unit, part)
            if not decided.requests:
                raise RuntimeError("a command builds on places that it gives itself")
            assert self.head is not None
            draft = Draft(part, unit, wanted, decided, self.head)
            if decided.changes_nothing:
                self.undo(draft)
                stale = wanted.presumed_any or self.has_moved()
                return part if stale else part[len(decided.requests) :]
            if self.store.reads != reads and self.has_moved():
                self.undo(draft)
                return part
        except BaseException:
            self.forget(unit)
            raise
        return draft

    def draft_ahead(self, draft: Draft, following: list[Request[Any]]) -> Draft | None:
        """
        Decide what follows a draft while that is appended, as if it stood where it was thought to. Nothing can be read meanwhile.

        Until it is known what has become of the first, the caches hold it at provisional places.
        """
        if not following or not self.undisturbed or len(draft.decided.requests) < len(draft.part) or is_alone(following[0]):
            return None
        draft.unit.commit()
        draft.wanted.withdraw()
        draft.taken = True
        self.head, stood = draft.unit.head, self.head
        self.store.busy = True
        try:
            unit = self._begin_unit(draft.unit)
            wanted = Wanted(self.store, unit, [request.command for request in following], presume=True)
            decided = decide(unit, following)
        except Busy:
            return None
        finally:
            self.store.busy = False
            self.head = stood
        ahead = Draft(following[: len(decided.requests)], unit, wanted, decided, draft.unit.head)
        if decided.changes_nothing or unit.changes.actions:  # which hold times of which nothing is known here
            self.undo(ahead)
            return None
        return ahead

    def _prepare(self, part: list[Request[Any]], presume: bool) -> tuple[Unit, Wanted]:
        """Begin a unit, for which what its commands are about to read is loaded as it is at its head, or presumed."""
        commands = [request.command for request in part]
        if self.head is None:
            self.look()
        try:
            while True:
                unit = self._begin_unit()
                wanted = Wanted(self.store, unit, commands, presume=presume)
                if not wanted.load() or not self.has_moved():
                    return unit, wanted
                wanted.withdraw()
        except BaseException:
            self.forget(None)  # what was presumed, and never came to be tried
            raise

    def _begin_unit(self, on_top_of: Unit | None = None) -> Unit:
        assert self.head is not None
        self.caches.nobody_waits = None
        if self._shares_work():
            self.caches.forget_work()
        self.caches.forget_what_moves_without_events(self.opening.opening_id)
        unit = Unit(
            store=self.store,
            caches=self.caches,
            head=self.head,
            opening=self.opening,
            clocks=self._clocks,
            limits=self._limits(),
            raise_epoch=lambda proposed: proposed,
            keep_inbound=self._keep_inbound,
            ahead=True,
            on_top_of=on_top_of,
        )
        self.store.lines.begin(unit.changes)
        return unit

    def look(self) -> bool:
        """Look at the head, on which stands what is decided from now on; tell whether nothing that is cached does."""
        row = self.store.one(CALLS.standpoint, {"folds": FOLDS})
        assert row is not None
        *head, erasures, clock, behind = row
        behind = behind and not self._readonly
        if behind:
            catch_up(self.store)
        self.head = Head._make((*head, self._access.journal_key or b""))
        self._clocks.heard(clock)
        self.newest = max(self.newest, self.head.position)
        if not behind and erasures == self.erasures:
            return False
        self.erasures = erasures
        self.caches.forget()
        return True

    def has_moved(self) -> bool:
        """Tell whether others have appended since what is cached was true; afterwards it is true of the newest position."""
        before = self.head
        anew = self.look()
        head = self.head
        assert before is not None and head is not None
        refresh(self.store, self.caches, before.position, head.position, self.opening.opening_id)
        return anew or head.position != before.position

    def take_in(self, draft: Draft, appended: Appended, ahead: Draft | None) -> list[Request[Any]]:
        """
        Take in what was appended; return the requests that are to be decided again.

        Those change nothing, and what they were told is true only of the position that it was decided on, if it was not presumed.
        """
        unit, decided, stood, events = draft.unit, draft.decided, draft.stood, draft.unit.changes.events
        assert appended.recorded_at is not None
        placing = Placing(
            seen=stood.position,
            positions=0 if appended.position is None else appended.position - stood.position - 1,
            since=unit.now,
            times=appended.recorded_at - unit.now,
            epoch=appended.epoch,
        )
        self.undisturbed = draft.stands(appended)
        self._place(draft, appended, placing, ahead)
        for request in decided.requests:
            request.result = placed(request.result, placing)
        if events:
            position, recorded_at = placing.position(events[-1][0]), placing.time(events[-1][1])
            self.head = unit.head._replace(position=position, recorded_at=recorded_at, epoch=appended.epoch)
            self.newest = max(self.newest, position)
            self._unfolded += len(events)
            self._own.take(appended.head, [placed_event(event, placing) for event in unit.changes.decoded])
        elif appended.head != stood.position:
            self.look()
        if any(is_alone(request) for request in decided.requests):
            self.forget(None)  # what it erased is no longer what the caches hold
        return decided.idle if draft.wanted.presumed_any or appended.head != stood.position else []

    def _place(self, draft: Draft, appended: Appended, placing: Placing, ahead: Draft | None) -> None:
        """Have the caches hold a draft at its real places."""
        if not draft.taken:
            refresh(self.store, self.caches, draft.stood.position, appended.head, self.opening.opening_id)
            self.caches.place(placing)
            draft.unit.commit()
            draft.wanted.withdraw()
        elif not self.undisturbed:
            self.caches.evict_latest()
            refresh(self.store, self.caches, draft.stood.position, appended.head, self.opening.opening_id)
        else:
            self.caches.place_latest(placing)
            if ahead is not None:
                ahead.follow(placing)

    def fold(self) -> None:
        """Fold on what is folded after appends, when enough has come together."""
        while self._unfolded >= SLICE and not self.store.connection.closed:
            self._unfolded = self._unfolded - SLICE if fold_slice(self.store, self._own) else 0

    def fold_rest(self) -> None:
        """Fold what is left, so that a small journal is left with nothing to fold."""
        if self._unfolded:
            fold_slice(self.store, self._own)

    def fold_later(self) -> None:
        """Fold nothing more of what was appended until now."""
        self._unfolded = 0

    def undo(self, draft: Draft) -> None:
        """Nothing of a draft was appended; what is cached of what was committed stands, but for what was presumed."""
        draft.unit.rollback()
        draft.wanted.withdraw()
        if draft.taken:
            self.caches.evict_latest()

    def forget(self, unit: Unit | None) -> None:
        """Know nothing any more."""
        if unit is not None:
            unit.rollback()
        self.caches.forget()
        self.head = None
