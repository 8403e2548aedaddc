"""Release: a route's lease is given back when nothing on the route needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.decision import Steps
from counterfoil.domain.lock import LockReleased
from counterfoil.domain.turn import release

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene


def releasing(scene: Scene, names: Names, fence: int | None = None) -> Steps:
    under = fence if fence is not None else scene.fence
    return release(names.lease, scene.queue, scene.lease, scene.deadline, under, scene.context)


@pytest.mark.parametrize("history", ["idle", "settled", "abandoned", "stepped_over", "runs under an older grant"])
def test_an_idle_route_is_given_back(given: Given, names: Names, history: str) -> None:
    """Nothing waits and nothing runs under this grant."""
    scene = given().granted()
    match history:
        case "settled":
            scene.admitted("a").claimed("a").settled("a")
        case "abandoned" | "stepped_over":
            getattr(scene.admitted("a"), history)("a")
        case "runs under an older grant":
            scene.admitted("a").claimed("a").granted()
    decided = scene.when(lambda s: releasing(s, names))
    scene = decided.then(LockReleased())

    assert [names.lease] == [step.originator_id for step in decided.steps]
    assert scene.lease is not None
    assert not scene.lease.held


@pytest.mark.contract("RUN-07")
@pytest.mark.parametrize("history", ["waits", "another's waits", "runs"])
def test_a_route_with_work_is_kept(given: Given, names: Names, history: str) -> None:
    """What came between the last dequeue and the release is not stranded."""
    scene = given().granted()
    match history:
        case "waits":
            scene.admitted("a")
        case "another's waits":
            scene.admitted("a", opening=2)
        case "runs":
            scene.admitted("a").claimed("a")

    scene.when(lambda s: releasing(s, names)).then()


@pytest.mark.contract("LCK-10")
@pytest.mark.parametrize("how", ["never", "released", "revoked", "ttl", "granted anew", "taken by another"])
def test_a_late_release_touches_nobody(given: Given, names: Names, how: str) -> None:
    """Without the lease that stands there is nothing to give back."""
    scene = given()
    if how == "never":
        scene.when(lambda s: releasing(s, names, 1)).then()
        return
    fence = scene.granted().fence
    match how:
        case "released" | "revoked":
            getattr(scene, how)()
        case "ttl":
            scene.later(30_000_000)
        case "granted anew":
            scene.granted()
        case "taken by another":
            scene.alive(2).granted(opening=2)

    scene.when(lambda s: releasing(s, names, fence)).then()
