"""A fleet on four hosts whose clocks differ, whose workers are killed and whose server is started anew."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from counterfoil.demo import traffic
from tests.fleet.test_traffic import AT_ONCE, OPEN
from tests.fleet.traffic import Traffic, check

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet
    from tests.postgres_server import Server

HOSTS = (-60, 0, 7, 60)
"""How many seconds their clocks are off by."""
RESTARTS = 3


@pytest.mark.postgres_only("the processes of a file are on one machine")
@pytest.mark.slow
@pytest.mark.contract("RUN-02", "RUN-03", "RUN-05", "ADM-02", "ADM-07", "RPL-03", "JRN-03", "LCK-09")
def test_a_fleet_on_four_hosts_answers_everything_once_and_in_order(fleet: Fleet, own_postgres: Server) -> None:
    events = list(traffic(messages=300, people=20, seed=9))
    run = Traffic(fleet, events, workers=8, seed=9, hosts=HOSTS, pace=0.005, max_active_sessions=AT_ONCE)
    over = threading.Event()
    restarted = 0

    def restart() -> None:
        nonlocal restarted
        while restarted < RESTARTS and not over.wait(1):
            own_postgres.restart(immediate=True)
            restarted += 1

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        run.run(12)
    finally:
        over.set()
        restarting.join()

    assert RESTARTS == restarted
    with fleet.look() as left:
        missing = check(fleet, left, run.acknowledged)
        assert {event["event_id"] for event in events} == run.acknowledged
        assert set(missing.values()) <= {*OPEN, "cancelled"}
        assert len(missing) <= (12 + 8 * RESTARTS) * AT_ONCE
        assert left.journal.verify().agrees
