"""Workers are killed at random moments of a traffic run and started again, and the answers that went out are counted."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import AbstractContextManager
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from counterfoil.demo import traffic
from tests.rows import is_there

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Site
    from tests.runtime.conftest import Aftermath, Workers

    Look: TypeAlias = Callable[[Site], AbstractContextManager[Aftermath]]

OVERLAP = 10
"""Acknowledged events that the platform delivers again after a restart, with all that were not acknowledged."""
LONGEST_LIFE = 30
"""Events that workers acknowledge at most before they are killed."""
A_TURN = 0.02
"""Seconds that a turn takes, or less."""
PATIENCE = 5.0
"""Seconds after which workers that acknowledge nothing are killed all the same: they may have been through."""


def let_work(site: Site, chance: Random) -> None:
    """Let workers acknowledge some events, or none; the moment at which this ends is what is random here."""
    before, until = acknowledged(site), chance.randrange(LONGEST_LIFE)
    end = time.monotonic() + PATIENCE
    while acknowledged(site) - before < until and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(chance.uniform(0, A_TURN))


def acknowledged(site: Site) -> int:
    path = site.folder / "acknowledged"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def undelivered(left: Aftermath, events: list[dict[str, str]]) -> list[dict[str, str]]:
    """What the platform sends to a host that starts again."""
    acknowledged = set(left.acknowledged)
    first = next((number for number, event in enumerate(events) if event["event_id"] not in acknowledged), len(events))
    return events[max(0, first - OVERLAP) :]


@pytest.mark.slow
@pytest.mark.contract("RUN-02", "RUN-03", "RUN-08", "RPL-03", "ADM-05", "JRN-03")
@pytest.mark.parametrize(("kills", "processes", "seed"), [(50, 1, 1), (12, 2, 2)])
def test_random_kills(site: Site, workers: Workers, look: Look, kills: int, processes: int, seed: int) -> None:
    """
    No event is answered twice, and none is silently lost: one without an answer is listed, or never was acknowledged.

    On each route the answers go out in the order of the admissions, also with two processes that both get all events.
    """
    chance = Random(seed)
    events = list(traffic(messages=kills * LONGEST_LIFE, people=20, seed=seed))
    lives: Counter[int] = Counter()
    for _ in range(kills):
        incoming = events
        if is_there(site.url):
            with look(site) as left:
                incoming = undelivered(left, events)
        started = [workers.start(site, events=incoming, kind="traffic") for _ in range(processes)]
        let_work(site, chance)
        for pid in chance.sample(started, len(started)):
            lives[workers.kill(pid)] += 1
    with look(site) as left:
        killed_with = check(left, events)
        assert left.journal.verify().agrees
    assert 0 == workers.run(site, kind="traffic")
    with look(site) as left:
        check(left, events)
        assert "accepted" not in {row.state for row in left.unresolved.values()}
    assert 0 == workers.run(site, events=events, kind="traffic")
    with look(site) as left:
        check(left, events)
        assert [event["event_id"] for event in events] == sorted(left.operations())
        assert len(events) == len(set(left.answers) | unanswered(left))
        assert left.journal.verify().agrees
        reconciles = [(row.operation_id, row.version) for row in left.unresolved.values()]
    assert 0 == workers.run(site, reconciles=reconciles, kind="traffic")

    with look(site) as left:
        assert {} == left.unresolved
        assert sorted(set(left.ran)) == sorted(left.ran)
    assert lives[-signal.SIGKILL] >= kills * processes * 0.8, f"most workers were done before they were killed: {lives}"
    assert killed_with, "no kill came in the middle of a turn"


def unanswered(left: Aftermath) -> set[str]:
    answers, unresolved = set(left.answers), left.unresolved
    return {
        event_id
        for event_id, operation in left.operations().items()
        if event_id not in answers and operation.operation_id in unresolved
    }


def check(left: Aftermath, events: list[dict[str, str]]) -> int:
    """Return how many operations a kill has left executing or with a pending reply."""
    operations, unresolved, answers = left.operations(), left.unresolved, left.answers
    assert sorted(set(answers)) == sorted(answers)
    assert sorted(set(left.ran)) == sorted(left.ran)
    assert set(answers) <= set(left.ran) <= set(operations)
    assert set(left.acknowledged) <= set(operations)
    lost = [
        event_id
        for event_id, operation in operations.items()
        if event_id not in set(answers) and operation.operation_id not in unresolved
    ]
    assert [] == lost
    of_route: dict[str, list[str]] = {}
    route_of: dict[str, str] = {}
    for event_id, operation in operations.items():
        of_route.setdefault(operation.route, []).append(event_id)
        route_of[event_id] = operation.route
    answered = in_order(answers, route_of)
    by_operation = {operation.operation_id: event_id for event_id, operation in operations.items()}
    claimed = in_order([by_operation[operation_id] for _, operation_id in left.claims()], route_of)
    for route, admitted in of_route.items():
        for done in (answered.get(route, []), claimed.get(route, [])):
            present = set(done)
            assert done == [event_id for event_id in admitted if event_id in present]
    return sum(row.state == "executing" or row.reply_state == "pending" for row in unresolved.values())


def in_order(event_ids: list[Any], route_of: dict[str, str]) -> dict[str, list[str]]:
    ordered: dict[str, list[str]] = {}
    for event_id in event_ids:
        ordered.setdefault(route_of[event_id], []).append(event_id)
    return ordered
