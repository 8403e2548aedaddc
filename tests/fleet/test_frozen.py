"""Workers that are stopped in the middle of something, and go on later or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet.conftest import message

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet

BUSY_WAIT = "100ms"


@pytest.mark.contract("RUN-05", "RUN-03", "LCK-05", "LCK-08")
def test_a_worker_frozen_past_its_ttl_cannot_settle(fleet: Fleet) -> None:
    """Frozen outside of a commit: another takes over, and of what the frozen one brings later only the refusal is left."""
    frozen, other = fleet.start("frozen", lease_ttl="1s"), fleet.start("other", lease_ttl="1s")
    stuck = frozen.hold("m1", "hold on")
    behind = frozen.accept("m2")
    frozen.tell("quiet")
    frozen.hear("quiet")
    frozen.freeze()
    other.accept("m3")
    other.hear("sent", "m3")
    frozen.thaw()
    frozen.go("m1")
    frozen.ask("go_on")
    frozen.ask("drain")
    frozen.accept("m4")
    frozen.hear("sent", "m4")
    frozen.ask("drain")

    assert [("m2", "other"), ("m3", "other"), ("m4", "frozen")] == fleet.sent
    assert ["operation.admitted", "operation.claimed", "operation.late_refused"] == fleet.types(stuck)
    assert 1 == fleet.types(behind).count("operation.settled")
    assert 1 == fleet.types().count("lock.expired")
    assert frozen.ask("counters")["lease_losses"] == 1
    with fleet.look() as left:
        assert [(stuck, "executing")] == [(row.operation_id, row.state) for row in left.unresolved.values()]
        assert left.journal.verify().agrees


@pytest.mark.sqlite_only("on PostgreSQL no worker is inside a commit of the server's, and a frozen one stops nobody")
@pytest.mark.contract("LCK-16", "ADM-06", "ADM-07", "JRN-09")
@pytest.mark.parametrize("end", ["continued", "killed"])
def test_a_worker_frozen_in_a_commit_stops_every_writer(fleet: Fleet, end: str) -> None:
    """
    They answer `unavailable` after `busy_wait`, and lose nothing: what they have to tell the journal is told when the frozen one
    goes on, or is killed.
    """
    frozen = fleet.start("frozen")
    others = [fleet.start(f"other{number}", busy_wait=BUSY_WAIT) for number in range(3)]
    for number, other in enumerate(others):
        other.hold(f"m{number}", conversation=f"c{number}")
    frozen.accept("e0", conversation="frozen")
    frozen.hear("sent", "e0")
    frozen.ask("drain")
    frozen.ask("pause_commit")
    committing = frozen.tell("admit", event=message("e1", conversation="frozen"))
    frozen.hear("committing")
    frozen.freeze()
    for number, other in enumerate(others):
        other.go(f"m{number}")
    for number, other in enumerate(others):
        answer = other.ask("admit", event=message(f"n{number}", conversation=f"c{number}"))
        assert ("unavailable", True, None) == (answer["reason"], answer["retryable"], answer["operation_id"])
    newcomer = fleet.start("newcomer", busy_wait=BUSY_WAIT)
    assert "unavailable" == newcomer.ask("admit", event=message("n9"))["reason"]
    with fleet.look() as left:  # reading waits for nobody
        assert ["m0", "m1", "m2", "e0"] == list(left.operations())
        assert [] == [event_id for event_id, _ in fleet.sent if event_id != "e0"]
    if end == "killed":
        frozen.kill()
    else:
        frozen.thaw()
        frozen.ask("go_on")
        assert "accepted" == frozen.answer(committing)["status"]
        frozen.hear("sent", "e1")
    for number, other in enumerate(others):
        other.hear("sent", f"m{number}")
        while (answer := other.ask("admit", event=message(f"n{number}", conversation=f"c{number}")))["retryable"]:
            assert "unavailable" == answer["reason"]
        other.hear("sent", f"n{number}")

    there = ["e1"] if end == "continued" else []
    assert sorted(["e0", *there, "m0", "m1", "m2", "n0", "n1", "n2"]) == sorted(event_id for event_id, _ in fleet.sent)
    others[0].ask("drain")
    with fleet.look() as left:
        assert ("e1" in left.operations()) == (end == "continued")
        assert left.journal.verify().agrees


@pytest.mark.sqlite_only("on PostgreSQL no worker is inside a commit of the server's, and a frozen one stops nobody")
@pytest.mark.contract("LCK-16", "RUN-13", "RUN-09", "RCN-01")
def test_a_worker_that_leaves_while_another_is_frozen_in_a_commit_leaves_its_route(fleet: Fleet) -> None:
    """
    It cannot tell the journal how its turn ended, and goes all the same: the turn is listed as executing, and the route is free
    with the end of its opening.
    """
    frozen, patient = fleet.start("frozen"), fleet.start("patient", lease_ttl="5m", busy_wait="2m")
    leaving = fleet.start("leaving", lease_ttl="5m", busy_wait=BUSY_WAIT, stop_deadline="100ms")
    untold = leaving.hold("m1")
    patient.accept("m2")
    frozen.ask("pause_commit")
    frozen.tell("admit", event=message("e1", conversation="frozen"))
    frozen.hear("committing")
    frozen.freeze()
    leaving.leave()
    assert leaving.said("aborted", "m1")
    frozen.kill()
    patient.hear("sent", "m2")
    patient.ask("drain")

    assert [("m2", "patient")] == fleet.sent
    with fleet.look() as left:
        assert [(untold, "executing", False)] == [
            (row.operation_id, row.state, row.holder_alive) for row in left.unresolved.values()
        ]


@pytest.mark.contract("RUN-04", "RPL-03")
def test_a_worker_frozen_after_its_answer_was_appended_sends_it_once(fleet: Fleet) -> None:
    """The answer stands, and nobody else sends it, though the route went on meanwhile; it comes when the frozen one goes on."""
    frozen, other = fleet.start("frozen", lease_ttl="1s"), fleet.start("other", lease_ttl="1s")
    frozen.ask("quiet_after_settlement")
    slow = frozen.accept("m1")
    frozen.hear("quiet")
    frozen.freeze()
    other.accept("m2")
    other.hear("sent", "m2")
    other.ask("drain")
    with fleet.look() as left:
        assert [(slow, "succeeded", "pending")] == [
            (row.operation_id, row.state, row.reply_state) for row in left.unresolved.values()
        ]
    frozen.thaw()
    frozen.ask("go_on")
    frozen.hear("sent", "m1")
    frozen.ask("drain")

    assert [("m2", "other"), ("m1", "frozen")] == fleet.sent
    assert "operation.late_refused" not in fleet.types()
    with fleet.look() as left:
        assert {} == left.unresolved
        assert left.journal.verify().agrees
