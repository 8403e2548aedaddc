"""What is read of a journal: pages of what is unresolved and of what happened, in reach and out of it, and the statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterfoil.domain.errors import InvalidValue, JournalDamaged
from counterfoil.domain.event import REGISTRY
from counterfoil.domain.identity import EVERY_TENANT, Every, instant_of, reach
from counterfoil.domain.limits import Limits
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure import reading
from counterfoil.infrastructure.commands.erasure import EraseScope, EraseSubject
from counterfoil.infrastructure.commands.recording import RecordForeign
from counterfoil.infrastructure.reading import Page
from counterfoil.projections.timeline import SETTLED, TYPE_OF_OUTCOME, TimelineEntry, TimelineFilter
from tests.engines import Engine

from .conftest import OWN, Told, identity

OTHER = identity("other")
BOB = identity(user="bob")
ALL = reach(identity(), EVERY_TENANT)


def walk(page: Callable[[str | None], Page[Any]]) -> list[Any]:
    """All rows, page by page."""
    rows: list[Any] = []
    cursor = None
    while True:
        found = page(cursor)
        rows += found.rows
        if found.next is None:
            return rows
        assert found.rows
        cursor = found.next


def busy(told: Told) -> None:
    """Two tenants, one of them with two scopes, who share ids; turns that ended in each way, and some that did not."""
    for who in (identity(), BOB, OTHER):
        told.turn("1", who)
        told.turn("2", who, actor="bob", conversation="c1", thread="t1", connection="matrix")
        told.settle(told.claim("3", who, actor="bob"), Answer("failed", "agent_error"))
        told.mark(told.settle(told.claim("4", who, conversation="c3")), Delivery("delivery_failed", "blocked"))
        told.mark(told.settle(told.claim("5", who, conversation="c4")), Delivery("delivery_unknown", "timeout"))
        told.settle(told.claim("6", who, conversation="c5", thread="t2"))
        told.claim("7", who, conversation="c6")
        told.admit("7", who, conversation="c6")
        told.admit("8", who, conversation="c7", thread="t1", connection="matrix")
    late = told.claim("9", conversation="c8")
    assert late.operation is not None
    told.reconcile(late.operation.operation_id, force=True)
    told.settle(late)
    told.reconcile(str(told.admit("10", conversation="c9").admission.operation_id), note="asked by phone")


# Unresolved.


@pytest.mark.contract("RCN-01")
def test_unresolved_lists_what_needs_attention(told: Told) -> None:
    """Oldest first, with what reconcile needs to know; what is resolved is not there."""
    busy(told)

    rows = told.unresolved().rows

    assert [(row.state, row.reply_state, row.attempts, row.version, row.connection) for row in rows] == [
        ("succeeded", "delivery_failed", 1, 5, "tg"),
        ("succeeded", "delivery_unknown", 1, 5, "tg"),
        ("succeeded", "pending", 1, 4, "tg"),
        ("executing", "none", 0, 3, "tg"),
        ("accepted", "none", 0, 1, "matrix"),
    ]
    assert [(False, True), (True, True), (True, True), (True, False), (False, False)] == [
        (row.needs_acknowledgment, row.resends) for row in rows
    ]
    assert [row.version for row in rows] == [told.explain(row.operation_id)[0].version for row in rows]
    assert all(first.admitted_at < second.admitted_at for first, second in pairwise(rows))


@pytest.mark.contract("RCN-01")
def test_age_counts_from_the_admission(told: Told) -> None:
    """By the clock that the caller gives; times are in UTC to the microsecond."""
    told.admit("1")
    told.clock.advance("1h30m")

    (row,) = told.unresolved().rows

    assert row.admitted_at == row.updated_at == datetime(2026, 1, 1, 0, 0, 1, 2, tzinfo=UTC)
    assert row.age == timedelta(hours=1, minutes=30, microseconds=-2)
    assert told.unresolved(now=0).rows[0].age == timedelta(0)


@pytest.mark.parametrize("alive", [True, False, None])
def test_holder_is_named(told: Told, alive: bool | None) -> None:
    """Who has the entry in its queue, runs the turn or sends the reply, and whether it lives, where that can be told."""
    told.claim("1")
    told.admit("2")
    told.settle(told.claim("3", conversation="c3"))
    told.mark(told.settle(told.claim("4", conversation="c4")), Delivery("delivery_failed", "gone"))
    told.mark(told.settle(told.claim("5", conversation="c5")), Delivery("delivery_unknown", "raised"))

    rows = told.unresolved(is_live=None if alive is None else lambda _opening: alive).rows

    assert [(1, alive)] * 3 + [(None, None)] * 2 == [(row.holder, row.holder_alive) for row in rows]


def test_holder_is_the_last_that_took_it(told: Told, journal_url: str) -> None:
    """A resend belongs to the opening that claimed it, a message that was put back to the one that got its repeat."""
    told.open(journal_url)
    told.admit("1")
    unknown = told.mark(told.settle(told.claim("2", conversation="c2")), Delivery("delivery_unknown", "raised"))
    assert unknown.operation is not None
    told.core.close()
    told.clock.advance("16m")
    told.open(journal_url)
    told.reconcile(unknown.operation.operation_id)
    told.claim("3")

    assert [None, 2, 2] == [row.holder for row in told.unresolved().rows]

    told.admit("1")

    assert [2, 2, 2] == [row.holder for row in told.unresolved().rows]


@pytest.mark.contract("RCN-01")
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 500])
def test_pages_of_unresolved_reach_the_oldest_and_the_newest(told: Told, limit: int) -> None:
    """Each row once, also when rows go while somebody pages."""
    for number in range(7):
        told.admit(str(number), conversation=f"c{number}")
    everything = told.unresolved().rows
    first = told.unresolved(limit=limit)

    assert list(everything) == walk(lambda cursor: told.unresolved(limit=limit, after=cursor))
    if first.next is not None:
        told.reconcile(first.rows[-1].operation_id)
        rest = walk(lambda cursor: told.unresolved(limit=limit, after=cursor or first.next))
        assert [row.operation_id for row in everything[limit:]] == [row.operation_id for row in rest]


def test_row_is_plain_json(told: Told) -> None:
    """With the times as people write them and the age in seconds."""
    told.claim("1")
    (row,) = told.unresolved(is_live=lambda _opening: False).rows

    plain = json.loads(json.dumps(row.to_json()))

    assert "2026-01-01T00:00:01.000002+00:00" == plain["admitted_at"]
    assert (row.age.total_seconds(), 1, False) == (plain["age_seconds"], plain["holder"], plain["holder_alive"])


# Reach.


@pytest.mark.contract("IDN-02")
@pytest.mark.parametrize("stranger", [OTHER, identity(user="eve"), identity("nobody")])
def test_what_is_outside_of_the_reach_is_a_miss(told: Told, stranger: Any) -> None:
    """In every call, whatever ids are tried; an absent user is a scope of its own."""
    told.turn("1", thread="t1")
    told.claim("2")
    mine = told.unresolved().rows[0].operation_id
    told.turn("9", OTHER, actor="oscar", conversation="c-other")
    who = reach(stranger, None)

    assert not told.unresolved(who).rows
    for where in ({"actor": "ann"}, {"conversation": "c1"}, {"thread": "t1"}, {"operation_id": mine}):
        assert not told.entries(who, **where)
    assert not [each for each in told.entries(who) if each.operation_id == mine or each.actor == "ann"]
    assert not [*told.explain(mine, who), *told.explain("1", who), *told.explain("2", who)]
    totals = told.read(reading.statistics, who).totals
    assert {row.count for row in totals} == ({1} if stranger is OTHER else set())


@pytest.mark.contract("IDN-02", "IDN-05")
def test_reach_widens_to_a_tenant_and_to_all(told: Told) -> None:
    """One tenant has all of its scopes; all tenants have also what belongs to none: openings, and leases that were given back."""
    busy(told)

    def seen(tenant: str | Every | None) -> tuple[int, int, int]:
        who = reach(identity(), tenant)
        return len(told.unresolved(who).rows), len(told.explain("1", who)), len(told.entries(who, actor="bob"))

    assert [(5, 1, 2), (10, 2, 4), (5, 1, 2), (0, 0, 0), (15, 3, 6)] == [
        seen(tenant) for tenant in (None, "acme", "other", "nobody", EVERY_TENANT)
    ]
    everything = told.entries(ALL)
    assert [each.position for each in everything] == list(range(1, len(everything) + 1))
    assert {each.type for each in everything if each.connection is None} == {"opening.started", "opening.epoch_raised"}
    assert not [each for each in told.entries(reach(identity(), "acme")) if each.connection is None]


def test_erased_scope_is_seen_by_those_who_see_every_tenant(told: Told) -> None:
    """Without a name in it; the next scope of the same people does not lead to it."""
    told.turn("1", thread="t1")
    told.claim("2")
    told.run(EraseScope(identity()))

    for who in (OWN, reach(identity(), "acme")):
        assert not [*told.unresolved(who).rows, *told.entries(who), *told.explain("1", who)]
    assert not [*told.entries(ALL, actor="ann"), *told.explain("1", ALL)]
    (row,) = told.unresolved(ALL).rows
    (story,) = told.explain(row.operation_id, ALL)
    pseudonyms = stored(told, row.operation_id)
    assert [f"~{value[:8]}" for value in pseudonyms] == [story.event_id, story.actor, story.conversation]


def stored(told: Told, operation_id: str) -> tuple[str, ...]:
    """Correlation, actor and conversation of an operation's admission, as hex."""
    header = told.core.read(lambda store: store.stream(operation_id)[0].header)
    return tuple((value or b"").hex() for value in (header.correlation, header.actor, header.conversation))


def test_erased_person_is_not_found_and_not_named(told: Told) -> None:
    """The events stay, under the beginning of the pseudonym."""
    told.turn("1")
    told.turn("2", actor="bob", conversation="c2")
    told.run(EraseSubject(identity(), "actor", "tg", "ann"))

    assert not told.entries(actor="ann")
    assert len(told.entries(actor="bob")) == 1
    actors = {each.actor for each in told.entries() if each.actor_kind == "person"}
    assert len(actors) == 2
    assert {"~", "b"} == {str(actor)[0] for actor in actors}


# The timeline.

FILTERS: tuple[tuple[dict[str, Any], Callable[[TimelineEntry], bool]], ...] = (
    ({"connection": "matrix"}, lambda each: each.connection == "matrix"),
    ({"conversation": "c1"}, lambda each: each.conversation == "c1"),
    ({"thread": "t1"}, lambda each: each.thread == "t1"),
    ({"actor": "bob"}, lambda each: each.actor == "bob"),
    ({"actor": "pat"}, lambda each: each.actor == "pat"),
    ({"actor_kind": "operator"}, lambda each: each.actor_kind == "operator"),
    ({"actor_kind": "agent"}, lambda each: each.actor_kind == "agent"),
    ({"types": ("reply.staged", "lock.granted")}, lambda each: each.type in ("reply.staged", "lock.granted")),
    *(
        (
            {"outcome": outcome},
            lambda each, outcome=outcome, name=name: (
                each.type == name and (outcome not in SETTLED or each.detail["outcome"] == outcome)
            ),
        )
        for outcome, name in TYPE_OF_OUTCOME.items()
    ),
    ({"after": 20}, lambda each: each.position > 20),
    ({"before": 30}, lambda each: each.position < 30),
    ({"since": instant_of(1_767_225_620_000_000)}, lambda each: each.recorded_at >= instant_of(1_767_225_620_000_000)),
    ({"until": instant_of(1_767_225_640_000_000)}, lambda each: each.recorded_at < instant_of(1_767_225_640_000_000)),
)


@pytest.mark.contract("AUD-01")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    chosen=st.lists(st.sampled_from(FILTERS), max_size=4),
    limit=st.sampled_from([1, 2, 5, 37, 500]),
    newest_first=st.booleans(),
    tenant=st.sampled_from([None, "acme", EVERY_TENANT]),
)
def test_timeline_shows_what_its_filter_lets_through(
    told: Told,
    chosen: list[tuple[dict[str, Any], Callable[[TimelineEntry], bool]]],
    limit: int,
    newest_first: bool,
    tenant: str | Every | None,
) -> None:
    """In order of position or newest first, page by page, in each reach, whatever is combined and whichever index serves it."""
    if told.core.engine.opening_id is None:
        busy(told)
    fields: dict[str, Any] = {}
    for more, _ in chosen:
        fields = more | fields
    lets_through = [test for more, test in FILTERS if any(fields.get(name) is value for name, value in more.items())]
    who = reach(identity(), tenant)

    expected = [each for each in told.entries(who) if all(test(each) for test in lets_through)]
    where = TimelineFilter(**fields)
    rows = walk(lambda cursor: told.timeline(who, where, limit=limit, after=cursor, newest_first=newest_first))

    assert (expected[::-1] if newest_first else expected) == rows


@pytest.mark.contract("AUD-01")
def test_timeline_of_an_operation_has_its_locks_and_its_session(told: Told) -> None:
    """Both from the operation id and with another filter beside it."""
    told.turn("1")
    told.turn("2")
    (story,) = told.explain("2")

    rows = told.entries(operation_id=story.operation_id)

    assert [step.position for step in story.steps] == [each.position for each in rows]
    assert {story.operation_id} == {each.operation_id for each in rows}
    assert {"lock.granted", "lock.released"} == {
        each.type for each in told.entries(operation_id=story.operation_id, actor_kind="system") if each.type.startswith("lock")
    }
    assert not told.entries(operation_id=story.operation_id, conversation="c2")
    assert not told.entries(operation_id="op-" + "0" * 32) + told.entries(operation_id="lk-1")


@pytest.mark.contract("AUD-01")
def test_correlation_finds_every_occurrence(told: Told) -> None:
    """Of one platform event."""
    told.turn("1")
    told.clock.advance("31d")
    told.turn("1")
    told.turn("2")

    rows = told.entries(correlation=told.entries()[0].correlation)

    assert {story.operation_id for story in told.explain("1")} == {each.operation_id for each in rows}
    assert not told.entries(correlation="00" * 16)


@pytest.mark.contract("AUD-01")
def test_times_are_found_to_the_microsecond(told: Told) -> None:
    """Before, at and after each event: `since` includes its instant, `until` does not."""
    busy(told)
    rows = told.entries(ALL)
    tick = timedelta(microseconds=1)

    for each in (rows[0], rows[1], rows[len(rows) // 2], rows[-1]):
        for at in (each.recorded_at - tick, each.recorded_at, each.recorded_at + tick):
            assert [row for row in rows if row.recorded_at >= at] == list(told.entries(ALL, since=at))
            assert [row for row in rows if row.recorded_at < at] == list(told.entries(ALL, until=at))


def test_empty_journal_has_nothing_to_show(told: Told) -> None:
    """And no call fails on it."""
    assert Page((), None) == told.timeline(ALL, TimelineFilter(since=instant_of(0), until=instant_of(2**50)))
    assert Page((), None) == told.unresolved(ALL)
    assert not told.explain("1", ALL)
    assert told.read(reading.statistics, ALL) == reading.Statistics((), ())


@pytest.mark.contract("PRN-05")
def test_timeline_has_text_only_when_asked(told: Told) -> None:
    """Inbound text until its operation has ended, replies after it, notes; any text as it was."""
    told.claim("1", text="nul \0 and \udfff")
    told.turn("2", conversation="c2", text="gone")
    told.reconcile(str(told.admit("3", conversation="c3", text="gone too").admission.operation_id), note="a note")

    with_text = told.timeline(with_text=True).rows

    assert not [each for each in told.entries() if each.text is not None]
    assert {"operation.admitted": "nul \0 and \udfff", "reply.staged": "hi", "operation.abandoned": "a note"} == {
        each.type: each.text for each in with_text if each.text is not None
    }


def test_events_that_are_not_ours_are_shown_without_their_state(told: Told) -> None:
    """Those of the eventsourcing library, and types that this release does not know."""
    told.run(RecordForeign([("order-7", 1, "shop.orders:Placed", b"not json")]))
    told.admit("1")
    told.damage("UPDATE cf_event SET type_version = 9 WHERE position = 4")

    foreign, newer = told.entries(ALL)[0], told.entries(ALL)[3]

    assert ("shop.orders:Placed", "order-7", {}) == (foreign.type, foreign.originator_id, foreign.detail)
    assert ("operation.admitted", {}) == (newer.type, newer.detail)
    assert not told.entries(ALL, outcome="failed")
    with pytest.raises(Exception, match="install a newer release"):
        told.explain("1")


@pytest.mark.parametrize("identifier", ["", "op-", "op-" + "0" * 32, "\udfff", "a\0b", "x" * 100_000, "%"])
def test_identifier_that_nothing_has_is_a_miss(told: Told, identifier: str) -> None:
    """Whatever it is made of; what is not text is a mistake of the caller's."""
    told.admit("1")

    assert not told.explain(identifier)
    with pytest.raises(InvalidValue, match="as text, not int"):
        told.explain(1)  # type: ignore[arg-type]


def test_event_that_cannot_be_read_is_named(told: Told, engine: Engine) -> None:
    """By its position; what is in it is not quoted."""
    told.admit("1")
    binary = "BLOB" if engine == "sqlite" else "bytea"
    told.damage(f"UPDATE cf_event SET state = CAST('secret' AS {binary}) WHERE position = 3")

    for call in (told.timeline, lambda: told.explain("1")):
        with pytest.raises(JournalDamaged, match="the event at position 3 cannot be read") as raised:
            call()
        assert "secret" not in str(raised.value)
        assert raised.value.__suppress_context__


# What bounds a call.


@pytest.mark.parametrize("limit", [0, 501, -1, True, 1.5, "7"])
def test_limit_outside_its_range_is_refused(told: Told, limit: Any) -> None:
    """By name, with the range."""
    for call in (told.unresolved, told.timeline):
        with pytest.raises(InvalidValue, match=r"limit must be .*from 1 to 500, not "):
            call(limit=limit)


@pytest.mark.parametrize("cursor", ["", "-1", "01", "1 ", "x", "\u0661", "9" * 19, "1" * 40, "secret-7", 7])
def test_cursor_that_is_not_ours_is_refused(told: Told, cursor: Any) -> None:
    """By name, and without a quote of it."""
    for call in (told.unresolved, told.timeline):
        with pytest.raises(InvalidValue, match="after must be a cursor, the `next` of a page") as refused:
            call(after=cursor)
        assert "secret" not in str(refused.value)


def test_page_holds_what_the_limits_say_unless_asked(told: Told) -> None:
    """`max_journal_page`."""
    told.limits = Limits(max_journal_page=2)
    for number in range(3):
        told.admit(str(number))

    assert [2, 2, 3] == [
        len(told.timeline(limit=None).rows),
        len(told.unresolved().rows),
        len(told.unresolved(limit=3).rows),
    ]


@pytest.mark.contract("DIA-01")
def test_repr_of_pages_and_rows_shows_no_id(told: Told) -> None:
    """Whatever is logged by mistake."""
    told.claim("event-7", conversation="chat-100", actor="ann@example", text="secret")

    shown = f"{told.unresolved()!r}{told.unresolved().rows!r}{told.timeline(with_text=True)!r}{told.entries()!r}"

    assert not [each for each in ("event-7", "chat-100", "ann@example", "secret") if each in shown]
    assert "Page(1 rows, next=None)" in shown


# Statistics.


def test_statistics_count_by_connection_and_measure(told: Told) -> None:
    """With mean and longest latency where there is one, in all and by the hour."""
    for pause in ("0s", "4s"):
        admitted = told.admit(pause)
        told.clock.advance(pause)
        told.settle(told.take(admitted), Answer("succeeded", reply=""))
    told.clock.advance("1h")
    told.admit("3", connection="matrix")

    found = told.read(reading.statistics, OWN)

    second = timedelta(seconds=1)
    assert [(row.connection, row.measure, row.count) for row in found.totals] == [
        ("matrix", "admitted", 1),
        ("tg", "admitted", 2),
        ("tg", "claimed", 2),
        ("tg", "succeeded", 2),
    ]
    claimed = found.totals[2]
    assert claimed.mean is not None and claimed.longest is not None  # noqa: PT018 - tells types
    assert abs(claimed.mean - 3 * second) < second / 1000
    assert abs(claimed.longest - 5 * second) < second / 1000
    assert (None, None, None) == (found.totals[0].mean, found.totals[0].longest, found.totals[0].hour)
    assert [(row.hour and row.hour.hour, row.measure) for row in found.hours] == [
        (0, "admitted"),
        (0, "claimed"),
        (0, "succeeded"),
        (1, "admitted"),
    ]
    plain = json.loads(json.dumps(found.to_json()))
    assert ["2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"] == sorted({row["hour"] for row in plain["hours"]})


def test_statistics_sum_over_the_scopes_in_reach(told: Told) -> None:
    """And not over others."""
    for who in (identity(), BOB, OTHER):
        told.admit("1", who)

    assert [1, 2, 3] == [
        told.read(reading.statistics, reach(identity(), tenant)).totals[0].count for tenant in (None, "acme", EVERY_TENANT)
    ]


@pytest.mark.no_engine("two lists of words")
def test_names_of_filters_are_known_to_the_registry() -> None:
    """An outcome stands in a type that there is."""
    assert set(TYPE_OF_OUTCOME.values()) <= REGISTRY.types().keys()


def test_journal_opened_beside_a_writer_shows_the_same(told: Told, journal_url: str) -> None:
    """From a file or a schema, through a connection of its own."""
    told.open(journal_url)
    busy(told)

    assert len(told.unresolved(ALL).rows) == 15
    assert told.timeline(ALL, newest_first=True).rows == told.timeline(ALL).rows[::-1]
