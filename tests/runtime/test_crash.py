"""A worker is killed with SIGKILL at every append of a turn, and in the host's own code between them."""

from __future__ import annotations

import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import NewSite, Site
    from tests.runtime.conftest import Aftermath, Workers

    Look: TypeAlias = Callable[[Site], AbstractContextManager[Aftermath]]

KILLED = -signal.SIGKILL
Moment: TypeAlias = Literal["before", "after"]

EVENT = {"connection": "tg", "conversation": "c1", "actor": "ann", "event_id": "m1", "text": "hello"}


class Crash(NamedTuple):
    """A row of the crash table: what a kill leaves, and what each later step makes of it."""

    at: tuple[int, Moment] | str
    """The n-th append and the side of its commit, or a place in the host's code."""
    phase: str | None
    """Of the operation; None where there is none."""
    reply: str = "none"
    acknowledged: bool = True
    """The platform was told that the event was accepted."""
    answers: int = 0
    """Answers that had gone out by the kill."""
    resumed: int = 0
    """Answers after a restart that resumes."""
    redelivered: int = 0
    """Answers after the event came again."""
    reconciled: int = 0
    """Answers after everything listed was reconciled with the acknowledgment."""
    filed: str = "delivered"
    """What the operation is in the end: delivered, or execution_unknown."""


# The crash table of the reference as the contract amends it. The appends of a turn: 1 the admission, 2 the claim with its lease,
# 3 the settlement with its reply, 4 the mark with the release, 5 the end of the opening.
TABLE = [
    Crash("authorize", None, acknowledged=False, redelivered=1, reconciled=1),
    Crash((1, "before"), None, acknowledged=False, redelivered=1, reconciled=1),
    Crash((1, "after"), "accepted", acknowledged=False, resumed=1, redelivered=1, reconciled=1),
    Crash("before_ack", "accepted", acknowledged=False, resumed=1, redelivered=1, reconciled=1),
    Crash("resolve_agent", "accepted", resumed=1, redelivered=1, reconciled=1),
    Crash((2, "before"), "accepted", resumed=1, redelivered=1, reconciled=1),
    Crash((2, "after"), "executing", filed="execution_unknown"),
    Crash("agent", "executing", filed="execution_unknown"),
    Crash("agent_done", "executing", filed="execution_unknown"),
    Crash((3, "before"), "executing", filed="execution_unknown"),
    Crash((3, "after"), "succeeded", "pending", reconciled=1),
    Crash("deliver", "succeeded", "pending", reconciled=1),
    Crash("delivered", "succeeded", "pending", answers=1, resumed=1, redelivered=1, reconciled=2),
    Crash((4, "before"), "succeeded", "pending", answers=1, resumed=1, redelivered=1, reconciled=2),
    Crash((4, "after"), "succeeded", "delivered", answers=1, resumed=1, redelivered=1, reconciled=1),
    Crash((5, "before"), "succeeded", "delivered", answers=1, resumed=1, redelivered=1, reconciled=1),
    Crash((5, "after"), "succeeded", "delivered", answers=1, resumed=1, redelivered=1, reconciled=1),
]


def open_work(left: Aftermath) -> list[tuple[str, int]]:
    return [(row.operation_id, row.version) for row in left.unresolved.values()]


@pytest.mark.contract("RUN-02", "RUN-04", "RUN-08", "RPL-01", "RPL-02", "RPL-03", "ADM-02", "RCN-03", "RCN-04", "JRN-03")
@pytest.mark.parametrize("crash", TABLE, ids=lambda crash: str(crash.at))
def test_the_crash_table(site: Site, workers: Workers, look: Look, crash: Crash) -> None:
    """Nothing is answered twice but by an operator who took the risk, and nothing is lost without being listed."""
    where = {"die_in": crash.at} if isinstance(crash.at, str) else {"die_at": crash.at}
    assert KILLED == workers.run(site, events=[EVENT], **where)
    with look(site) as left:
        operation = left.operations().get("m1")
        assert (crash.phase, crash.reply) == ((operation.phase, operation.reply) if operation else (None, "none"))
        assert crash.acknowledged is ("m1" in left.acknowledged)
        assert crash.answers == len(left.answers)
        listed = [] if operation is None or operation.resolved else [operation.operation_id]
        assert listed == list(left.unresolved)
        assert [False] * (crash.phase == "executing") == [
            row.holder_alive for row in left.unresolved.values() if row.state == "executing"
        ]
        assert left.journal.verify().agrees
    assert 0 == workers.run(site)
    with look(site) as left:
        assert crash.resumed == len(left.answers)
    assert 0 == workers.run(site, events=[EVENT, EVENT])
    with look(site) as left:
        assert crash.redelivered == len(left.answers)
        reconciles = open_work(left)
        assert (crash.filed == "execution_unknown" or crash.reply == "pending") is bool(reconciles)
    assert 0 == workers.run(site, events=[EVENT], reconciles=reconciles)
    with look(site) as left:
        operation = left.operations()["m1"]
        assert crash.reconciled == len(left.answers)
        assert crash.filed == (operation.phase if operation.phase == "execution_unknown" else operation.reply)
        assert {} == left.unresolved
        assert len(left.ran) <= 1
        assert ["m1", "final", "re: hello"] * bool(left.answers) == (left.notes("answers") or [[]])[0]
        assert left.journal.verify().agrees


def events(*names: str, conversation: str = "c1") -> list[dict[str, str]]:
    return [{**EVENT, "event_id": name, "conversation": conversation, "text": f"text of {name}"} for name in names]


KINDS: dict[str, list[dict[str, str]]] = {
    "plain": [*events("m1", "m2", "m3"), *events("n1", conversation="c2"), *events("m1")],
    "fails": events("m1", "m2"),
    "silent": events("m1", "m2"),
    "unreachable": events("m1", "m2"),
}


@pytest.mark.contract("RUN-02", "RUN-03", "RUN-04", "RUN-08", "RPL-03", "RCN-01", "JRN-03")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_append_of_turns_of_every_kind(new_site: NewSite, workers: Workers, look: Look, kind: str, moment: Moment) -> None:
    """Several messages on a route and beside it, until a run is through without reaching the append it was to die at."""
    incoming = KINDS[kind]
    number = 0
    while True:
        number += 1
        site = new_site()
        status = workers.run(site, events=incoming, kind=kind, die_at=(number, moment))
        assert status in (0, KILLED)
        with look(site) as left:
            check(left, incoming, kind)
        assert 0 == workers.run(site, kind=kind)
        with look(site) as left:
            check(left, incoming, kind)
            assert "accepted" not in {row.state for row in left.unresolved.values()}
        assert 0 == workers.run(site, events=incoming, kind=kind)
        with look(site) as left:
            check(left, incoming, kind)
            assert {event["event_id"] for event in incoming} == set(left.operations())
            reconciles = open_work(left)
        assert 0 == workers.run(site, reconciles=reconciles)
        with look(site) as left:
            assert {} == left.unresolved
            assert left.journal.verify().agrees
            assert sorted(set(left.ran)) == sorted(left.ran)
        if status == 0:
            break

    assert number > len(incoming)


def check(left: Aftermath, incoming: list[dict[str, Any]], kind: str) -> None:
    """Nothing answered twice, none run twice, none lost, and each route in order."""
    operations, unresolved, answers = left.operations(), left.unresolved, left.answers
    assert sorted(set(answers)) == sorted(answers)
    assert sorted(set(left.ran)) == sorted(left.ran)
    assert set(left.acknowledged) <= set(operations)
    assert set(answers) <= set(left.ran) <= set(operations)
    for event_id, operation in operations.items():
        if event_id not in answers:
            silent = kind == "silent" and operation.phase == "succeeded"
            assert operation.operation_id in unresolved or silent, (event_id, operation)
        if operation.phase == "executing":
            assert "executing" == unresolved[operation.operation_id].state
    for route in {operation.route for operation in operations.values()}:
        admitted = [operation.operation_id for operation in operations.values() if operation.route == route]
        claimed = [operation_id for of_route, operation_id in left.claims() if of_route == route]
        assert claimed == [operation_id for operation_id in admitted if operation_id in claimed]
        on_route = [event_id for event_id, operation in operations.items() if operation.route == route]
        assert [event_id for event_id in on_route if event_id in answers] == [e for e in answers if e in on_route]


@pytest.mark.contract("RCN-04", "RPL-02", "RUN-02")
@pytest.mark.parametrize(
    ("at", "reply", "attempts", "answers"),
    [
        ((1, "before"), "delivery_failed", 1, 0),
        ((1, "after"), "pending", 2, 0),
        ("deliver", "pending", 2, 0),
        ("delivered", "pending", 2, 1),
        ((2, "before"), "pending", 2, 1),
        ((2, "after"), "delivered", 2, 1),
    ],
    ids=str,
)
def test_a_kill_in_a_resend(
    site: Site, workers: Workers, look: Look, at: tuple[int, Moment] | str, reply: str, attempts: int, answers: int
) -> None:
    """The resend is claimed before the send, so a second operator knows that the first may have sent."""
    assert 0 == workers.run(site, events=[EVENT], kind="unreachable")
    with look(site) as left:
        reconciles = open_work(left)
        assert ["delivery_failed"] == [row.reply_state for row in left.unresolved.values()]
    where = {"die_in": at} if isinstance(at, str) else {"die_at": at}
    assert KILLED == workers.run(site, reconciles=reconciles, **where)
    assert 0 == workers.run(site, events=[EVENT], reconciles=reconciles if reply == "pending" else [])
    with look(site) as left:
        operation = left.operations()["m1"]
        assert (reply, attempts) == (operation.reply, operation.attempts)
        assert answers == len(left.answers)
        assert (reply == "delivered") is (not left.unresolved)
        assert 1 == len(left.ran)
        assert left.journal.verify().agrees


@pytest.mark.contract("RUN-09", "RUN-03", "LCK-08", "JRN-09")
def test_a_waiting_process_takes_over_from_one_that_was_killed(site: Site, workers: Workers, look: Look) -> None:
    """It had an event behind what the other was at work on; the lease had most of its 30 s to go."""
    holder = workers.start(site, events=events("m1"), kind="hangs")
    until(site.folder / "ran", "m1")
    waiting = workers.start(site, events=events("m2", "m3"))
    until(site.folder / "acknowledged", "m3")
    with look(site) as left:
        assert [True] == [row.holder_alive for row in left.unresolved.values() if row.state == "executing"]
        assert [] == left.answers
    assert KILLED == workers.kill(holder)
    killed_at = time.monotonic()
    assert 0 == workers.wait(waiting)
    assert time.monotonic() - killed_at < 15

    with look(site) as left:
        assert ["m2", "m3"] == left.answers
        assert [left.operations()["m1"].operation_id] == list(left.unresolved)
        assert ["m1", "m2", "m3"] == left.ran


def until(path: Path, line: str) -> None:
    """Wait until another process has written a line."""
    end = time.monotonic() + 20
    while not path.exists() or line not in path.read_text().split("\n")[:-1]:
        assert time.monotonic() < end, f"no {line} in {path.name}"
        time.sleep(0.005)
