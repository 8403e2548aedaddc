"""Traffic through a fleet whose workers are ended and started again at random, and what must be true of what they leave."""

from __future__ import annotations

import selectors
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from tests.fleet.conftest import PATIENCE

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet, Worker
    from tests.runtime.conftest import Aftermath

MOST_COPIES = 3
"""Workers at most to which the platform delivers an event."""
OVERLAP = 5
"""Acknowledged events that are delivered again to a worker that starts again, with all that were not."""
CLEAN = 0.25
"""Of the workers that are ended, those that may stop; the others are killed."""


class Traffic:
    """One run: each event is delivered to some of the workers, and each worker is one of a number of places."""

    def __init__(
        self,
        fleet: Fleet,
        events: list[dict[str, str]],
        *,
        workers: int,
        seed: int,
        hosts: tuple[int | None, ...] = (None,),
        **job: Any,
    ) -> None:
        """`hosts` are the machines that the workers are on, by how their clocks are set; `job` is what `Fleet.start` takes."""
        self.fleet = fleet
        self.acknowledged: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._events = events
        self._chance = Random(seed)
        self._job = job
        self._hosts = hosts
        self._turns = 0
        """Beginnings and answers of turns that were heard of."""
        self._shares: list[list[dict[str, str]]] = [[] for _ in range(workers)]
        for event in events:
            for place in self._chance.sample(range(workers), self._chance.randint(1, min(workers, MOST_COPIES))):
                self._shares[place].append(event)
        self._selector = selectors.DefaultSelector()
        self._feeding: list[int] = [0] * workers
        self.workers = [self._start(place) for place in range(workers)]

    def _start(self, place: int) -> Worker:
        worker = self.fleet.start(**self._job, set_wrongly=self._hosts[place % len(self._hosts)])
        worker.tell("resume")
        share = self._shares[place]
        first = next((n for n, event in enumerate(share) if event["event_id"] not in self.acknowledged), len(share))
        self._feeding[place] = worker.tell("feed", events=share[max(0, first - OVERLAP) :])
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def run(self, ends: int) -> None:
        """Feed everything, end some workers at random moments and start others in their places, and let it all come to rest."""
        moments = sorted(self._chance.sample(range(len(self._events) * 18 // 10), ends))
        while moments or not self._all_fed():
            heard = self._selector.select(PATIENCE)
            assert heard, "nothing happens any more"
            for key, _ in heard:
                self._count(key.data.read())
            if moments and self._turns >= moments[0]:
                moments.pop(0)
                self._replace(self._chance.randrange(len(self.workers)))
        self.workers[0].ask("resume")
        for draining in [(worker, worker.tell("drain")) for worker in self.workers]:
            draining[0].answer(draining[1])
        self._selector.close()

    def _all_fed(self) -> bool:
        return all(worker.answered(number) for worker, number in zip(self.workers, self._feeding, strict=True))

    def _replace(self, place: int) -> None:
        worker = self.workers[place]
        self._selector.unregister(worker.channel)
        heard = len(worker.reports)
        if self._chance.random() < CLEAN:
            worker.leave()
            self.ended["left"] += 1
        else:
            self.ended[f"killed {worker.kill()}"] += 1
        self._count(worker.reports[heard:])
        self.workers[place] = self._start(place)

    def _count(self, reports: list[list[str]]) -> None:
        for word, *more in reports:
            self._turns += word in ("began", "sent")
            if word == "accepted":
                self.acknowledged.add(more[0])
            if word == "refused":
                self.refused[more[0]] += 1


def check(fleet: Fleet, left: Aftermath, acknowledged: set[str]) -> dict[str, str]:
    """
    Hold the one file of what the workers did against the journal; returns what is known of the events without an answer.

    On each route the turns came one after the other in the order of the admissions: between the beginning of a turn and its
    answer there is nothing of the same route.
    """
    operations, unresolved, order = left.operations(), left.unresolved, fleet.order
    assert acknowledged <= set(operations)
    for word in ("began", "sent"):
        done = [event_id for what, event_id, _ in order if what == word]
        assert sorted(set(done)) == sorted(done)
        assert set(done) <= set(operations)
    of_route: dict[str, list[tuple[str, str]]] = {}
    for word, event_id, _ in order:
        of_route.setdefault(operations[event_id].route, []).append((word, event_id))
    answered = {event_id for event_id, _ in fleet.sent}
    began = {event_id for word, event_id, _ in order if word == "began"}
    for route, turns in of_route.items():
        admitted = [event_id for event_id, operation in operations.items() if operation.route == route and event_id in began]
        expected = [(word, event_id) for event_id in admitted for word in ("began", "sent")]
        assert turns == [(word, event_id) for word, event_id in expected if word == "began" or event_id in answered]
    missing: dict[str, str] = {}
    for event_id, operation in operations.items():
        row = unresolved.get(operation.operation_id)
        if event_id not in answered:
            if row is None:
                missing[event_id] = operation.phase
            else:
                missing[event_id] = row.state if row.state in ("accepted", "executing") else f"reply {row.reply_state}"
        elif row is not None:
            assert ("succeeded", "pending") == (row.state, row.reply_state)
    return missing
