"""Giving up: nobody can tell what a run did that did not end when it was told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.lock import fence_text
from counterfoil.domain.operation import OperationExecutionUnknown, OperationLateRefused
from counterfoil.domain.turn import Answer, give_up, settle

if TYPE_CHECKING:
    from tests.domain.conftest import Given


@pytest.mark.contract("RUN-13")
def test_a_run_that_does_not_end_is_unknown_and_its_late_result_is_refused(given: Given) -> None:
    """Nobody acknowledged anything, and nobody was fenced out; the route is free."""
    scene = given().admitted("a").claimed("a")
    scene = scene.when(lambda s: give_up(s.operation("a"), "stop")).then(
        OperationExecutionUnknown(reason="stop", acknowledged=False, forced=False)
    )
    assert "execution_unknown" == scene.operation("a").phase
    assert [] == scene.queued

    late = Answer("succeeded", reply="late")
    scene.when(lambda s: settle(s.operation("a"), late, s.fence, s.lease, s.deadline, s.context)).then(
        OperationLateRefused(outcome="succeeded", fence=fence_text(scene.fence))
    )


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize("phase", ["accepted", "settled", "abandoned", "unknown"])
def test_only_what_runs_is_given_up(given: Given, phase: str) -> None:
    """Anything else has an end already, or never began; giving up twice adds nothing."""
    scene = given().admitted("a")
    if phase in ("settled", "unknown"):
        scene.claimed("a")
    if phase != "accepted":
        getattr(scene, phase)("a")

    scene.when(lambda s: give_up(s.operation("a"), "stop")).then()
