"""Fleets of two, four and eight workers on one journal, while workers are killed and started again at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.demo import traffic
from tests.fleet.conftest import Fleet, message
from tests.fleet.traffic import Traffic, check

if TYPE_CHECKING:
    from tests.conftest import NewSite
    from tests.fleet.conftest import Forker

AT_ONCE = 4
OPEN = {"executing", "reply pending", "reply delivery_unknown"}
"""What is listed after a kill; a turn that a clean stop has met is `cancelled`."""


@pytest.mark.slow
@pytest.mark.contract(
    "RUN-02", "RUN-03", "RUN-05", "RUN-07", "RUN-08", "RUN-13", "JRN-03", "JRN-09", "ADM-02", "ADM-05", "RPL-03"
)
@pytest.mark.parametrize(("workers", "openings", "ends"), [(2, 1, 16), (4, 2, 20), (8, 1, 28)])
def test_a_fleet_answers_everything_once_and_in_order(fleet: Fleet, workers: int, openings: int, ends: int) -> None:
    """
    Every event goes to one to three of the workers. What has no answer in the end was being worked on by one that was killed, and
    is listed.
    """
    events = list(traffic(messages=300, people=20, seed=workers))
    run = Traffic(fleet, events, workers=workers, seed=workers, openings=openings, pace=0.005, max_active_sessions=AT_ONCE)
    run.run(ends)

    with fleet.look() as left:
        missing = check(fleet, left, run.acknowledged)
        assert {event["event_id"] for event in events} == run.acknowledged
        of_kills = [event_id for event_id, known in missing.items() if known in OPEN]
        assert set(missing.values()) <= {*OPEN, "cancelled"}
        assert 0 < len(of_kills) <= run.ended["killed -9"] * AT_ONCE * openings
        assert len(missing) - len(of_kills) <= run.ended["left"] * AT_ONCE * openings
        assert left.journal.verify().agrees
    assert run.ended["killed -9"] >= ends // 3


@pytest.mark.contract("JRN-09", "JRN-03")
@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_workers_killed_while_they_make_a_journal_leave_it_to_the_others(
    new_site: NewSite, forker: Forker, accepted: int
) -> None:
    """Six open an empty one together, and some are killed as soon as so many of them have admitted something."""
    for _ in range(5):
        fleet = Fleet(forker, new_site())
        workers = [fleet.start() for _ in range(6)]
        admitting = [worker.tell("admit", event=message(f"e{place}", "hold")) for place, worker in enumerate(workers)]
        for worker, number in zip(workers[:accepted], admitting, strict=False):
            worker.answer(number)
        for worker in workers[1:5]:
            worker.kill()
        for place in (0, 5):
            if place >= accepted:
                assert "accepted" == workers[place].answer(admitting[place])["status"]
        fleet.start("late").accept("late")
        with fleet.look() as left:
            assert {"e0", "e5", "late", *(f"e{place}" for place in range(accepted))} <= set(left.operations())
            assert left.journal.verify().agrees
        fleet.end()
