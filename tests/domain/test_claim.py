"""A claim: the head of a route is taken, with the lease it runs under, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.lock import LockExpired, LockGranted
from counterfoil.domain.operation import EntrySteppedOver, OperationClaimed
from counterfoil.domain.route import BindingOpened
from counterfoil.domain.turn import ClaimPlan, claim

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene

GRANTED = LockGranted(lock="counterfoil.route", ttl=30_000_000)


def opened(names: Names) -> BindingOpened:
    return BindingOpened(alias="agent", generation=0, session_id=names.session)


def claiming(scene: Scene, names: Names, name: str | None = "a") -> ClaimPlan:
    expected = None if name is None else scene.operation(name)
    return claim(expected, scene.queue, names.lease, scene.lease, scene.deadline, scene.binding, names.session, scene.context)


@pytest.mark.contract("RUN-01")
def test_the_first_claim_takes_the_lease_and_opens_the_binding(given: Given, names: Names) -> None:
    """All in one append, the claim last; a deadline begins."""
    decided = given().admitted("a").when(lambda s: claiming(s, names))
    scene = decided.then(GRANTED, opened(names), OperationClaimed(grant=1, admitted_at=decided.scene.recorded[0].recorded_at))

    assert ("claimed", True) == (decided.result.found, decided.result.granted)
    assert [names.lease, names.route, names.op("a")] == [step.originator_id for step in decided.steps]
    assert ("executing", 1, 1) == (scene.operation("a").phase, scene.operation("a").grant, scene.operation("a").claimed_by)


@pytest.mark.contract("RUN-01", "RUN-03", "RUN-09", "LCK-01", "LCK-08", "LCK-09")
@pytest.mark.parametrize(
    ("lease", "found", "ended", "grant"),
    [
        ("never", "claimed", None, 1),
        ("released", "claimed", None, 3),
        ("revoked", "claimed", None, 3),
        ("mine", "claimed", "kept", 1),
        ("mine, by ttl", "claimed", "ttl", 3),
        ("mine, another boot", "claimed", "ttl", 3),
        ("other, alive", "held", None, None),
        ("other, alive, to the last moment", "held", None, None),
        ("other, by ttl", "claimed", "ttl", 3),
        ("other, another boot", "claimed", "ttl", 3),
        ("other, ended", "claimed", "opening_ended", 3),
        ("other, ended, another boot", "claimed", "opening_ended", 3),
    ],
)
def test_a_claim_meets_the_lease(
    given: Given, names: Names, lease: str, found: str, ended: str | None, grant: int | None
) -> None:
    """Free, mine, another's that lives, or another's that has ended in one of its ways."""
    scene = given().alive(2).bound().admitted("a")
    whose, *more = lease.split(", ")
    if whose != "never":
        scene.granted(opening=2 if whose == "other" else 1)
    match whose:
        case "released":
            scene.released()
        case "revoked":
            scene.revoked()
    for word in more:
        match word:
            case "by ttl":
                scene.later(30_000_000)
            case "to the last moment":
                scene.later(29_999_999)
            case "another boot":
                scene.rebooted()
            case "ended":
                scene.alive()
    admitted_at = scene.operation("a").admitted_at
    decided = scene.when(lambda s: claiming(s, names))
    assert (found, grant is not None and ended != "kept") == (decided.result.found, decided.result.granted)
    expected: list[LockExpired | LockGranted | OperationClaimed] = []
    if ended == "ttl" or ended == "opening_ended":
        expected.append(LockExpired(cause=ended))
    if grant is not None and ended != "kept":
        expected.append(GRANTED)
    if grant is not None:
        expected.append(OperationClaimed(grant=grant, admitted_at=admitted_at))
    scene = decided.then(*expected)

    if grant is not None:
        assert scene.lease is not None
        assert (grant, 1, True) == (scene.lease.grant, scene.lease.opening_id, scene.lease.held)


@pytest.mark.contract("RUN-01")
def test_the_grant_takes_the_ttl_of_the_limits(given: Given, names: Names) -> None:
    """In microseconds."""
    decided = given().within(lease_ttl="7s").admitted("a").when(lambda s: claiming(s, names))

    assert LockGranted(lock="counterfoil.route", ttl=7_000_000) == decided.events[0]


@pytest.mark.contract("RUN-03")
@pytest.mark.parametrize("expected", ["b", None])
def test_nothing_overtakes_the_head(given: Given, names: Names, expected: str | None) -> None:
    """Who has prepared another operation, or none, is told the head, and nothing is granted."""
    decided = given().admitted("a", "b").when(lambda s: claiming(s, names, expected))
    decided.then()

    assert ("head", False) == (decided.result.found, decided.result.granted)
    assert decided.result.head is not None
    assert names.op("a") == decided.result.head.operation_id


@pytest.mark.contract("RUN-03")
def test_another_opening_s_entry_is_run_by_who_holds_the_route(given: Given, names: Names) -> None:
    """In its place, whoever admitted it."""
    scene = given().alive(2).bound().granted().admitted("a", opening=2).admitted("b")

    assert "claimed" == claiming(scene, names, "a").found
    assert "head" == claiming(scene, names, "b").found


@pytest.mark.contract("RUN-03")
def test_one_turn_at_a_time(given: Given, names: Names) -> None:
    """While an entry runs under the lease that stands, the next one waits."""
    decided = given().admitted("a", "b").claimed("a").when(lambda s: claiming(s, names, "b"))
    decided.then()

    assert "busy" == decided.result.found


@pytest.mark.contract("RUN-02", "RUN-03")
@pytest.mark.parametrize("how", ["opening ended", "ttl", "unknown", "settled"])
def test_what_no_longer_runs_does_not_hold_the_route(given: Given, names: Names, how: str) -> None:
    """An executing entry of an ended opening, or under an older grant, is passed and never claimed again."""
    scene = given().bound().admitted("a", "b")
    match how:
        case "opening ended":
            scene.claimed("a", opening=2).alive()
        case "ttl":
            scene.claimed("a").later(30_000_000)
        case "unknown" | "settled":
            getattr(scene.claimed("a"), how)("a")
    decided = scene.when(lambda s: claiming(s, names, "b"))

    assert "claimed" == decided.result.found
    assert names.op("b") == decided.steps[-1].originator_id
    assert names.op("a") not in {step.originator_id for step in decided.steps}


@pytest.mark.contract("RUN-03")
def test_an_empty_queue_claims_nothing(given: Given, names: Names) -> None:
    """No entry, or none that waits."""
    assert ClaimPlan("empty") == claiming(given(), names, None)
    assert ClaimPlan("empty") == claiming(given().admitted("a").claimed("a"), names, None)


@pytest.mark.contract("RUN-08")
def test_old_entries_of_ended_openings_are_stepped_over_on_the_way(given: Given, names: Names) -> None:
    """They leave the queue and stay accepted; what a live opening admitted is kept, however old it is."""
    scene = given().bound().granted().alive(3).admitted("a", opening=2).admitted("b", opening=3).admitted("c", opening=2)
    scene.later(15 * names.minute).granted().admitted("d")
    decided = scene.when(lambda s: claiming(s, names, "b"))
    scene = decided.then(
        EntrySteppedOver(),
        EntrySteppedOver(),
        OperationClaimed(grant=3, admitted_at=decided.scene.operation("b").admitted_at),
    )

    assert [names.op("a"), names.op("c"), names.op("b")] == [step.originator_id for step in decided.steps]
    assert ("accepted", True) == (scene.operation("a").phase, scene.operation("a").stepped_over)
    assert [names.op("b"), names.op("d")] == scene.queued


@pytest.mark.contract("RUN-08")
@pytest.mark.parametrize("found", ["empty", "held", "busy", "head"])
def test_stepping_over_does_not_depend_on_the_claim(given: Given, names: Names, found: str) -> None:
    """Whatever the claim finds, the old entry has left the queue, and only it."""
    scene = given().alive(3).admitted("a", opening=2).later(15 * names.minute + 1)
    match found:
        case "held":
            scene.admitted("b").granted(opening=3)
        case "busy":
            scene.admitted("b", "c").claimed("b")
        case "head":
            scene.admitted("b")
    decided = scene.when(lambda s: claiming(s, names, None))
    scene = decided.then(EntrySteppedOver())

    assert [1] == [step.causation for step in decided.steps]
    assert found == decided.result.found
    assert names.op("a") not in scene.queued


@pytest.mark.contract("RUN-08")
def test_young_entries_of_ended_openings_are_run_first(given: Given, names: Names) -> None:
    """A new event on the route runs what waits before it."""
    scene = given().admitted("a", opening=2).later(15 * names.minute - 2).admitted("b")
    plan = claiming(scene, names, "b")

    assert ("head", ()) == (plan.found, plan.steps)
    assert plan.head is not None
    assert names.op("a") == plan.head.operation_id
