"""
A copy of a journal, between any two engines: positions, times, digests, and what lies beside the history and is not of a process.

What runs is not copied: deadlines, places in lines, keys that are held back. A copy is to the original as what was restored from
a backup: all openings have ended in it, and its first one passes over positions and raises the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from counterfoil.domain.errors import InvalidValue, JournalDamaged
from counterfoil.domain.event import Recorded
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from .naming import checked_url, is_postgres, path_of
from .rows import EventRow, Head, SQLRow
from .statements import Names, Statement
from .store import READ, Store
from .verification import PAGE, Verification, verify

COPY: Final = Names("copy")
PASSED_OVER: Final = 1_048_576
"""Positions that a copy passes over: more than the journal that was copied can have given before the copy is opened."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is, 0 if that is not known."""


class Table(NamedTuple):
    """A table that is copied row by row."""

    name: str
    """As in progress, and in the names of statements."""
    page: Statement
    """Read with the key after which it begins, and how many rows there are to be."""
    first: tuple[Any, ...]
    """What is before every key; a key is as many of the first columns."""


EVENTS: Final = Table("events", READ.events_after, (0,))
BESIDE: Final = (
    Table("payloads", READ.payloads_after, (0,)),
    Table("external_ids", COPY.external_ids, (0,)),
    Table("scopes", COPY.scopes, (b"",)),
    Table("subjects", COPY.subjects, (b"",)),
    Table("lock_keys", COPY.lock_keys, ("",)),
    Table("commands", COPY.commands, (b"", b"")),
    Table("repeats", COPY.repeats, (0,)),
)

Rows: TypeAlias = dict[Key, Any]


class Source(NamedTuple):
    """A journal in one snapshot."""

    store: Store
    epoch: int
    """The highest that was ever raised in it, as far as is known."""


class Target(Protocol):
    """A journal that is being made; nobody opens it before it is whole."""

    store: Store
    """What was written so far."""

    def begin(self, journal_key: bytes) -> None:
        """Make it, empty."""

    def put(self, table: Table, rows: Sequence[SQLRow]) -> None:
        """Write rows of a table."""

    def put_rows(self, projection: Projection[Any], rows: Rows) -> None:
        """Write the rows of a projection."""

    def put_head(self, head: Head, passed_over: int) -> None:
        """Write the end of the history; the first opening passes over this position and many after it."""

    def finish(self) -> None:
        """Make it a journal that can be opened."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, and what both sides were found to be."""

    position: int
    """Of the newest event that was copied."""
    rows: dict[str, int]
    """How many, by what they are."""
    source: Verification
    target: Verification

    @property
    def agrees(self) -> bool:
        """Tell whether both sides agree with themselves, and their histories end alike."""
        return self.source.agrees and self.target.agrees and self.source.position == self.target.position


def copy_journal(source: str, target: str, progress: Progress | None = None) -> Copied:
    """
    Copy a journal to where there is none; both are named as for `open`. The original may be written to meanwhile: the copy is of
    one moment. Nothing is left of a copy that fails or does not agree, and one that is killed is refused as unfinished.

    Raises `JournalRefused` for a target that is there already, and what opening raises for a source that is none.
    """
    say = progress or (lambda what, done, total: None)
    with _opened_source(source) as found, _opened_target(target) as made:
        copied = _copy(found, made, say)
        if copied.agrees:
            made.finish()
        return copied


def _opened_source(name: str) -> AbstractContextManager[Source]:
    if is_postgres(checked_url(name)):
        from .postgres.naming import parse

        address = parse(name)
        from .postgres.copying import reading_schema

        return reading_schema(address)
    path = path_of(name)
    if path is None:
        raise InvalidValue("a journal in memory is seen by the process that made it alone, and cannot be copied")
    from .sqlite.copying import reading_file

    return reading_file(path)


def _opened_target(name: str) -> AbstractContextManager[Target]:
    if is_postgres(checked_url(name)):
        from .postgres.naming import parse

        address = parse(name)
        from .postgres.copying import writing_schema

        return writing_schema(address)
    path = path_of(name)
    if path is None:
        raise InvalidValue("a copy in memory would be gone at once; name a file or a schema")
    from .sqlite.copying import writing_file

    return writing_file(path)


def _copy(source: Source, target: Target, say: Progress) -> Copied:
    store, head = source.store, source.store.head()
    target.begin(head.journal_key)
    counts = dict.fromkeys((EVENTS.name, *(table.name for table in BESIDE)), 0)
    folded: dict[str, Rows] = {projection.NAME: {} for projection in BUILT_IN}
    for page in _pages(store, EVENTS):
        target.put(EVENTS, page)
        for row in page:
            _fold(folded, EventRow(*row))
        counts[EVENTS.name] += len(page)
        say(EVENTS.name, page[-1][0], head.position)
    for table in BESIDE:
        for page in _pages(store, table):
            target.put(table, page)
            counts[table.name] += len(page)
            say(table.name, counts[table.name], 0)
    for projection in BUILT_IN:
        target.put_rows(projection, folded.pop(projection.NAME))
    (passed_over,) = store.one(COPY.passed_over) or (0,)
    target.put_head(head._replace(epoch=max(head.epoch, source.epoch)), max(passed_over, head.position))
    found = verify(store, lambda what, done, total: say(f"verifying {what} of the original", done, total))
    return Copied(
        head.position,
        counts,
        found,
        verify(target.store, lambda what, done, total: say(f"verifying {what} of the copy", done, total)),
    )


def _pages(store: Store, table: Table) -> Iterator[list[SQLRow]]:
    after = table.first
    while page := list(store.rows(table.page, (*after, PAGE))):
        yield page
        after = page[-1][: len(after)]


def _fold(folded: dict[str, Rows], row: EventRow) -> None:
    """Fold an event into the rows of each projection."""
    try:
        recorded = row.recorded
        for projection in BUILT_IN:
            if isinstance(recorded.event, projection.EVENTS):
                _fold_into(folded[projection.NAME], projection, recorded)
    except Exception:
        raise JournalDamaged(
            f"the event at position {row.position} cannot be read or folded; look at the original with `counterfoil verify`"
        ) from None


def _fold_into(rows: Rows, projection: Projection[Any], recorded: Recorded) -> None:
    key = projection.key(recorded)
    if key is None:
        return
    after = projection.fold(rows.get(key), recorded)
    if after is None:
        rows.pop(key, None)
    else:
        rows[key] = after
