"""The end of an operation that was never claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.operation import OperationSettled, ReplyStaged
from counterfoil.domain.turn import Answer, settle_unclaimed

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize("stepped_over", [False, True])
def test_what_waits_can_be_cancelled(given: Given, stepped_over: bool) -> None:
    """It has no fence and no time of a claim, and leaves the queue."""
    scene = given().admitted("a")
    if stepped_over:
        scene.stepped_over("a")
    answer = Answer("cancelled", "cancelled_while_queued")
    admitted_at = scene.operation("a").admitted_at
    decided = scene.when(lambda s: settle_unclaimed(s.operation("a"), answer, s.context))
    scene = decided.then(
        OperationSettled(outcome="cancelled", replied=False, code="cancelled_while_queued", admitted_at=admitted_at)
    )

    assert [] == scene.queued
    assert "cancelled" == scene.operation("a").phase


@pytest.mark.contract("RUN-08")
def test_a_refusal_may_bring_a_notice(given: Given, names: Names) -> None:
    """Staged in the same append."""
    scene = given().admitted("a")
    answer = Answer("failed", "rejected", "not possible")
    admitted_at = scene.operation("a").admitted_at
    decided = scene.when(lambda s: settle_unclaimed(s.operation("a"), answer, s.context))
    scene = decided.then(
        OperationSettled(outcome="failed", replied=True, code="rejected", admitted_at=admitted_at),
        ReplyStaged(kind="notice", text=names.committed("not possible"), truncated=False),
    )

    assert [1, 2] == [step.causation for step in decided.steps]
    assert ("failed", "pending") == (scene.operation("a").phase, scene.operation("a").reply)


@pytest.mark.parametrize("phase", ["executing", "settled", "abandoned", "unknown"])
def test_what_waits_no_longer_is_left_alone(given: Given, phase: str) -> None:
    """A claim came first, or an end."""
    scene = given().admitted("a")
    if phase != "abandoned":
        scene.claimed("a")
    if phase != "executing":
        getattr(scene, phase)("a")

    scene.when(lambda s: settle_unclaimed(s.operation("a"), Answer("cancelled"), s.context)).then()
