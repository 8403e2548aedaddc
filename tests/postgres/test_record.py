"""What a group's record holds: no more than what the group did, and what it was decided on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from counterfoil.domain.event import Header
from counterfoil.domain.framing import GENESIS, leaf_digest
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import Deadline
from counterfoil.infrastructure.caches import Caches
from counterfoil.infrastructure.clock import SystemClock
from counterfoil.infrastructure.clocks import Clocks
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.postgres.record import Standpoint, record
from counterfoil.infrastructure.rows import Head
from counterfoil.infrastructure.unit import OpeningState, Unit
from tests.postgres.sides import Nothing, happen

SCOPE = bytes(16)
DEADLINE = Deadline("lk-1", 1, b"\0" * 16, "boot", 10, 3, 1_000)


def new_unit(position: int = 10, epoch: int = 3) -> Unit:
    store, opening = Nothing(), OpeningState()
    opening.opening_id, opening.started = 1, True
    unit = Unit(
        store=store,
        caches=Caches(store),
        head=Head(1, position, GENESIS, 1_000, epoch, 1, bytes(32)),
        opening=opening,
        clocks=Clocks(SystemClock(), lambda opening_id: True),
        limits=Limits(),
        raise_epoch=lambda proposed: proposed,
        keep_inbound=False,
        ahead=True,
    )
    store.lines.begin(unit.changes)
    return unit


def recorded(unit: Unit, **words: Any) -> dict[str, Any]:
    goes_on = words.pop("goes_on", 0)
    made: dict[str, Any] = orjson.loads(record(unit, Standpoint(10, unit.now, 3, 5, goes_on), **words))
    return made


def test_what_a_group_did_not_do_is_not_in_it() -> None:
    unit = new_unit()

    assert recorded(unit) == {"opening_id": 1, "seen": 10, "since": unit.now, "erasures": 5}


def test_an_event_holds_its_columns_and_no_place() -> None:
    unit = new_unit()
    happen(unit, "a", 7, connection="tg", conversation=b"\1\2", operation=4)
    happen(unit, "b", 1, conversation=b"\1\2")
    happen(unit, "c", 1)
    made = recorded(unit)

    assert made["events"][0] == {
        "originator_id": "a", "version": 7, "type": "test.happened", "type_version": 1, "opening_id": 1, "connection": "tg",
        "conversation": "\\x0102", "operation": 4, "state": "\\x7b7d",
    }  # fmt: skip
    header = Header(opening_id=1, connection="tg", conversation=b"\1\2", operation=4)
    assert made["leaves"].startswith("\\x" + leaf_digest("a", 7, "test.happened", 1, *header, b"{}").hex())
    assert len(bytes.fromhex(made["leaves"][2:])) == 3 * 32
    assert made["conversations"] == ["\\x0102"]
    assert made["folds"] == ["unresolved_v1", "queues_v1", "bindings_v1", "leases_v1", "epochs_v1"]


def test_an_admission_with_all_that_comes_with_it() -> None:
    unit = new_unit()
    inbound = Inbound(connection="tg", conversation="chat", actor="ann", event_id="m-1", text="hi 👋")
    grant = Grant(identity=Identity(tenant="acme", principal="host", verified=True), aliases=("agent",))
    AdmitInbound(inbound, grant, "agent").run(unit)
    unit.keep()
    made = recorded(unit)

    assert made["scopes"][0] | {"scope_id": "", "key": ""} == {"scope_id": "", "tenant": "acme", "key": ""}
    assert [(each["kind"], each["value"]) for each in made["subjects"]] == [
        ("conversation", "chat"), ("actor", "ann"), ("principal", "host")
    ]  # fmt: skip
    assert [(each["position"], each["body"]) for each in made["payloads"]] == [(11, "\\x" + "hi 👋".encode().hex())]
    assert made["external_ids"] == [{"position": 11, "external_id": "m-1"}]
    assert made["rows"].keys() == {"unresolved_v1", "queues_v1"}
    (row,) = made["rows"]["queues_v1"]["put"]
    assert (row["operation"], row["place"], row["entered_at"]) == (11, 11, unit.now)
    assert "grant_version" not in row


def test_only_those_are_rung_who_do_not_know() -> None:
    unit = new_unit()
    unit.changes.rings += [(2, "lk-1"), (1, "lk-1"), (2, "lk-1"), (2, "lk-2")]

    assert recorded(unit)["rings"] == [[2, "lk-1"], [2, "lk-2"]]


def test_what_a_deadline_was_goes_with_what_it_becomes() -> None:
    unit = new_unit()
    deadlines = unit.caches.deadlines
    deadlines.fill("lk-1", DEADLINE)
    deadlines.fill("lk-2", None)
    deadlines.fill("lk-3", DEADLINE._replace(lease_id="lk-3", renewal=0))
    deadlines.put("lk-1", None)
    deadlines.put("lk-4", DEADLINE._replace(lease_id="lk-4", ends=2**40))
    made = recorded(unit, relied=["lk-2", "lk-3"])
    token = "\\x" + "00" * 16

    assert made["relied"] == [
        {"lease_id": "lk-2"},
        {"lease_id": "lk-3", "token": token, "renewal": 0},
        {"lease_id": "lk-1", "token": token, "renewal": 3},
    ]
    assert made["ended"] == ["lk-1"]
    assert made["deadlines"] == [
        {
            "lease_id": "lk-4",
            "opening_id": 1,
            "token": token,
            "boot_id": "boot",
            "at": 10,
            "renewal": 3,
            "ttl": 1_000,
            "ends": 2**40,
        }
    ]


def test_a_deadline_that_nobody_looked_at_cannot_be_relied_on() -> None:
    with pytest.raises(KeyError):
        recorded(new_unit(), relied=["lk-1"])


def test_an_answer_that_is_kept_tells_which_one_it_takes_the_place_of() -> None:
    unit = new_unit()
    commands = unit.caches.commands
    commands.fill((SCOPE, b"old"), (b"f", b"{}", 77))
    commands.fill((SCOPE, b"new"), None)
    commands.put((SCOPE, b"old"), (b"g", b"[]", unit.now))
    commands.put((SCOPE, b"new"), (b"g", b"[]", unit.now))
    made = recorded(unit)

    assert [each.get("before") for each in made["commands"]] == [77, None]
    assert made["keep_commands"] == 7 * 86_400_000_000


@pytest.mark.parametrize(
    ("action", "erases"), [("erase_subject", True), ("erase_scope", True), ("count_repeat", False), ("forget_keys", False)]
)
def test_an_erasure_says_so(action: str, erases: bool) -> None:
    unit = new_unit()
    unit.changes.actions += [(action, (b"\1", "x", None, 3)), ("leave", ("lk-1", b"\2"))]
    made = recorded(unit)

    assert made["actions"] == [[action, "\\x01", "x", None, 3], ["leave", "lk-1", "\\x02"]]
    assert made.get("erases", False) is erases


def test_an_epoch_that_is_raised_goes_with_the_one_before() -> None:
    unit = new_unit()
    unit.head = unit.head._replace(epoch=9)
    made = recorded(unit)

    assert (made["epoch_before"], made["epoch"]) == (3, 9)


def test_what_is_asked_of_the_append() -> None:
    unit = new_unit()
    made = recorded(unit, goes_on=2, least=0, synced=False, presumed=[b"\1"])

    assert (made["goes_on"], made["least"], made["unsynced"], made["presumed"]) == (2, 0, True, ["\\x01"])


@pytest.mark.parametrize("moved", ["position", "recorded_at"])
def test_events_follow_one_another_from_the_standpoint(moved: str) -> None:
    """A group that has looked at the clock once more, or that begins elsewhere, is a mistake that must not be appended."""
    unit = new_unit()
    happen(unit, "a")
    unit.head = unit.head._replace(**{moved: getattr(unit.head, moved) + 1})
    happen(unit, "b")

    with pytest.raises(AssertionError):
        recorded(unit)
