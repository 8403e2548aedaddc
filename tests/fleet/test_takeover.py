"""Who runs a route next, over several processes: when its holder is at work for long, dies, or is started again."""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING

import pytest

from tests.fleet.conftest import PATIENCE, message

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet, Worker

TTL = "5m"
"""Longer than any test has patience: what is seen to happen has not waited for it."""


@pytest.mark.slow
@pytest.mark.contract("RUN-03", "RUN-06", "RUN-07")
def test_a_turn_ten_times_as_long_as_its_lease_keeps_the_route(fleet: Fleet) -> None:
    """What waits behind it in its own and in another process runs after it; nothing runs twice."""
    first, second = fleet.start("first", lease_ttl="1s"), fleet.start("second", lease_ttl="1s")
    operations = [first.hold("m1", "take 10"), first.accept("m2"), second.accept("m3")]
    first.hear("sent", "m2")
    for worker in (first, second):
        worker.ask("drain")

    expected = [(word, event_id) for event_id in ("m1", "m2", "m3") for word in ("began", "sent")]
    assert expected == [(word, event_id) for word, event_id, _ in fleet.order]
    types = fleet.types()
    assert "lock.expired" not in types
    assert "operation.late_refused" not in types
    assert 0 == first.ask("counters")["lease_losses"]
    assert 3 == len(set(operations)) == types.count("operation.settled")


@pytest.mark.contract("RUN-03", "RUN-08", "RUN-09", "LCK-08")
def test_a_worker_that_is_killed_and_started_again_goes_on_at_once(fleet: Fleet) -> None:
    """A new message on the same chat runs what waited before it, and then itself, long before the ttl has passed."""
    killed = fleet.start("killed", lease_ttl=TTL)
    stuck = killed.hold("m1")
    killed.accept("m2")
    killed.kill()
    again = fleet.start("again", lease_ttl=TTL)
    again.accept("m3")
    again.hear("sent", "m3")
    again.ask("drain")

    assert [("m2", "again"), ("m3", "again")] == fleet.sent
    with fleet.look() as left:
        assert [stuck] == list(left.unresolved)
    assert "operation.settled" not in fleet.types(stuck)


@pytest.mark.contract("RUN-03")
@pytest.mark.parametrize("processes", [1, 2])
def test_one_person_in_two_threads_has_two_routes(fleet: Fleet, processes: int) -> None:
    """Both are at work at once, in one process or in two, and what comes later to each stays behind its own."""
    workers = [fleet.start() for _ in range(processes)]
    first, second = workers[0], workers[-1]
    first.hold("a1", thread="a")
    second.hold("b1", thread="b")
    second.accept("a2", thread="a")
    first.accept("b2", thread="b")
    assert [("began", "a1"), ("began", "b1")] == [(word, event_id) for word, event_id, _ in fleet.order]
    second.go("b1")
    for worker in workers:
        worker.tell("drain")
    second.hear("sent", "b1")
    if processes == 1:
        second.hear("sent", "b2")
    assert not first.said("sent", "a1")
    first.go("a1")
    for worker in workers:
        worker.ask("drain")

    sent = [event_id for event_id, _ in fleet.sent]
    assert ["a1", "a2"] == [event_id for event_id in sent if event_id.startswith("a")]
    assert ["b1", "b2"] == [event_id for event_id in sent if event_id.startswith("b")]


@pytest.mark.contract("RUN-09", "RUN-03", "ADM-05", "LCK-08")
def test_a_waiting_worker_takes_the_route_over_as_soon_as_its_holder_dies(fleet: Fleet) -> None:
    """One dies after the other; each time one of those that wait goes on with the route's head, whoever admitted it."""
    workers = {name: fleet.start(name, lease_ttl=TTL) for name in ("one", "two", "three")}
    stuck = [workers["one"].hold("m1")]
    stuck.append(workers["two"].accept("m2", "hold"))
    workers["three"].accept("m3", "hold")
    workers["one"].kill()
    taker = await_beginning("m2", workers["two"], workers["three"])
    last = next(worker for name, worker in workers.items() if name not in ("one", taker.name))
    last.accept("m4")
    taker.kill()
    last.hear("began", "m3")
    last.go("m3")
    last.hear("sent", "m4")
    last.ask("drain")

    assert [("m3", last.name), ("m4", last.name)] == fleet.sent
    assert ["m1", "m2", "m3", "m4"] == [event_id for word, event_id, _ in fleet.order if word == "began"]
    with fleet.look() as left:
        assert stuck == list(left.unresolved)
    assert 2 == fleet.types().count("lock.expired")


def await_beginning(event_id: str, *workers: Worker) -> Worker:
    """Wait until one of the workers is at work on an event, and return it."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.channel, selectors.EVENT_READ, worker)
        while True:
            for worker in workers:
                if worker.said("began", event_id):
                    return worker
            heard = selector.select(PATIENCE)
            assert heard, f"nobody begins {event_id}"
            for key, _ in heard:
                key.data.read()


@pytest.mark.contract("RUN-07")
def test_agent_and_binding_are_resolved_by_whoever_runs_an_entry(fleet: Fleet) -> None:
    """Another process goes on with its own agent, for each entry anew, in the session of the route."""
    first, second = fleet.start("first", lease_ttl=TTL), fleet.start("second", lease_ttl=TTL)
    first.accept("m1")
    first.hear("sent", "m1")
    first.ask("drain")
    first.hold("m2")
    first.accept("m3")
    second.accept("m4")
    first.kill()
    second.hear("sent", "m4")

    assert ["m3", "m4"] == [words[1] for words in second.reports if words[0] == "resolved"][-2:]
    texts = fleet.texts
    assert ["first", "second", "second"] == [text.split()[0] for text in texts]
    assert 1 == len({text.split(" in ")[1] for text in texts})


@pytest.mark.contract("RUN-08")
def test_what_waited_too_long_is_stepped_over_by_another_process(fleet: Fleet) -> None:
    """It stays accepted and is listed, and runs when its event comes again, to whichever worker."""
    killed = fleet.start("killed")
    killed.hold("m1")
    old = killed.accept("m2")
    killed.kill()
    second = fleet.start("second", max_wait="1ms")
    second.accept("m3")
    second.hear("sent", "m3")
    second.ask("drain")
    with fleet.look() as left:
        assert ["executing", "accepted"] == [row.state for row in left.unresolved.values()]
        assert left.unresolved[old].holder is None
    third = fleet.start("third")
    again = third.ask("admit", event=message("m2"))
    third.hear("sent", "m2")

    assert (old, True) == (again["operation_id"], again["duplicate"])
    assert [("m3", "second"), ("m2", "third")] == fleet.sent
    assert ["operation.admitted", "entry.stepped_over", "entry.put_back"] == [
        each for each in fleet.types(old) if each in ("operation.admitted", "entry.stepped_over", "entry.put_back")
    ]


@pytest.mark.contract("RUN-03", "LIM-01")
def test_each_process_runs_as_many_turns_as_it_may(fleet: Fleet) -> None:
    """`max_active_sessions` counts the turns of a process, not of the journal."""
    workers = [fleet.start(max_active_sessions=2) for _ in range(2)]
    for place, worker in enumerate(workers):
        for number in range(3):
            worker.accept(f"m{place}{number}", "hold", conversation=f"c{place}{number}")
    for place, worker in enumerate(workers):
        for number in range(2):
            worker.hear("began", f"m{place}{number}")
    assert [2, 2] == [worker.ask("counters")["active"] for worker in workers]
    assert 4 == len(fleet.order)
    for place, worker in enumerate(workers):
        worker.go(f"m{place}1")
        worker.hear("began", f"m{place}2")
        assert [("began", f"m{place}2")] == [(word, event_id) for word, event_id, name in fleet.order[-1:] if name == worker.name]
        for number in (0, 2):
            worker.go(f"m{place}{number}")
    for worker in workers:
        worker.ask("drain")

    assert 6 == len(fleet.sent)


@pytest.mark.contract("JRN-09", "LCK-08", "RUN-03")
def test_of_two_openings_in_one_process_one_ends_and_keeps_nothing_of_the_other(fleet: Fleet) -> None:
    """The sign of life of the other stands, so its route is not taken; when the process is killed both are gone."""
    both, other = fleet.start("both", openings=2, lease_ttl=TTL), fleet.start("other", lease_ttl=TTL)
    held = both.hold("m1", opening=1)
    both.hold("n1", opening=0, conversation="c2")
    waiting = other.accept("m2")
    other.accept("n2", conversation="c2")
    both.ask("close", opening=0)
    other.hear("sent", "n2")
    with fleet.look() as left:
        rows = [left.unresolved[each] for each in (held, waiting)]
        assert [("executing", True), ("accepted", True)] == [(row.state, row.holder_alive) for row in rows]
    assert not other.said("began", "m2")
    both.accept("m3", opening=1)
    both.kill()
    other.hear("sent", "m3")

    assert [("n2", "other"), ("m2", "other"), ("m3", "other")] == fleet.sent
