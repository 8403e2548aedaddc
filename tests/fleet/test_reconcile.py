"""Reconcile in one process of what another process has, or had, in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet

TTL = "5m"


@pytest.mark.contract("RCN-03", "LCK-08")
def test_what_a_dead_process_had_in_hand_is_filed_at_once(fleet: Fleet) -> None:
    """Without force, and long before the ttl of its lease has passed."""
    dead, desk = fleet.start("dead", lease_ttl=TTL), fleet.start("desk", lease_ttl=TTL)
    stuck = dead.hold("m1")
    dead.kill()
    answer = desk.ask("reconcile", operation_id=stuck, version=2, force=False)

    assert ("resolved", "execution_unknown") == (answer["status"], answer["outcome"])
    with fleet.look() as left:
        assert {} == left.unresolved
    assert [] == fleet.sent


@pytest.mark.contract("RCN-03", "RUN-05", "RUN-06", "LCK-10")
@pytest.mark.parametrize("agent", ["hold", "hold on"])
def test_a_living_holder_is_fenced_out_by_force_alone(fleet: Fleet, agent: str) -> None:
    """Its run is aborted; what it brings, be it an answer, is refused in its own process, and nothing of it is sent."""
    holder, desk = fleet.start("holder", lease_ttl=TTL), fleet.start("desk", lease_ttl=TTL)
    stuck = holder.hold("m1", agent)
    desk.accept("m2")
    refused = desk.ask("reconcile", operation_id=stuck, version=2, force=False)
    assert ("conflict", "holder_alive") == (refused["status"], refused["detail"])
    assert not holder.said("aborted", "m1")
    forced = desk.ask("reconcile", operation_id=stuck, version=2, force=True)
    holder.hear("aborted", "m1")
    holder.go("m1")
    for worker in (desk, holder):
        worker.ask("drain")

    assert ("resolved", "execution_unknown") == (forced["status"], forced["outcome"])
    assert ["m2"] == [event_id for event_id, _ in fleet.sent]
    assert ["operation.admitted", "operation.claimed", "operation.execution_unknown", "operation.late_refused"] == fleet.types(
        stuck
    )
    assert 1 == holder.ask("counters")["lease_losses"]
    holder.accept("m3")
    holder.hear("sent", "m3")
    with fleet.look() as left:
        assert left.journal.verify().agrees


@pytest.mark.contract("RCN-03")
def test_what_waits_in_another_process_is_abandoned_and_not_run(fleet: Fleet) -> None:
    """Accepted needs no acknowledgment and no force, whoever has it waiting; those behind it go on."""
    holder, desk = fleet.start("holder", lease_ttl=TTL), fleet.start("desk", lease_ttl=TTL)
    holder.hold("m1")
    waiting = holder.accept("m2")
    holder.accept("m3")
    answer = desk.ask("reconcile", operation_id=waiting, version=1, force=False)
    holder.go("m1")
    holder.hear("sent", "m3")
    holder.ask("drain")

    assert ("resolved", "abandoned") == (answer["status"], answer["outcome"])
    assert ["m1", "m3"] == [event_id for event_id, _ in fleet.sent]


@pytest.mark.contract("RCN-03", "RCN-04", "RPL-02")
def test_two_processes_resend_a_pending_reply_once(fleet: Fleet) -> None:
    """The worker died after it staged the reply; both operators are told, and one sends."""
    dead = fleet.start("dead")
    desks = [fleet.start(f"desk{number}") for number in range(2)]
    dead.ask("fail", failing=True)
    pending = dead.accept("m1")
    dead.hear("failed", "Mark")
    dead.kill()
    asked = [(desk, desk.tell("reconcile", operation_id=pending, version=4, force=False)) for desk in desks]
    answers = [desk.answer(number) for desk, number in asked]

    assert ["conflict", "resolved"] == sorted(answer["status"] for answer in answers)
    assert ["dead", "desk"] == [name.rstrip("01") for _, name in fleet.sent]
