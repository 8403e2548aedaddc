"""What one append does: places, times, the chain, and everything beside the events that stands on them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Condition

import pytest

from counterfoil.domain.framing import GENESIS
from counterfoil.domain.lock import Deadline
from counterfoil.projections.leases import LeaseRow
from counterfoil.projections.queues import QueueRow
from counterfoil.projections.unresolved import UnresolvedRow
from tests.postgres.sides import Journal, Side, happen
from tests.postgres_server import Postgres

SCOPE = bytes(16)


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    journal = Journal(postgres, schema)
    yield journal
    journal.close()


def unresolved(operation: int, at: int, **words: object) -> UnresolvedRow:
    row = UnresolvedRow(operation, f"op-{operation}", SCOPE, "tg", "accepted", "none", 0, 1, at, at, None)
    return row._replace(**words)  # type: ignore[arg-type]


# Places, times and the chain.


def test_two_who_know_nothing_of_each_other_append_in_turns(journal: Journal) -> None:
    """Positions follow one another, times grow, and the chain is what anybody computes."""
    one, other = journal.side(), journal.side()
    for number in range(1, 21):
        for side, name in ((one, "one"), (other, "other")):
            unit = side.unit()
            happen(unit, name, 2 * number - 1, conversation=name.encode() + bytes([number]))
            happen(unit, name, 2 * number)
            assert side.append(unit).status == "appended"
            if side is one or number < 10:  # from then on the other decides on what it knew then
                side.look()
    events = journal.events()

    assert [event.position for event in events] == list(range(1, len(events) + 1))
    assert all(later.recorded_at > earlier.recorded_at for earlier, later in pairwise(events))
    previous = GENESIS
    for event in events:
        assert event.chained(previous) == event.digest
        previous = event.digest


def test_all_columns_are_kept_and_hashed(journal: Journal) -> None:
    side = journal.side()
    side.happens("first")
    side.look()
    unit = side.unit()
    happen(
        unit,
        "a 'b' \"c\" \\ ü 👍 {name} %s",
        2**62,
        actor_kind="person",
        scope_id=bytes(range(16)),
        connection="t\"'\\g\n",
        conversation=b"\\x00",
        thread=b"",
        actor=b"\xff" * 16,
        operation=1,
        correlation=b"\0",
        causation=7,
    )
    assert side.append(unit).status == "appended"
    first, event = journal.events()

    assert event[2:6] == ("a 'b' \"c\" \\ ü 👍 {name} %s", 2**62, "test.happened", 1)
    assert event[6:16] == (
        1, "person", bytes(range(16)), "t\"'\\g\n", b"\\x00", b"", b"\xff" * 16, 1, b"\0", 7,
    )  # fmt: skip
    assert event.state == b"{}"
    assert event.chained(first.digest) == event.digest


def test_the_answer_tells_where_the_events_are_and_what_time_it_is(journal: Journal) -> None:
    side, other = journal.side(), journal.side()
    for number in range(3):
        other.happens("other", number + 1)
    before = journal.postgres.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0]
    unit = side.unit()
    happen(unit, "a")
    happen(unit, "b")
    appended = side.append(unit)
    after = journal.postgres.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0]
    fourth, fifth = journal.events()[3:]

    assert (appended.status, appended.conflict, appended.head, appended.position) == ("appended", None, 3, 4)
    assert (fourth.originator_id, fourth.recorded_at) == ("a", appended.recorded_at)
    assert (fifth.originator_id, fifth.recorded_at) == ("b", fourth.recorded_at + 1)
    assert before <= appended.clock <= after
    assert appended.recorded_at == appended.clock


def test_times_never_run_backwards_when_the_servers_clock_does(journal: Journal) -> None:
    """They advance a microsecond an event until the clock has caught up."""
    journal.change("UPDATE {}.cf_head SET recorded_at = %s, position = 41", 2**60)
    side = journal.side()
    side.head = side.head._replace(position=41, recorded_at=2**60)
    unit = side.unit()
    happen(unit, "a")
    happen(unit, "b")
    appended = side.append(unit)

    assert appended.clock < 2**60
    assert [(event.position, event.recorded_at) for event in journal.events()] == [(42, 2**60 + 1), (43, 2**60 + 2)]


def test_the_first_event_of_a_journal_follows_its_base(journal: Journal) -> None:
    journal.change("UPDATE {}.cf_head SET position = 10, digest = %s", b"\7" * 32)
    side = journal.side()
    side.head = side.head._replace(position=10)

    assert side.happens().position == 11
    (event,) = journal.events()
    assert event.chained(b"\7" * 32) == event.digest


def test_a_gap_is_left_where_it_is_asked_for(journal: Journal) -> None:
    """Positions that an older copy of the journal would give out again are passed over, and rows follow the events."""
    side = journal.side()
    side.happens("a")
    side.look()
    unit = side.unit()
    position = happen(unit, "b")
    happen(unit, "c")
    unit.caches.rows["unresolved"].put((position,), unresolved(position, unit.now))
    appended = side.append(unit, least=100)
    side.look()

    assert appended.position == 101
    assert [event.position for event in journal.events()] == [1, 101, 102]
    assert journal.rows("SELECT operation FROM {}.cf_unresolved_v1") == [(101,)]
    assert side.happens("d").position == 103
    assert side.append(side.unit(), least=50).status == "appended"


def test_the_groups_commit_is_synced_unless_it_need_not_be(journal: Journal) -> None:
    side = journal.side()
    side.connection.execute("BEGIN")
    for stream, synced, setting in (("a", True, "on"), ("b", False, "off")):
        unit = side.unit()
        happen(unit, stream)
        side.append(unit, synced=synced)
        assert side.one("SHOW synchronous_commit") == (setting,)
    side.connection.execute("COMMIT")

    assert side.one("SHOW synchronous_commit") == ("on",)


# What moves with the events.


def test_what_is_provisional_is_moved_and_nothing_else(journal: Journal) -> None:
    """Positions above the one that was seen, and times from the group's first on."""
    side, other = journal.side(), journal.side()
    old = 1_700_000_000_000_000
    for number in range(5):
        other.happens("seen", number + 1)
    side.look()
    for number in range(7):
        other.happens("unseen", number + 1)
    unit = side.unit()
    admitted = happen(unit, "op-1", conversation=b"c")
    claimed = happen(unit, "lk-1", conversation=b"c")
    now = unit.now
    rows, changes = unit.caches.rows, unit.changes
    rows["unresolved"].put((admitted,), unresolved(admitted, now, updated_at=now + 1))
    rows["unresolved"].put((5,), unresolved(5, old, updated_at=now + 1, claimed_by=2))
    rows["queues"].put((admitted,), QueueRow(admitted, "op-1", "rt-1", admitted, 1, now, None, None))
    rows["queues"].put((3,), QueueRow(3, "op-3", "rt-1", claimed, 1, old, 4, 1))
    rows["leases"].put(("lk-1",), LeaseRow("lk-1", 1, "jobs", 1, 1, claimed, 1, now + 1, 30_000_000, None))
    changes.payloads += [(admitted, b"s" * 32, b"text"), (claimed, b"t" * 32, b"")]
    changes.external_ids += [(admitted, "m-1"), (4, "m-0")]
    changes.actions += [("count_repeat", (admitted,)), ("count_repeat", (2,)), ("count_repeat", (2,))]
    changes.actions.append(("enter", ("lk-1", 1, b"t" * 16, "jobs", 1, None, None, now)))
    unit.caches.commands.put((SCOPE, b"id"), (b"f", b'{"outcome": "none"}', now))
    unit.keep()
    appended = side.append(unit)
    at = appended.recorded_at
    assert (appended.head, appended.position) == (12, 13)
    assert at is not None

    assert journal.rows("SELECT * FROM {}.cf_unresolved_v1 ORDER BY operation") == [
        unresolved(5, old, updated_at=at + 1, claimed_by=2),
        unresolved(13, at, operation_id="op-6", updated_at=at + 1),
    ]
    assert journal.rows("SELECT operation, place, entered_at, grant_version FROM {}.cf_queues_v1 ORDER BY operation") == [
        (3, 14, old, 4),
        (13, 13, at, None),
    ]
    assert journal.rows("SELECT position, granted_at, ttl FROM {}.cf_leases_v1") == [(14, at + 1, 30_000_000)]
    assert journal.rows("SELECT position, salt, body FROM {}.cf_payload ORDER BY 1") == [
        (13, b"s" * 32, b"text"),
        (14, b"t" * 32, b""),
    ]
    assert journal.rows("SELECT position, external_id FROM {}.cf_external_id ORDER BY 1") == [(4, "m-0"), (13, "m-1")]
    assert journal.rows("SELECT operation, count FROM {}.cf_repeat ORDER BY 1") == [(2, 2), (13, 1)]
    assert journal.rows("SELECT asked_at FROM {}.cf_waiter") == [(at,)]
    assert journal.rows("SELECT answer, recorded_at FROM {}.cf_command") == [(b'{"outcome": "none"}', at)]


def test_rows_change_and_go(journal: Journal) -> None:
    side = journal.side()
    unit = side.unit()
    for number in (1, 2):
        position = happen(unit, f"op-{number}")
        unit.caches.rows["unresolved"].put((position,), unresolved(position, unit.now))
        unit.changes.payloads.append((position, b"s" * 32, b"text"))
    side.append(unit)
    side.look()
    unit = side.unit()
    later = happen(unit, "op-1", 2, operation=1)
    unit.caches.rows["unresolved"].put((1,), unresolved(1, unit.now, state="executing", reply_state="pending", attempts=1))
    unit.caches.rows["unresolved"].put((2,), None)
    unit.caches.rows["queues"].put((later,), None)
    unit.changes.payloads.append((later, b"s" * 32, b"text"))
    unit.changes.erased += [(1,), (later,)]
    side.append(unit)

    assert journal.rows("SELECT operation, state, attempts FROM {}.cf_unresolved_v1") == [(1, "executing", 1)]
    assert journal.rows("SELECT position FROM {}.cf_payload") == [(2,)]


def test_a_group_without_events_has_a_time_and_leaves_the_head(journal: Journal) -> None:
    side = journal.side()
    side.happens()
    side.look()
    unit = side.unit()
    unit.caches.deadlines.put("lk-1", Deadline("lk-1", 1, b"t" * 16, "boot", 10, 0, 1_000, 2**62))
    appended = side.append(unit)

    assert (appended.status, appended.head, appended.position) == ("appended", 1, None)
    assert appended.recorded_at == appended.clock
    assert len(journal.events()) == 1
    assert journal.rows("SELECT * FROM {}.cf_deadline") == [("lk-1", 1, b"t" * 16, "boot", 10, 0, 1_000, 2**62, appended.clock)]


def test_a_renewal_is_stamped_with_the_servers_clock_at_its_append(journal: Journal) -> None:
    side = journal.side()
    deadline = Deadline("lk-1", 1, b"t" * 16, "boot", 10, 0, 1_000)
    for moved in (deadline, deadline.renewed(50), None):
        unit = side.unit()
        unit.caches.deadlines.get("lk-1")
        unit.caches.deadlines.put("lk-1", moved)
        appended = side.append(unit)
        assert appended.status == "appended"
        stored = journal.rows("SELECT at, renewal, renewed_at FROM {}.cf_deadline")
        assert stored == ([] if moved is None else [(moved.at, moved.renewal, appended.clock)])


def test_kept_answers_are_forgotten_when_they_are_too_old(journal: Journal) -> None:
    side = journal.side()
    days = [0, 6, 8]
    for number, age in enumerate(days):
        journal.change(
            "INSERT INTO {}.cf_command VALUES (%s, %s, '', '', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %s)",
            SCOPE, bytes([number]), age * 86_400_000_000,
        )  # fmt: skip
    unit = side.unit()
    unit.caches.commands.put((SCOPE, b"new"), (b"f", b"{}", unit.now))
    side.append(unit)

    assert journal.rows("SELECT command_id FROM {}.cf_command ORDER BY recorded_at") == [(b"\1",), (b"\0",), (b"new",)]


def test_a_subject_that_is_known_is_left_as_it_is(journal: Journal) -> None:
    sides = journal.side(), journal.side()
    for side in sides:
        unit = side.unit()
        happen(unit, f"s-{side.opening.opening_id}")
        unit.changes.subjects += [(b"p" * 16, SCOPE, "actor", "tg", "ann"), (b"q" * 16, SCOPE, "principal", None, "host")]
        assert side.append(unit).status == "appended"

    assert journal.rows("SELECT kind, connection, value FROM {}.cf_subject ORDER BY 1") == [
        ("actor", "tg", "ann"),
        ("principal", None, "host"),
    ]


# JRN-01: many writers, and a reader that follows.


@pytest.mark.contract("JRN-01")
def test_a_reader_that_follows_positions_skips_nobody_who_commits_late(journal: Journal) -> None:
    """Eight pause between their append and its commit until the reader has looked twice; it finds no position late."""
    writers, each = [journal.side() for _ in range(8)], 12
    looked, looks, ended = Condition(), 0, 0

    def write(side: Side) -> None:
        nonlocal ended
        try:
            for version in range(1, each + 1):
                side.look()
                side.connection.execute("BEGIN")
                name = f"of-{side.opening.opening_id}"
                assert side.happens(name, version, conversation=name.encode()).status == "appended"
                with looked:
                    enough = looks + 2
                    assert looked.wait_for(lambda enough=enough: looks >= enough, 60)  # type: ignore[misc]
                side.connection.execute("COMMIT")
        finally:
            side.connection.close()
            with looked:
                ended += 1

    with ThreadPoolExecutor(len(writers)) as pool:
        done = [pool.submit(write, side) for side in writers]
        shown, last = 0, False
        while not last:
            last = ended == len(writers)
            for (position,) in journal.rows("SELECT position FROM {}.cf_event WHERE position > %s ORDER BY position", shown):
                assert position == shown + 1, "an event has come late, below what was shown"
                shown = position
            with looked:
                looks += 1
                looked.notify_all()
        for writer in done:
            writer.result()

    assert shown == len(writers) * each
