"""One worker stops, or fails to give a route back, while another waits on the same route."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet

TTL = "5m"


@pytest.mark.contract("RUN-13", "RUN-03", "ADM-05")
@pytest.mark.parametrize("keep_queued", [False, True])
def test_a_stop_leaves_the_route_to_the_worker_that_waits_on_it(fleet: Fleet, keep_queued: bool) -> None:
    """
    What runs is aborted. What waits is cancelled or kept; kept, it runs at its place in the other process, which waits longer
    than for the stop: the first stays open, and no ttl passes.
    """
    first, second = fleet.start("first", lease_ttl=TTL), fleet.start("second", lease_ttl=TTL)
    operations = [first.hold("m1"), first.accept("m2"), second.accept("m3"), first.accept("m4")]
    counters = first.ask("stop", keep_queued=keep_queued)
    second.hear("sent", "m4" if keep_queued else "m3")
    second.ask("drain")

    assert first.said("aborted", "m1")
    assert [(event, "second") for event in (("m2", "m3", "m4") if keep_queued else ("m3",))] == fleet.sent
    assert (1 if keep_queued else 3, 0) == (counters["cancelled"], counters["queued"])
    with fleet.look() as left:
        assert {} == left.unresolved
        phases = [operation.phase for operation in left.operations().values()]
    kept = "succeeded" if keep_queued else "cancelled"
    assert ["cancelled", kept, "succeeded", kept] == phases
    assert "lock.expired" not in fleet.types()
    assert "stopped" == first.ask("admit", event={"connection": "tg", "conversation": "c1"})["reason"]
    assert 4 == len(set(operations))


@pytest.mark.contract("RUN-13", "RUN-05")
def test_a_run_that_outlasts_a_stop_is_unknown_and_the_next_worker_goes_on(fleet: Fleet) -> None:
    """Its late result is refused in its own process, and no second message goes out."""
    first = fleet.start("first", lease_ttl=TTL, stop_deadline="100ms")
    second = fleet.start("second", lease_ttl=TTL)
    late = first.hold("m1", "hold on")
    second.accept("m2")
    first.ask("stop", keep_queued=True)
    second.hear("sent", "m2")
    first.go("m1")
    first.leave()

    assert [("m2", "second")] == fleet.sent
    assert ["operation.admitted", "operation.claimed", "operation.execution_unknown", "operation.late_refused"] == fleet.types(
        late
    )


@pytest.mark.contract("RUN-14", "LCK-10")
def test_a_release_that_fails_keeps_the_route_from_the_worker_that_waits(fleet: Fleet) -> None:
    """Until it has been retried: what waits elsewhere runs under a grant that follows a release, and no ttl passes."""
    first, second = fleet.start("first", lease_ttl=TTL), fleet.start("second", lease_ttl=TTL)
    first.ask("fail", failing=True)
    first.accept("m1")
    first.hear("failed", "Mark")
    second.accept("m2")
    first.hear("failed", "Mark", times=3)
    assert not second.said("began", "m2")
    with fleet.look() as left:
        assert [("succeeded", "pending"), ("accepted", "none")] == [
            (row.state, row.reply_state) for row in left.unresolved.values()
        ]
    assert 1 == fleet.types().count("lock.granted")
    first.ask("fail", failing=False)
    for worker in (first, second):
        worker.ask("drain")

    assert ["m1", "m2"] == [event_id for event_id, _ in fleet.sent]
    assert "lock.expired" not in fleet.types()


@pytest.mark.contract("RUN-14", "RUN-13")
def test_a_release_that_fails_at_a_stop_is_retried_by_the_next_stop(fleet: Fleet) -> None:
    """Another worker waits all the while, and has the route as soon as the lease is given back by a process that lives on."""
    first, second = fleet.start("first", lease_ttl=TTL), fleet.start("second", lease_ttl=TTL)
    first.hold("m1")
    second.accept("m2")
    first.ask("fail", failing=True)
    first.ask("stop", keep_queued=True)
    assert first.said("failed", "Release")
    assert "lock.released" not in fleet.types()
    assert not second.said("began", "m2")
    first.ask("fail", failing=False)
    first.ask("stop", keep_queued=True)
    second.hear("sent", "m2")
    second.ask("drain")

    assert [("m2", "second")] == fleet.sent
    moves = [each for each in fleet.types() if each.startswith("lock.")]
    assert ["lock.granted", "lock.released", "lock.granted", "lock.released"] == moves
