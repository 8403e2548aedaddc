"""
Verification: what a journal holds is compared with what it should hold, from its events alone.

Everything is read in pages; only the projections, folded anew, are held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from counterfoil.domain.event import REGISTRY, Committed, Recorded
from counterfoil.domain.framing import GENESIS
from counterfoil.domain.opening import OpeningStarted
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from .rows import EventRow, Head
from .statements import Names
from .store import READ, Store

VERIFY: Final = Names("verify")
PAGE: Final = 1_000
"""Rows that are read at once."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being checked, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Check:
    """What one check looked at. `difference` names the first thing that does not agree, in a sentence."""

    name: str
    checked: int
    unit: str
    difference: str | None = None

    @property
    def agrees(self) -> bool:
        return self.difference is None


@dataclass(frozen=True, slots=True)
class Verification:
    """One line for each check, of the journal as it was at `position`."""

    position: int
    checks: tuple[Check, ...]

    @property
    def agrees(self) -> bool:
        """Tell whether no check found a difference."""
        return all(check.agrees for check in self.checks)


def verify(store: Store, progress: Progress | None = None) -> Verification:
    """Check everything that can be checked. The store must stand in one snapshot; nothing is written."""
    head = store.head()
    report = progress or (lambda name, done, total: None)
    own = _own(store)
    report("history", 0, head.position)
    history = _History(store, head)
    with _read(store, history):
        for count, row in enumerate(_events(store), 1):
            history.take(row)
            if count % PAGE == 0:
                report("history", min(row.position, head.position), head.position)
    report("history", head.position, head.position)
    checks = [own, *history.checks(), _versions(store), *_payloads(store, report)]
    for aside in history.asides:
        checks.append(_compare(store, aside))
        report("projections", len(checks), len(checks))
    return Verification(head.position, tuple(checks))


def _events(store: Store) -> Iterator[EventRow]:
    position = 0
    while page := store.events_after(position, PAGE):
        yield from page
        position = page[-1].position


_MALFORMED: Final = "the store finds its data malformed there; restore a backup"


def _own(store: Store) -> Check:
    """Ask the store what it finds of itself."""
    name, count, unit = store.extent()
    return Check(name, count, unit, store.own_difference())


class _Aside:
    """A projection that is folded anew in memory, up to where its table is folded."""

    def __init__(self, projection: Projection[Any], upto: int) -> None:
        self.projection = projection
        self.upto = upto
        self.rows: dict[Key, Any] = {}
        self.difference: str | None = None

    def take(self, row: EventRow, recorded: Recorded | None) -> None:
        if row.position > self.upto or self.difference is not None:
            return
        if recorded is None:  # it was not readable; whether it counts is told by its type alone
            if any(row.type == cls.TYPE for cls in self.projection.EVENTS):
                self.difference = f"it cannot be folded past position {row.position}, whose event cannot be read"
            return
        if not isinstance(recorded.event, self.projection.EVENTS):
            return
        try:
            key = self.projection.key(recorded)
            if key is None:
                return
            after = self.projection.fold(self.rows.get(key), recorded)
        except Exception:
            self.difference = f"it cannot be folded past position {row.position}, whose event does not fit those before"
            return
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after


class _History:
    """The chain, the head, and whether every event can be read, in one pass that also folds the projections aside."""

    def __init__(self, store: Store, head: Head) -> None:
        positions = store.projections()
        self.asides = [
            _Aside(projection, min(positions[projection.NAME, projection.VERSION], head.position))
            for projection in BUILT_IN
            if (projection.NAME, projection.VERSION) in positions
        ]
        self._head = head
        self._count = 0
        self._previous = GENESIS
        self._position = 0
        self._recorded_at = 0
        self._chain: str | None = None
        self._unread: str | None = None

    def take(self, row: EventRow) -> None:
        self._count += 1
        if self._chain is None:
            self._chain = self._against_chain(row)
        self._previous, self._position, self._recorded_at = row.digest, row.position, row.recorded_at
        try:
            recorded: Recorded | None = row.recorded
        except ValueError:
            recorded = None
            if self._unread is None:
                self._unread = (
                    f"the event at position {row.position} is not a {row.type} of version {row.type_version} "
                    "as this release knows it"
                )
        for aside in self.asides:
            aside.take(row, recorded)

    def malformed(self) -> None:
        """Note that the store could not go on."""
        self._chain = self._chain or f"after position {self._position}: {_MALFORMED}"
        for aside in self.asides:
            aside.difference = aside.difference or f"it cannot be folded past position {self._position}: {_MALFORMED}"

    def _against_chain(self, row: EventRow) -> str | None:
        if row.position != self._position + 1 and not _may_follow_a_gap(row):
            return f"the event at position {self._position + 1} is missing; the next is at position {row.position}"
        if row.position > self._head.position:
            return f"the event at position {row.position} lies beyond the head, which is at position {self._head.position}"
        try:
            agrees = row.chained(self._previous) == row.digest
        except Exception:  # values that no event has
            agrees = False
        if not agrees:
            return f"the digest at position {row.position} does not agree with the event and the digest before"
        if row.recorded_at <= self._recorded_at:
            return f"the time of the event at position {row.position} is not after that of the event before"
        return None

    def checks(self) -> list[Check]:
        head, difference = self._head, self._chain
        if difference is None and self._position < head.position:
            difference = f"the event at position {self._position + 1} is missing; the head is at position {head.position}"
        if difference is None and (head.digest, head.recorded_at) != (self._previous, self._recorded_at):
            difference = f"the head does not have the digest and time of the event at position {head.position}"
        return [Check("chain", self._count, "events", difference), Check("event types", self._count, "events", self._unread)]


def _may_follow_a_gap(row: EventRow) -> bool:
    """Tell whether positions may be passed over before an event: it is the first of an opening, or a recorder's without one."""
    if row.type_version == 0:
        return row.opening_id is None
    return row.type == OpeningStarted.TYPE


@contextmanager
def _read(store: Store, history: _History) -> Iterator[None]:
    try:
        yield
    except store.UNREADABLE:
        history.malformed()


def _versions(store: Store) -> Check:
    streams, difference = 0, None
    stream, version, position = None, 0, 0
    try:
        for originator_id, found, place in store.rows(VERIFY.versions):
            if originator_id != stream:
                stream, version, position = originator_id, 0, 0
                streams += 1
            if difference is None and (found != version + 1 or place <= position) and _is_ours(store, originator_id):
                difference = (
                    f"the stream {originator_id} goes on with version {found} after version {version}, at position {place}"
                    if found != version + 1
                    else f"version {found} of the stream {originator_id} stands before the one that precedes it"
                )
            version, position = found, place
    except store.UNREADABLE:
        difference = difference or f"after the stream {stream}: {_MALFORMED}"
    return Check("versions", streams, "streams", difference)


def _is_ours(store: Store, originator_id: str) -> bool:
    return store.one(VERIFY.is_ours, (originator_id,)) is not None


def _payloads(store: Store, report: Progress) -> list[Check]:
    count, position, difference = 0, 0, None
    kept = 0
    try:
        total = store.count(VERIFY.count_payloads)
        while page := store.commitments_after(position, PAGE):
            for position, committed in page:
                count += 1
                difference = difference or _against_commitment(store, position, committed)
            report("payloads", count, total)
        kept = store.count(VERIFY.count_kept_inbound)
    except store.UNREADABLE:
        difference = difference or f"after the payload of position {position}: {_MALFORMED}"
    return [
        Check("commitments", count, "payloads", difference),
        Check("inbound texts of ended operations", kept, "payloads"),
    ]


def _against_commitment(store: Store, position: int, found: Committed) -> str | None:
    row = store.one(READ.event_state, (position,))
    if row is None:
        return f"a payload lies at position {position}, where no event is"
    try:
        event = REGISTRY.decode(*row)
    except ValueError:
        return f"the payload at position {position} belongs to an event that cannot be read"
    committed = next((value for _, value in event or () if isinstance(value, Committed)), None)
    if committed is None:
        return f"the payload at position {position} belongs to a {row[0]}, which commits to none"
    if committed != found:
        return f"the payload at position {position} is not the one that its {row[0]} commits to"
    return None


def _compare(store: Store, aside: _Aside) -> Check:
    projection = aside.projection
    name, keys = f"projection {projection.NAME}", projection.ROW._fields[: projection.KEY_COLUMNS]
    count, difference = 0, aside.difference
    if difference is None:
        anew = sorted(aside.rows.items())
        try:
            stored = store.rows_of(projection)
            for row, pair in zip_longest(stored, anew):
                count += 1
                difference = _difference(row, pair, keys)
                if difference is not None:
                    break
        except store.UNREADABLE:
            difference = f"after {count} rows: {_MALFORMED}"
    return Check(name, count, "rows", difference)


def _difference(row: tuple[Any, ...] | None, pair: tuple[Key, Any] | None, keys: tuple[str, ...]) -> str | None:
    """Compare the next row of the table with the next one folded anew; both come in order of their keys."""
    stored = None if row is None else row[: len(keys)]
    if pair is None or (stored is not None and stored < pair[0]):
        assert stored is not None
        return f"the row with {_named(keys, stored)} is not there when it is folded anew"
    key, anew = pair
    if row is None or stored is None or key < stored:
        return f"the row with {_named(keys, key)} is missing from the table"
    if anew == row:
        return None
    columns = [column for column, old, new in zip(anew._fields, row, anew, strict=True) if old != new]
    return f"the row with {_named(keys, key)} differs in {', '.join(columns)} when it is folded anew"


def _named(keys: tuple[str, ...], values: Key) -> str:
    return ", ".join(
        f"{name} {value.hex() if isinstance(value, bytes) else value}" for name, value in zip(keys, values, strict=True)
    )
