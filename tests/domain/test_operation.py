"""An operation: the fold over its events, from admission to what is known of its reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.event import Event
from counterfoil.domain.operation import (
    OperationLateRefused,
    OperationRepeated,
    Outcome,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyPhase,
    evolve,
)

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names

DELIVERED = ReplyDelivered(attempt=1, admitted_at=1)
FAILED = ReplyDeliveryFailed(attempt=1, reason="blocked")
UNKNOWN = ReplyDeliveryUnknown(attempt=1, reason="timeout")


def test_an_admission_begins_it(given: Given, names: Names) -> None:
    """Its place, its time, its opening and its people come from the header."""
    scene = given().admitted("x").admitted("a", opening=2)
    operation = scene.operation("a")

    assert (names.op("a"), 2, 1, "accepted") == (
        operation.operation_id,
        operation.position,
        operation.version,
        operation.phase,
    )
    assert (scene.recorded[1].recorded_at, 2) == (operation.admitted_at, operation.admitted_by)
    assert ("tg", b"\x11" * 16, b"\x22" * 16, None, b"\x33" * 16, b"\x44" * 16) == (
        operation.connection,
        operation.scope_id,
        operation.conversation,
        operation.thread,
        operation.actor,
        operation.correlation,
    )
    assert (names.route, "agent", 0, names.committed("hello")) == (
        operation.route,
        operation.alias,
        operation.occurrence,
        operation.text,
    )
    assert ("none", 0, None) == (operation.reply, operation.attempts, operation.grant)
    assert (False, False, False, False) == (
        operation.ended,
        operation.resolved,
        operation.repeated,
        operation.stepped_over,
    )


@pytest.mark.contract("RUN-01")
def test_a_claim_makes_it_executing(given: Given) -> None:
    """Under the grant, the opening and the time of the claim."""
    scene = given().admitted("a").claimed("a", opening=2)
    operation = scene.operation("a")

    assert ("executing", 1, 2, scene.recorded[-1].recorded_at, 2) == (
        operation.phase,
        operation.grant,
        operation.claimed_by,
        operation.claimed_at,
        operation.version,
    )
    assert not operation.ended


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
def test_a_settlement_ends_it(given: Given, outcome: Outcome) -> None:
    """Without a reply there is nothing left to look at."""
    operation = given().admitted("a").claimed("a").settled("a", outcome).operation("a")

    assert (outcome, True, True) == (operation.phase, operation.ended, operation.resolved)


@pytest.mark.parametrize(("end", "phase"), [("abandoned", "abandoned"), ("unknown", "execution_unknown")])
def test_what_is_filed_ends_it(given: Given, end: str, phase: str) -> None:
    """An operator's word, or a run that did not end in time."""
    scene = given().admitted("a")
    getattr(scene, end)("a")

    assert (phase, True) == (scene.operation("a").phase, scene.operation("a").resolved)


def test_what_only_is_evidence_changes_no_state(given: Given) -> None:
    """A repeat is remembered, a late result is not even that; both count as versions."""
    scene = given().admitted("a").happened("a", OperationRepeated(same_text=True))
    assert (True, "accepted", 2) == (
        scene.operation("a").repeated,
        scene.operation("a").phase,
        scene.operation("a").version,
    )

    scene.claimed("a").unknown("a").happened("a", OperationLateRefused(outcome="succeeded", fence="0" * 40))
    assert ("execution_unknown", 5) == (scene.operation("a").phase, scene.operation("a").version)


@pytest.mark.contract("RUN-08")
def test_stepping_over_leaves_it_accepted(given: Given) -> None:
    """Putting it back makes the opening that did it answer for it."""
    scene = given().admitted("a").stepped_over("a")
    assert ("accepted", True) == (scene.operation("a").phase, scene.operation("a").stepped_over)

    scene.put_back("a", opening=2)
    assert ("accepted", False, 2) == (
        scene.operation("a").phase,
        scene.operation("a").stepped_over,
        scene.operation("a").admitted_by,
    )


@pytest.mark.parametrize("phase", ["none", "pending", "delivered", "delivery_failed", "delivery_unknown"])
def test_a_reply_is_resolved_when_it_was_delivered(given: Given, phase: ReplyPhase) -> None:
    """Pending, failed and unknown ones are for an operator to look at."""
    operation = given().admitted("a").claimed("a").replied("a", phase).operation("a")

    assert (phase, 0 if phase == "none" else 1) == (operation.reply, operation.attempts)
    assert (phase in ("none", "delivered")) is operation.resolved


def test_a_resend_makes_the_reply_pending_again(given: Given) -> None:
    """With the number of its attempt; the place of the text stays."""
    scene = given().admitted("a").claimed("a").replied("a", "delivery_failed")
    staged = scene.operation("a").reply_position
    operation = scene.resent("a").operation("a")

    assert ("pending", 2, staged) == (operation.reply, operation.attempts, operation.reply_position)


@pytest.mark.contract("RCN-04", "RCN-05")
@pytest.mark.parametrize(
    ("marks", "phase"),
    [
        ((DELIVERED, FAILED), "delivered"),
        ((DELIVERED, UNKNOWN), "delivered"),
        ((UNKNOWN, DELIVERED), "delivered"),
        ((FAILED, DELIVERED), "delivered"),
        ((UNKNOWN, FAILED), "delivery_failed"),
        ((FAILED, UNKNOWN), "delivery_unknown"),
    ],
)
def test_delivered_stays_delivered(given: Given, marks: tuple[Event, ...], phase: ReplyPhase) -> None:
    """A second mark of one attempt may make more known, and never makes a delivery undone."""
    scene = given().admitted("a").claimed("a").replied("a", "pending").happened("a", *marks)

    assert phase == scene.operation("a").reply


@pytest.mark.contract("RCN-04")
@pytest.mark.parametrize(("late", "phase"), [(FAILED, "pending"), (UNKNOWN, "pending"), (DELIVERED, "delivered")])
def test_a_late_mark_of_an_earlier_attempt_says_nothing_of_the_newest(given: Given, late: Event, phase: ReplyPhase) -> None:
    """The resend is still on its way, so its reply may not be resent unasked; a delivery counts."""
    scene = given().admitted("a").claimed("a").replied("a", "delivery_unknown").resent("a").happened("a", late)

    assert phase == scene.operation("a").reply
    assert 2 == scene.operation("a").attempts


def test_the_fold_is_pure(given: Given) -> None:
    """Folding twice gives the same, and changes nothing it was given."""
    scene = given().admitted("a").claimed("a")
    before = scene.operation("a")
    settled = scene.settled("a", reply="hi").recorded[-2]

    assert evolve(before, settled) == evolve(before, settled)
    assert "executing" == before.phase


def test_an_event_of_another_aggregate_is_a_mistake(given: Given) -> None:
    """It is not passed over."""
    scene = given().admitted("a").granted()

    with pytest.raises(KeyError, match="LockGranted"):
        evolve(scene.operation("a"), scene.recorded[-1])
    with pytest.raises(AssertionError):
        evolve(None, scene.recorded[-1])
