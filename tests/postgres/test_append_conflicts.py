"""A decision that no longer stands is not appended, and nothing of it is there; a word says what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from counterfoil.domain.lock import Deadline
from counterfoil.infrastructure.postgres.appending import Appended
from counterfoil.infrastructure.postgres.record import Standpoint, record
from counterfoil.projections.queues import QueueRow
from tests.postgres.sides import Journal, Side, happen
from tests.postgres_server import Postgres

SCOPE = bytes(16)
DEADLINE = Deadline("lk-1", 1, b"t" * 16, "boot", 10, 3, 1_000)


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    journal = Journal(postgres, schema)
    yield journal
    journal.close()


def has_deadline(journal: Journal, deadline: Deadline | None) -> None:
    """Make this the stored deadline, as another would."""
    journal.change("DELETE FROM {}.cf_deadline")
    if deadline is not None:
        journal.change("INSERT INTO {}.cf_deadline VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0)", *deadline)


def stale(journal: Journal, append: Callable[[], Appended]) -> str | None:
    """Append what is stale, and return the word for it; nothing may have changed."""
    before = journal.everything()
    appended = append()

    assert appended.status == "conflict"
    assert (appended.position, appended.recorded_at) == (None, None)
    assert journal.everything() == before
    assert journal.rows("SELECT count(*) FROM pg_locks WHERE classid = %s::regnamespace::oid", journal.schema) == [(0,)]
    return appended.conflict


# What others have appended.


@pytest.mark.parametrize("many", [1, 300])
def test_in_a_conversation_in_which_something_has_happened(journal: Journal, many: int) -> None:
    side, other = journal.side(), journal.side()
    other.happens("elsewhere", conversation=b"other")
    side.look()
    for number in range(many):
        other.happens("there", number + 1, conversation=b"other" if number else b"same")
    unit = side.unit()
    for number in range(many):
        happen(unit, "here", number + 1, conversation=b"same" if number == many // 2 else b"mine-%d" % number)

    assert stale(journal, lambda: side.append(unit)) == "conversation"
    side.look()
    assert side.happens("here", conversation=b"same").status == "appended"


def test_what_happened_in_other_conversations_or_before_is_no_matter(journal: Journal) -> None:
    side, other = journal.side(), journal.side()
    other.happens("before", conversation=b"same")
    side.look()
    other.happens("after", conversation=b"other")
    other.happens("none")

    assert side.happens("here", conversation=b"same").status == "appended"


def test_a_conversation_that_was_presumed_to_be_new(journal: Journal) -> None:
    side = journal.side()
    side.happens("a", conversation=b"old")
    side.look()

    unit = side.unit()
    happen(unit, "b", conversation=b"mine")
    assert stale(journal, lambda: side.append(unit, presumed=[b"new", b"old"])) == "conversation"
    unit = side.unit()
    happen(unit, "b", conversation=b"new")
    assert side.append(unit, presumed={b"new"}).status == "appended"


def test_a_route_whose_queue_was_presumed_to_be_empty(journal: Journal) -> None:
    side = journal.side()
    unit = side.unit()
    position = happen(unit, "op-1", conversation=b"old")
    unit.caches.rows["queues"].put((position,), QueueRow(position, "op-1", "rt-1", position, 1, unit.now, None, None))
    side.append(unit)
    side.look()

    unit = side.unit()
    happen(unit, "op-2", conversation=b"old")
    assert stale(journal, lambda: side.append(unit, presumed_routes=["rt-0", "rt-1"])) == "conversation"
    unit = side.unit()
    happen(unit, "op-2", conversation=b"old")
    assert side.append(unit, presumed_routes=["rt-0", "rt-2"]).status == "appended"


def test_a_stream_that_goes_on_elsewhere(journal: Journal) -> None:
    """Also one without a conversation, as those of locks are; and in the middle of a group."""
    side, other = journal.side(), journal.side()
    other.happens("lk-1", 1)
    other.look()
    side.look()
    other.happens("lk-1", 2)
    unit = side.unit()
    happen(unit, "lk-0")
    happen(unit, "lk-1", 2)
    happen(unit, "lk-2")

    assert stale(journal, lambda: side.append(unit)) == "stream"


def test_a_stream_that_had_an_event_of_this_version_before(journal: Journal) -> None:
    """As who presumes that it is new finds out; the server has no error of it to log."""
    side = journal.side()
    side.happens("op-1", conversation=b"same")
    side.look()

    assert stale(journal, lambda: side.happens("op-1", conversation=b"same")) == "stream"


def test_a_history_that_is_behind_what_was_seen(journal: Journal) -> None:
    """So a journal that was restored gives out no position twice, unless somebody says that it may."""
    side = journal.side()
    side.happens()
    side.look()
    side.head = side.head._replace(position=2)

    assert stale(journal, lambda: side.happens("b")) == "head"


# Deadlines.


@pytest.mark.parametrize(
    ("looked_at", "found"),
    [
        (None, DEADLINE),
        (DEADLINE, None),
        (DEADLINE, DEADLINE.renewed(20)),
        (DEADLINE, DEADLINE._replace(token=b"u" * 16)),
    ],
)
@pytest.mark.parametrize("moved", ["put", "ended", "relied on"])
def test_a_deadline_that_is_another(journal: Journal, looked_at: Deadline | None, found: Deadline | None, moved: str) -> None:
    side = journal.side()
    has_deadline(journal, found)

    def decide() -> Appended:
        unit = side.unit()
        unit.caches.deadlines.fill("lk-1", looked_at)
        unit.caches.deadlines.fill("lk-2", None)
        if moved != "relied on":
            unit.caches.deadlines.put("lk-1", DEADLINE.renewed(30) if moved == "put" else None)
        happen(unit, "a")
        return side.append(unit, relied=["lk-1", "lk-2"] if moved == "relied on" else [])

    assert stale(journal, decide) == "deadline"
    has_deadline(journal, looked_at)
    assert decide().status == "appended"


# Answers, scopes, erasures, epochs.


@pytest.mark.parametrize(("looked_at", "found"), [(None, 5), (5, None), (5, 6)])
def test_a_command_id_that_was_used_meanwhile(journal: Journal, looked_at: int | None, found: int | None) -> None:
    side = journal.side()
    now = side.unit().now
    key = (SCOPE, b"id")

    def keep(at: int | None) -> None:
        journal.change("DELETE FROM {}.cf_command")
        if at is not None:
            journal.change("INSERT INTO {}.cf_command VALUES (%s, %s, 'f', 'a', %s)", *key, now + at)

    def decide() -> Appended:
        unit = side.unit()
        unit.caches.commands.fill(key, None if looked_at is None else (b"f", b"a", now + looked_at))
        unit.caches.commands.put(key, (b"g", b"b", unit.now))
        return side.append(unit)

    keep(found)
    assert stale(journal, decide) == "command"
    keep(looked_at)
    assert decide().status == "appended"
    assert journal.rows("SELECT answer FROM {}.cf_command") == [(b"b",)]


@pytest.mark.parametrize("names", [("acme", None, None), ("acme", "a", None), ("acme", "a", "u"), ("", "", "")])
def test_a_scope_that_somebody_else_has_begun(journal: Journal, names: tuple[str | None, ...]) -> None:
    """Neither of the new scopes of the group is there then, and one that was erased is in nobody's way."""
    side, other = journal.side(), journal.side()

    def begin(who: Side, number: int) -> Appended:
        unit = who.unit()
        unit.changes.scopes.append((bytes([number, 0] * 8), "other", None, str(number), b"k" * 32))
        unit.changes.scopes.append((bytes([number, 1] * 8), *names, b"k" * 32))
        return who.append(unit)

    assert begin(other, 1).status == "appended"
    assert stale(journal, lambda: begin(side, 2)) == "scope"
    unit = other.unit()
    unit.changes.actions.append(("erase_scope", (bytes([1, 1] * 8),)))
    assert other.append(unit).status == "appended"
    side.look()
    assert begin(side, 3).status == "appended"


def test_after_an_erasure(journal: Journal) -> None:
    """Whatever was decided before it, because what it rests on may be gone."""
    side, other = journal.side(), journal.side()
    unit = other.unit()
    unit.changes.actions.append(("erase_subject", (b"p" * 16,)))
    assert other.append(unit).status == "appended"

    assert stale(journal, side.happens) == "erasure"
    side.look()
    assert side.happens().status == "appended"


def test_an_epoch_that_somebody_else_has_raised(journal: Journal) -> None:
    side, other = journal.side(), journal.side()
    for who, epoch in ((other, 7), (side, 8)):
        unit = who.unit()
        happen(unit, f"opn-{epoch}")
        unit.head = unit.head._replace(epoch=epoch)
        if who is other:
            assert who.append(unit).epoch == 7
        else:
            assert stale(journal, lambda unit=unit: side.append(unit)) == "epoch"  # type: ignore[misc]
    assert side.happens("a").epoch == 7
    assert journal.rows("SELECT epoch FROM {}.cf_head") == [(7,)]


# Projections.


def test_a_projection_that_others_do_not_fold_is_behind(journal: Journal) -> None:
    """Who folds it is told so, and appends again once it has been brought to the head."""
    side = journal.side()
    side.happens("a")
    journal.change("UPDATE {}.cf_projection SET position = 0 WHERE name = 'queues'")
    side.look()
    before = journal.everything()
    appended = side.happens("b")

    assert (appended.status, appended.conflict, appended.head) == ("behind", "projection", 1)
    assert journal.everything() == before
    assert journal.rows("SELECT {}.cf_arrive('queues', 1)") == [(False,)]
    journal.change("UPDATE {}.cf_projection SET position = 1 WHERE name = 'queues'")
    assert journal.rows("SELECT {}.cf_arrive('queues', 1)") == [(True,)]
    assert side.happens("b").status == "appended"


def test_who_does_not_fold_a_projection_leaves_it_behind(journal: Journal) -> None:
    side = journal.side()
    side.happens("a")
    side.look()
    journal.change("INSERT INTO {}.cf_projection VALUES ('queues', 2, NULL), ('newer', 1, NULL), ('lagging', 1, 0)")
    assert side.happens("b").status == "appended"

    assert journal.rows("SELECT name, version, position FROM {}.cf_projection ORDER BY 1, 2") == [
        ("bindings", 1, None),
        ("cursors", 1, 0),
        ("epochs", 1, None),
        ("lagging", 1, 0),
        ("leases", 1, None),
        ("newer", 1, 1),
        ("queues", 1, None),
        ("queues", 2, 1),
        ("statistics", 1, 0),
        ("unresolved", 1, None),
    ]


def test_a_projection_that_is_not_there_is_behind(journal: Journal) -> None:
    side = journal.side()
    journal.change("DELETE FROM {}.cf_projection WHERE name = 'leases'")

    assert side.happens().status == "behind"


# A record that goes on from another outside of a host's transaction.


def test_a_record_without_the_one_that_it_goes_on_from(journal: Journal) -> None:
    side = journal.side()
    side.happens("a")
    side.look()
    side.happens("b")
    unit = side.unit()
    unit.head = unit.head._replace(position=unit.head.position + 1, recorded_at=unit.now)
    happen(unit, "c")
    body = record(unit, Standpoint(side.head.position, unit.now, side.head.epoch, side.erasures, goes_on=1))

    assert stale(journal, lambda: side.appender.append(body)) == "record"
