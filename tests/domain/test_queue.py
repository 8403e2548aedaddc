"""A route's queue: the fold keeps the order of admission, whoever admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from counterfoil.domain.event import Header, Recorded
from counterfoil.domain.route import evolve_queue

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names

NAMES = "abcdefgh"
CHANGES = st.sampled_from(["admitted", "claimed", "settled", "abandoned", "unknown", "stepped_over", "put_back"])


@pytest.mark.contract("RUN-03", "ADM-04")
def test_entries_stand_in_order_of_admission(given: Given, names: Names) -> None:
    """One queue for all openings; each entry knows who put it there, and when."""
    scene = given().admitted("a").admitted("b", opening=2).admitted("c")

    assert [names.op("a"), names.op("b"), names.op("c")] == scene.queued
    assert [(1, 1, 1), (2, 2, 2), (3, 3, 1)] == [
        (entry.operation, entry.place, entry.opening_id) for entry in scene.queue.entries
    ]
    assert [each.recorded_at for each in scene.recorded] == [entry.entered_at for entry in scene.queue.entries]


@pytest.mark.contract("RUN-03")
def test_a_claimed_entry_runs_and_does_not_wait(given: Given, names: Names) -> None:
    """It keeps its place, with the grant and the opening it runs under, until its operation ends."""
    queue = given().admitted("a", "b").claimed("a", opening=2).queue

    assert [names.op("b")] == [entry.operation_id for entry in queue.waiting]
    running = queue.find(1)
    assert running is not None
    assert (False, 1, 2) == (running.waiting, running.grant, running.claimed_by)
    assert queue.find(99) is None


@pytest.mark.contract("RUN-03")
@pytest.mark.parametrize("end", ["settled", "abandoned", "unknown", "stepped_over"])
def test_what_ends_or_steps_over_leaves_the_queue(given: Given, names: Names, end: str) -> None:
    """The rest keeps its order."""
    scene = given().admitted("a", "b", "c")
    if end in ("settled", "unknown"):
        scene.claimed("b")
    getattr(scene, end)("b")

    assert [names.op("a"), names.op("c")] == scene.queued


@pytest.mark.contract("RUN-08", "ADM-02")
def test_what_is_put_back_stands_at_the_end(given: Given, names: Names) -> None:
    """Under the opening that put it there, and counted anew from then."""
    scene = given().admitted("a", "b").stepped_over("a").put_back("a", opening=2)
    entry = scene.queue.find(1)

    assert [names.op("b"), names.op("a")] == scene.queued
    assert entry is not None
    assert (1, 4, 2, scene.recorded[-1].recorded_at) == (
        entry.operation,
        entry.place,
        entry.opening_id,
        entry.entered_at,
    )


def test_what_is_not_of_the_queue_leaves_it_as_it_was(given: Given) -> None:
    """Repeats, replies, grants, and events that nobody here knows."""
    scene = given().admitted("a", "b").claimed("a").settled("a", reply="hi")
    before = scene.queue

    assert before == scene.granted().resent("a").queue
    assert before == evolve_queue(before, Recorded(9, 9, "x", 1, Header(), None))


@pytest.mark.contract("RUN-03", "RUN-07")
@for_all(st.lists(st.tuples(CHANGES, st.sampled_from(NAMES)), max_size=40))
def test_the_fold_keeps_the_order(given: Given, names: Names, changes: list[tuple[str, str]]) -> None:
    """Against a list that appends and removes: nothing overtakes, nothing is lost, nothing comes twice."""
    scene = given()
    waiting: list[str] = []
    running: list[str] = []
    over: list[str] = []
    seen: set[str] = set()
    for change, name in changes:
        if change == "admitted" and name not in seen:
            scene.admitted(name)
            waiting.append(name)
            seen.add(name)
        elif change == "claimed" and waiting:
            scene.claimed(waiting[0])
            running.append(waiting.pop(0))
        elif change in ("settled", "unknown") and name in running:
            getattr(scene, change)(name)
            running.remove(name)
        elif change == "abandoned" and name in waiting:
            scene.abandoned(name)
            waiting.remove(name)
        elif change == "stepped_over" and name in waiting:
            scene.stepped_over(name)
            waiting.remove(name)
            over.append(name)
        elif change == "put_back" and name in over:
            scene.put_back(name)
            over.remove(name)
            waiting.append(name)
    queue = scene.queue

    assert [names.op(name) for name in waiting] == [entry.operation_id for entry in queue.waiting]
    assert sorted(map(names.op, waiting + running)) == sorted(scene.queued)
    assert sorted(entry.place for entry in queue.entries) == [entry.place for entry in queue.entries]
