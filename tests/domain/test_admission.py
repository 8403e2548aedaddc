"""Admission: an inbound event gets its place, or is refused and leaves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.admission import Admission, AdmissionReason, Admit, Load, admit, refused, stale, superseded
from counterfoil.domain.operation import OperationAdmitted

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene

DAY = 86_400_000_000
IDLE = Load(pending=0, routes=0, route_has_work=False)


def command(names: Names, name: str = "new") -> Admit:
    return Admit(
        operation_id=names.op(name),
        occurrence=0,
        route=names.route,
        alias="agent",
        actor=b"\x33" * 16,
        principal=b"\x55" * 16,
        revision="4",
        event_id="1001",
        body=b"hello",
        received_at=7,
    )


@pytest.mark.contract("ADM-04", "JRN-07")
def test_one_event_admits_and_queues(given: Given, names: Names) -> None:
    """The text lies beside it, and the event has the commitment; the person did it."""
    decided = given().when(lambda s: admit(command(names), s.queue, IDLE, s.context))
    scene = decided.then(
        OperationAdmitted(
            route=names.route,
            alias="agent",
            occurrence=0,
            principal="55" * 16,
            revision="4",
            text=names.committed("hello"),
            received_at=7,
        )
    )

    assert [names.op("new")] == scene.queued
    (step,) = decided.steps
    assert (names.op("new"), "person", b"\x33" * 16, "1001") == (
        step.originator_id,
        step.actor_kind,
        step.actor,
        step.external_id,
    )
    assert [(names.salt, b"hello")] == decided.payloads


@pytest.mark.contract("ADM-05", "LIM-01", "RUN-07")
@pytest.mark.parametrize(
    ("load", "waiting", "answer"),
    [
        (IDLE, 2, "accepted"),
        (IDLE, 3, "capacity"),
        (Load(pending=4, routes=1, route_has_work=True), 0, "accepted"),
        (Load(pending=5, routes=1, route_has_work=True), 0, "capacity"),
        (Load(pending=0, routes=1, route_has_work=False), 0, "accepted"),
        (Load(pending=0, routes=2, route_has_work=False), 0, "capacity"),
        (Load(pending=0, routes=2, route_has_work=True), 0, "accepted"),
    ],
)
def test_capacity_is_counted_by_route_and_by_process(given: Given, names: Names, load: Load, waiting: int, answer: str) -> None:
    """The last free place is given, the one after it is not; a route that has work already takes no second place."""
    scene = given().within(max_pending_per_binding=3, max_pending_per_process=5, max_routes=2)
    scene.admitted(*"abc"[:waiting])
    result = admit(command(names), scene.queue, load, scene.context)

    assert answer == (result if isinstance(result, str) else "accepted")


@pytest.mark.contract("LIM-01")
def test_entries_of_the_route_count_whoever_admitted_them(given: Given, names: Names) -> None:
    """Those of other live openings, and young ones of ended openings, too; one that runs does not."""
    scene = given().within(max_pending_per_binding=2).alive(2).admitted("a", "b", opening=2)
    assert "capacity" == admit(command(names), scene.queue, IDLE, scene.context)

    scene.alive()
    assert "capacity" == admit(command(names), scene.queue, IDLE, scene.context)

    scene.claimed("a")
    assert not isinstance(admit(command(names), scene.queue, IDLE, scene.context), str)


@pytest.mark.contract("RUN-08")
def test_stale_entries_count_for_no_limit(given: Given, names: Names) -> None:
    """They wait for a repeat, and take nobody's place meanwhile."""
    scene = given().within(max_pending_per_binding=2).admitted("a", "b", opening=2).later(15 * names.minute + 1)

    assert not isinstance(admit(command(names), scene.queue, IDLE, scene.context), str)


@pytest.mark.contract("RUN-08", "JRN-06")
@pytest.mark.parametrize(
    ("alive", "waited", "expected"),
    [(False, 1, True), (False, 0, False), (False, 60_000_000, True), (True, 1, False), (True, 60_000_000, False)],
)
def test_an_entry_is_stale_beyond_max_wait_if_its_opening_has_ended(
    given: Given, names: Names, alive: bool, waited: int, expected: bool
) -> None:
    """To the microsecond, by the journal's clock; a live opening's entry never is."""
    scene = given().alive(*([2] if alive else [])).admitted("a", opening=2).later(15 * names.minute + waited)

    assert expected is stale(scene.queue.entries[0], scene.context)


@pytest.mark.contract("PRN-02", "ADM-02")
@pytest.mark.parametrize(("age", "expected"), [(30 * DAY - 1, False), (30 * DAY, True)])
def test_an_event_is_known_for_dedup_days(given: Given, age: int, expected: bool) -> None:
    """Counted from the admission; after that the same event id is a new occurrence."""
    scene = given().admitted("a").later(age)

    assert expected is superseded(scene.operation("a"), scene.context)


def test_dedup_days_can_be_set(given: Given) -> None:
    """By the limit of that name."""
    scene = given().within(dedup_days=1).admitted("a").later(DAY)

    assert superseded(scene.operation("a"), scene.context)


REASONS: dict[AdmissionReason, tuple[str, bool]] = {
    "malformed": ("denied", False),
    "oversized": ("denied", False),
    "rejected": ("denied", False),
    "revoked": ("denied", False),
    "authorization_failed": ("denied", False),
    "capacity": ("denied", True),
    "stopped": ("denied", True),
    "unavailable": ("denied", True),
    "unknown_command": ("unsupported", False),
}


@pytest.mark.contract("ADM-06")
@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_tells_whether_to_deliver_again(reason: AdmissionReason) -> None:
    """Only what may be otherwise the next time is retryable."""
    answer = refused(reason)

    assert (*REASONS[reason], reason, None) == (answer.status, answer.retryable, answer.reason, answer.operation_id)


@pytest.mark.contract("ADM-03")
def test_an_acceptance_is_not_retryable() -> None:
    """It may be acknowledged; it is no duplicate and its text no other unless that is said."""
    answer = Admission("accepted", operation_id="op-1", version=1, position=1)

    assert (False, False, False, None) == (answer.retryable, answer.duplicate, answer.text_differs, answer.reason)


@pytest.mark.contract("DIA-01")
def test_text_is_not_in_the_repr_of_a_payload(given: Given, names: Names) -> None:
    """Only its length."""

    def with_text(scene: Scene) -> object:
        return admit(command(names), scene.queue, IDLE, scene.context)

    assert "hello" not in repr(with_text(given()))
