"""What is promised of locks, seen through the routes that they protect."""

from __future__ import annotations

from pathlib import Path

import pytest

import counterfoil
from counterfoil.domain.operation import Operation
from counterfoil.domain.turn import Answer
from counterfoil.infrastructure.commands.turn import Claim, Settle
from tests.clocks import JournalClock
from tests.sqlite import sqlite_engine

PERSON = counterfoil.Identity(tenant="acme", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])


def admit(journal: counterfoil.Journal, event_id: str, actor: str = "a") -> Operation:
    inbound = counterfoil.Inbound(connection="tg", conversation="c", actor=actor, event_id=event_id, text="hello")
    admission = journal.admit(inbound, GRANT)
    operation = journal.core.read(lambda store: store.operation(str(admission.operation_id)))
    assert operation is not None
    return operation


def claim(journal: counterfoil.Journal, operation: Operation) -> int:
    fence = journal.core.committer.submit(Claim(operation.route, operation.position)).result().fence
    assert fence is not None
    return fence


def turns(journal: counterfoil.Journal, count: int) -> None:
    for number in range(count):
        operation = admit(journal, str(number))
        settle = Settle(operation.operation_id, claim(journal, operation), Answer("succeeded"))
        journal.core.committer.submit(settle).result()


def steps_of_loading(path: Path) -> int:
    """Count the steps of SQLite's machine that a claim takes from the state it finds."""
    with counterfoil.open(path) as journal:
        operation = admit(journal, "last")
        writer = sqlite_engine(journal.core)._writer
        sqlite_engine(journal.core)._caches.forget()
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        writer.set_progress_handler(step, 1)
        claim(journal, operation)
        writer.set_progress_handler(None, 0)
    return count


@pytest.mark.sqlite_only("the cost is counted in steps of SQLite's machine")
@pytest.mark.contract("LCK-14")
def test_loading_a_key_costs_the_same_however_long_its_history(tmp_path: Path) -> None:
    few, many = tmp_path / "few.sqlite", tmp_path / "many.sqlite"
    with counterfoil.open(few) as journal:
        turns(journal, 5)
    with counterfoil.open(many) as journal:
        turns(journal, 400)

    assert steps_of_loading(many) <= steps_of_loading(few) * 1.1


@pytest.mark.contract("LCK-02", "LCK-03")
def test_fences_grow_over_openings_and_a_clock_that_is_set_back(journal_url: str, clock: JournalClock) -> None:
    fences = []
    for number in range(3):
        with counterfoil.open(journal_url, clock=clock) as journal:
            fences.append(claim(journal, admit(journal, str(number), actor=str(number))))
        clock.set_back("1d")

    assert fences == sorted(set(fences))
    assert len({f"{fence:040d}" for fence in fences}) == 3
