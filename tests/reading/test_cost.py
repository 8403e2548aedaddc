"""What reading costs: each statement goes by an index, and a page deep in a big journal is no dearer than the first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from counterfoil.domain.identity import instant_of
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure import reading
from counterfoil.infrastructure.reading import Page
from counterfoil.infrastructure.sqlite.store import APPEND, SQLiteStore
from counterfoil.infrastructure.statements import statements
from counterfoil.infrastructure.store import Store
from counterfoil.projections.timeline import TimelineEntry, TimelineFilter
from counterfoil.testing import MovableClock

from .conftest import OWN, Told

pytestmark = pytest.mark.sqlite_only("plans and steps are those of SQLite")

EVENTS = 100_000
PARAMETERS = (
    "scopes connection conversations threads actors actor_kind correlation types settled external_id key value after before limit"
)
NAMELESS = dict.fromkeys(PARAMETERS.split())


def plan(store: Store, name: str) -> Iterable[str]:
    statement = getattr(statements("sqlite/timeline.sql"), name)
    values: Any = NAMELESS if ":" in statement else [None] * statement.count("?")
    for *_, step in store.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values):
        if "json_each" not in step and not step.startswith("LIST SUBQUERY"):
            yield step


def test_every_statement_has_its_index(told: Told, snapshot: SnapshotAssertion) -> None:
    """No page is sorted, but that of one operation, and none is looked for along the whole history."""
    names = list(vars(statements("sqlite/timeline.sql"))["_by_name"])

    plans = told.core.read(lambda store: {name: list(plan(store, name)) for name in names})

    assert snapshot == "\n".join(f"{name}: {'; '.join(steps)}" for name, steps in plans.items())
    for name in names:
        if name.startswith("by_") and "operation" not in name:
            assert plans[name] == [step for step in plans[name] if step.startswith("SEARCH cf_event USING I")]


@pytest.fixture(scope="module")
def big() -> Iterator[SQLiteStore]:
    """A journal of 100,000 events of one scope, half of them in one conversation, a tenth by one person."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with ExitStack() as stack:
            told = Told(":memory:", MovableClock(), stack)
            told.admit("1")
            told.admit("2", conversation="c2", actor="bob")
            told.core.read(lambda store: store.connection.backup(connection))
        store = SQLiteStore(connection)
        first, second = (row for row in store.events_after(0, 10) if row.type == "operation.admitted")
        rows = []
        for position in range(second.position + 1, EVENTS + 1):
            shared = first if position % 2 else second
            actor = first.actor if position % 10 == 0 else None
            place = (position, first.recorded_at + position, f"rt-{position:032x}", 1, "binding.advanced", 1)
            rows.append((*place, *shared[6:12], actor, first.position, *shared[14:16], b'{"leaf":"x"}', bytes(32)))
        connection.execute("BEGIN")
        connection.executemany(APPEND.insert_event, rows)
        connection.execute("UPDATE cf_head SET position = ?", (EVENTS,))
        connection.execute("COMMIT")
        yield store


def cost(store: SQLiteStore, where: TimelineFilter, **options: Any) -> tuple[int, Page[TimelineEntry]]:
    """How many hundreds of its steps SQLite takes for a page, and the page."""
    hundreds = 0

    def count() -> None:
        nonlocal hundreds
        hundreds += 1

    store.connection.set_progress_handler(count, 100)
    try:
        page = reading.timeline(store, OWN, Limits(), where, 50, **options)
    finally:
        store.connection.set_progress_handler(None, 0)
    return hundreds, page


@pytest.mark.contract("AUD-01")
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("where", [{}, {"conversation": "c1"}, {"actor": "ann"}, {"since": instant_of(1_767_225_601_050_000)}])
def test_page_deep_in_a_big_journal_costs_what_the_first_one_costs(
    big: SQLiteStore, where: dict[str, Any], newest_first: bool
) -> None:
    """Along the positions, in a conversation, of a person, and from a time on; in steps of SQLite, so that no clock is needed."""
    pages = [
        cost(big, TimelineFilter(**where), newest_first=newest_first, after=after)
        for after in (None, str(EVENTS // 2 + 1000), str(EVENTS - EVENTS // 10))
    ]

    assert [50, 50, 50] == [len(page.rows) for _, page in pages]
    assert max(hundreds for hundreds, _ in pages) < 150
