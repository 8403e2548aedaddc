"""Marks: what is known of a sending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.event import Event
from counterfoil.domain.operation import ReplyDelivered, ReplyDeliveryFailed, ReplyDeliveryUnknown, ReplyPhase
from counterfoil.domain.turn import Delivery, mark

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names

FAILED = ReplyDeliveryFailed(attempt=1, reason="blocked")
UNKNOWN = ReplyDeliveryUnknown(attempt=1, reason="timeout")


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        (Delivery("delivery_failed", "blocked"), FAILED),
        (Delivery("delivery_failed"), ReplyDeliveryFailed(attempt=1, reason="failed")),
        (Delivery("delivery_unknown", "timeout"), UNKNOWN),
        (Delivery("delivery_unknown"), ReplyDeliveryUnknown(attempt=1, reason="unknown")),
    ],
)
def test_what_did_not_surely_arrive_has_a_class_word(given: Given, delivery: Delivery, expected: Event) -> None:
    """The host's, or one of ours; an id that came with it is not kept."""
    scene = given().admitted("a").claimed("a").replied("a", "pending")
    decided = scene.when(lambda s: mark(s.operation("a"), 1, delivery))
    scene = decided.then(expected)

    assert delivery.outcome == scene.operation("a").reply
    assert [("system", None, None)] == [(step.actor_kind, step.actor, step.external_id) for step in decided.steps]


@pytest.mark.contract("RPL-02")
def test_a_delivery_keeps_the_id_of_the_message_beside_the_event(given: Given) -> None:
    """The event itself has the attempt and the time of admission."""
    scene = given().admitted("a").claimed("a").replied("a", "pending")
    admitted_at = scene.operation("a").admitted_at
    decided = scene.when(lambda s: mark(s.operation("a"), 1, Delivery("delivered", message_id="m-1")))
    scene = decided.then(ReplyDelivered(attempt=1, admitted_at=admitted_at))

    assert ["m-1"] == [step.external_id for step in decided.steps]
    assert scene.operation("a").resolved


def test_a_resend_is_marked_as_the_operator_s(given: Given, names: Names) -> None:
    """By pseudonym, with the number of the attempt."""
    scene = given().admitted("a").claimed("a").replied("a", "delivery_failed").resent("a")
    decided = scene.when(lambda s: mark(s.operation("a"), 2, Delivery("delivery_failed", "blocked"), names.operator))
    decided.then(ReplyDeliveryFailed(attempt=2, reason="blocked"))

    assert [names.operator] == [(step.actor_kind, step.actor) for step in decided.steps]


def test_an_operation_without_a_reply_has_nothing_to_mark(given: Given) -> None:
    """No event."""
    scene = given().admitted("a").claimed("a").settled("a")

    scene.when(lambda s: mark(s.operation("a"), 1, Delivery("delivered"))).then()


@pytest.mark.contract("RCN-04", "RCN-05")
@pytest.mark.parametrize(
    ("late", "event", "phase"),
    [
        (Delivery("delivery_failed", "blocked"), FAILED, "pending"),
        (Delivery("delivery_unknown", "timeout"), UNKNOWN, "pending"),
        (Delivery("delivered"), None, "delivered"),
    ],
)
def test_a_mark_that_comes_late_is_recorded_as_evidence(
    given: Given, late: Delivery, event: Event | None, phase: ReplyPhase
) -> None:
    """It does not speak for the attempt that was claimed after it, except that what has arrived has arrived."""
    scene = given().admitted("a").claimed("a").replied("a", "delivery_unknown").resent("a")
    expected = event or ReplyDelivered(attempt=1, admitted_at=scene.operation("a").admitted_at)
    scene = scene.when(lambda s: mark(s.operation("a"), 1, late)).then(expected)

    assert phase == scene.operation("a").reply
