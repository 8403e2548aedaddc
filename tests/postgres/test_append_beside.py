"""What an append does beside events and rows: lines of locks, erasures, and telling who is to look at a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from counterfoil.domain.event import Header
from counterfoil.domain.hold import Terms
from counterfoil.domain.lock import Deadline
from tests.postgres.sides import Journal, Side, happen
from tests.postgres_server import Postgres

SCOPE = bytes(16)
ANN, CHAT, TOPIC = b"ann".ljust(16), b"chat".ljust(16), b"topic".ljust(16)
TERMS = Terms("jobs", 30_000_000, None, None)


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    journal = Journal(postgres, schema)
    yield journal
    journal.close()


@pytest.fixture
def listener(journal: Journal) -> Iterator[psycopg.Connection[Any]]:
    """A connection that hears what the journal tells its openings."""
    ((oid,),) = journal.rows("SELECT %s::regnamespace::oid", f'"{journal.schema}"')
    with journal.postgres.connect() as connection:
        connection.execute(f"LISTEN cf_{oid}".encode())
        yield connection


def heard(listener: psycopg.Connection[Any]) -> list[Any]:
    """Return what was told until now: a notification comes with the answer to the next statement."""
    listener.execute("SELECT 1")
    return [json.loads(notice.payload)["rings"] for notice in listener.notifies(timeout=0)]


def did(side: Side, *actions: tuple[str, tuple[Any, ...]]) -> None:
    unit = side.unit()
    unit.changes.actions.extend(actions)
    assert side.append(unit).status == "appended"


def enter(side: Side, lease_id: str, opening_id: int, token: bytes) -> None:
    did(side, ("enter", (lease_id, opening_id, token, *TERMS, 1)))


def line(journal: Journal, lease_id: str) -> list[Any]:
    return [row[0] for row in journal.rows("SELECT token FROM {}.cf_waiter WHERE lease_id = %s ORDER BY place", lease_id)]


# Lines.


def test_those_who_wait_stand_in_the_order_in_which_they_came(journal: Journal) -> None:
    sides = [journal.side() for _ in range(3)]
    for number in range(9):
        enter(sides[number % 3], f"lk-{number % 2}", number % 3, bytes([number]))

    assert line(journal, "lk-0") == [b"\0", b"\2", b"\4", b"\6", b"\x08"]
    assert line(journal, "lk-1") == [b"\1", b"\3", b"\5", b"\7"]
    assert journal.rows("SELECT DISTINCT lock, ttl, max_hold, lock_delay, asked_at, offered_until FROM {}.cf_waiter") == [
        ("jobs", 30_000_000, None, None, 1, None)
    ]


def test_one_asking_has_one_place_in_a_line_and_gives_up_that_one(journal: Journal) -> None:
    side = journal.side()
    for lease_id, token in (("lk-0", b"a"), ("lk-0", b"b"), ("lk-0", b"a"), ("lk-1", b"a")):
        enter(side, lease_id, 1, token)
    did(side, ("leave", ("lk-0", b"a")), ("leave", ("lk-0", b"none")))

    assert (line(journal, "lk-0"), line(journal, "lk-1")) == ([b"b"], [b"a"])


def test_an_opening_gives_up_all_of_its_places(journal: Journal) -> None:
    side = journal.side()
    for lease_id, opening_id, token in (("lk-0", 1, b"a"), ("lk-0", 2, b"b"), ("lk-1", 1, b"c")):
        enter(side, lease_id, opening_id, token)
    did(side, ("leave_with_opening", (1,)))

    assert (line(journal, "lk-0"), line(journal, "lk-1")) == ([b"b"], [])


def test_offers_are_made_pass_and_are_looked_for_again(journal: Journal) -> None:
    side = journal.side()
    for lease_id, opening_id, token in (("lk-0", 1, b"a"), ("lk-0", 2, b"b"), ("lk-0", 1, b"c"), ("lk-1", 1, b"d")):
        enter(side, lease_id, opening_id, token)

    def offers() -> list[Any]:
        return [row[0] for row in journal.rows("SELECT offered_until FROM {}.cf_waiter ORDER BY token")]

    did(side, ("offer", ("lk-0", b"a", 2**60)))
    assert offers() == [2**60, None, None, None]
    did(side, ("step_over", ("lk-0", 1)), ("offer", ("lk-0", b"b", 7)))
    assert offers() == [0, 7, 0, None]
    did(side, ("awake", ("lk-0", 1)), ("awake", ("lk-0", 2)))
    assert offers() == [None, 7, None, None]


def test_a_key_is_held_back_until_the_newest_time(journal: Journal) -> None:
    side = journal.side()
    did(side, ("hold_back", ("lk-0", "boot", 5)), ("hold_back", ("lk-1", "boot", 6)), ("hold_back", ("lk-0", "server", 7)))
    assert journal.rows("SELECT * FROM {}.cf_held_back ORDER BY 1") == [("lk-0", "server", 7), ("lk-1", "boot", 6)]
    did(side, ("let_go", ("lk-0",)), ("let_go", ("lk-2",)))
    assert journal.rows("SELECT lease_id FROM {}.cf_held_back") == [("lk-1",)]


def test_an_unknown_action_is_an_error(journal: Journal) -> None:
    side = journal.side()
    with pytest.raises(psycopg.errors.CaseNotFound):
        did(side, ("dance", ()))


# Telling.


def test_one_notification_tells_all_that_a_group_rings(journal: Journal, listener: psycopg.Connection[Any]) -> None:
    """Nobody is told twice, and the own opening, which knows, not at all."""
    side = journal.side()
    unit = side.unit()
    unit.changes.rings += [(2, "lk-0"), (1, "lk-0"), (3, "lk-0"), (2, "lk-1"), (2, "lk-0")]
    happen(unit)
    side.append(unit)

    assert heard(listener) == [[[2, "lk-0"], [3, "lk-0"], [2, "lk-1"]]]


@pytest.mark.parametrize("rings", [[], [(1, "lk-0")]])
def test_nobody_is_told_what_nobody_else_waits_for(
    journal: Journal, listener: psycopg.Connection[Any], rings: list[tuple[int, str]]
) -> None:
    side = journal.side()
    unit = side.unit()
    unit.changes.rings += rings
    happen(unit)
    side.append(unit)

    assert heard(listener) == []


def test_nobody_is_told_what_was_not_appended(journal: Journal, listener: psycopg.Connection[Any]) -> None:
    side, other = journal.side(), journal.side()
    other.happens("a", conversation=b"same")
    unit = side.unit()
    happen(unit, "b", conversation=b"same")
    unit.changes.rings.append((2, "lk-0"))
    assert side.append(unit).status == "conflict"

    assert heard(listener) == []


def test_too_many_rings_become_one_for_all(journal: Journal, listener: psycopg.Connection[Any]) -> None:
    side = journal.side()
    for many in (170, 180):
        unit = side.unit()
        unit.changes.rings += [(2, f"lk-{number:032x}") for number in range(many)]
        side.append(unit)
    few, all_of_them = heard(listener)

    assert len(few) == 170
    assert all_of_them == "all"


def test_the_first_in_line_hears_of_a_key_that_comes_free(journal: Journal, listener: psycopg.Connection[Any]) -> None:
    """Also who came after the decision; not who is stepped over; and not the own opening."""
    side = journal.side()
    for lease_id, opening_id, token in (
        ("lk-0", 4, b"a"), ("lk-0", 5, b"b"), ("lk-0", 6, b"c"), ("lk-1", 1, b"d"), ("lk-2", 7, b"e"), ("lk-4", 8, b"f")
    ):  # fmt: skip
        enter(side, lease_id, opening_id, token)
    did(side, ("step_over", ("lk-0", 4)))
    unit = side.unit()
    for number in range(4):
        lease_id = f"lk-{number}"
        unit.caches.deadlines.fill(lease_id, Deadline(lease_id, 1, b"t", "boot", 1, 0, 1))
        unit.caches.deadlines.put(lease_id, None)
        journal.change("INSERT INTO {}.cf_deadline VALUES (%s, 1, 't', 'boot', 1, 0, 1, NULL, 0)", lease_id)
    unit.changes.rings.append((7, "lk-2"))
    assert side.append(unit).status == "appended"

    assert heard(listener) == [[[7, "lk-2"], [5, "lk-0"]]]
    assert journal.rows("SELECT count(*) FROM {}.cf_deadline") == [(0,)]


# Erasures.


def admit(side: Side, name: str, *, scope: bytes = SCOPE, **people: Any) -> int:
    """Append an admission and an event on its behalf, with texts and platform ids; return its position."""
    side.look()
    unit = side.unit()
    header = Header(opening_id=1, scope_id=scope)._replace(**people)
    unit.write_event(f"op-{name}", 1, "operation.admitted", 1, header, b"{}", None)
    unit.keep()
    admission = side.append(unit).position
    assert admission is not None
    side.look()
    unit = side.unit()
    reply = happen(unit, f"op-{name}", 2, operation=admission)
    unit.changes.payloads += [(admission, b"s" * 32, b"asked"), (reply, b"s" * 32, b"answered")]
    unit.changes.external_ids += [(admission, f"in-{name}"), (reply, f"out-{name}")]
    unit.changes.subjects += [(each, scope, "actor", "tg", f"{name}-{kind}") for kind, each in people.items()]
    unit.changes.actions.append(("remember_key", (f"lk-{name}", f"{name}-actor")))
    unit.caches.commands.put((scope, name.encode()), (b"f", b"{}", unit.now))
    assert side.append(unit).status == "appended"
    return admission


@pytest.mark.parametrize("kind", ["actor", "conversation", "thread"])
def test_a_persons_texts_and_ids_go_with_what_the_pseudonym_stands_for(journal: Journal, kind: str) -> None:
    side = journal.side()
    gone = admit(side, "gone", **{"actor": b"x" * 16, "conversation": b"y" * 16, kind: ANN})
    kept = admit(side, "kept", actor=b"o" * 16, conversation=b"p" * 16, thread=b"q" * 16)
    side.look()
    did(
        side,
        ("forget_keys", ("gone-actor",)),
        ("erase_subject", (ANN,)),
        ("erase_payloads_of_subject", (ANN,)),
        ("erase_external_ids_of_subject", (ANN,)),
    )

    assert journal.rows("SELECT position FROM {}.cf_payload ORDER BY 1") == [(kept,), (kept + 1,)]
    assert journal.rows("SELECT external_id FROM {}.cf_external_id ORDER BY 1") == [("in-kept",), ("out-kept",)]
    assert journal.rows("SELECT count(*) FROM {}.cf_subject WHERE pseudonym = %s", ANN) == [(0,)]
    assert journal.rows("SELECT key FROM {}.cf_lock_key") == [("kept-actor",)]
    assert journal.rows("SELECT erasures FROM {}.cf_head") == [(1,)]
    assert gone < kept


def test_of_an_erased_scope_nothing_is_left_that_maps_back(journal: Journal) -> None:
    side, other = journal.side(), b"o" * 16
    unit = side.unit()
    unit.changes.scopes += [(SCOPE, "acme", "a", "u", b"k" * 32), (other, "acme", None, None, b"l" * 32)]
    side.append(unit)
    admit(side, "gone", actor=ANN, conversation=CHAT)
    kept = admit(side, "kept", scope=other, actor=TOPIC)
    side.look()
    did(
        side,
        ("forget_keys_of_scope", (SCOPE,)),
        *(
            (f"erase_{what}", (SCOPE,))
            for what in ("payloads_of_scope", "external_ids_of_scope", "subjects_of_scope", "commands_of_scope", "scope")
        ),
    )

    assert journal.rows("SELECT position FROM {}.cf_payload ORDER BY 1") == [(kept,), (kept + 1,)]
    assert journal.rows("SELECT external_id FROM {}.cf_external_id ORDER BY 1") == [("in-kept",), ("out-kept",)]
    assert journal.rows("SELECT pseudonym FROM {}.cf_subject") == [(TOPIC,)]
    assert journal.rows("SELECT command_id FROM {}.cf_command") == [(b"kept",)]
    assert journal.rows("SELECT key FROM {}.cf_lock_key") == [("kept-actor",)]
    assert journal.rows("SELECT * FROM {}.cf_scope ORDER BY tenant") == [
        (other, "acme", None, None, b"l" * 32),
        (SCOPE, None, None, None, None),
    ]
    assert journal.rows("SELECT erasures FROM {}.cf_head") == [(1,)]
