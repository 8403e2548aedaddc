"""Transactions of several processes on one journal, of a process that is killed, and of a forked child."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import counterfoil

if TYPE_CHECKING:
    from tests.engines import Engine
    from tests.front.conftest import Processes

COUNTER = """
    import sys, counterfoil
    with counterfoil.open(sys.argv[1]) as journal:
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(200):
            def body(tx):
                value = tx.execute(sys.argv[2]).rows[0][0]
                tx.execute(f"UPDATE counter SET n = {value + 1}")
            journal.transact(body)
"""

KILLED = """
    import os, signal, sys, counterfoil
    person = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
    grant = counterfoil.Grant(identity=person, aliases=["helper"])
    inbound = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")

    def body(tx):
        tx.execute("UPDATE counter SET n = 1")
        assert tx.append(counterfoil.Admit(inbound, grant)).status == "accepted"

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    journal = counterfoil.open(sys.argv[1])
    journal.position()
    core = journal.core
    match sys.argv[2:]:
        case ["before", "sqlite"]:
            core.engine._commit = die
        case ["before", _]:
            core.hosting._commit = die
        case ["after", "sqlite"]:
            core.engine.on_commit.append(die)
        case _:
            core.hosting._committed = die
    journal.transact(body)
"""

FORKED = """
    import os, sys, warnings, counterfoil
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
    journal = counterfoil.open(sys.argv[1])
    journal.transact(lambda tx: tx.execute("SELECT 1"))
    child = os.fork()
    if child == 0:
        try:
            journal.transact(lambda tx: tx.execute("UPDATE counter SET n = 7"))
        except counterfoil.ForkedError:
            os._exit(5)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    journal.close()
"""


@pytest.fixture
def counter(journal_url: str) -> str:
    with counterfoil.open(journal_url) as journal:

        def body(tx: counterfoil.Tx) -> None:
            tx.execute("CREATE TABLE counter (n INTEGER)")
            tx.execute("INSERT INTO counter VALUES (0)")

        journal.transact(body)
    return journal_url


def state_of(url: str) -> tuple[int, int]:
    """The host's number, and the position of the newest event."""
    with counterfoil.open(url) as journal:
        assert journal.verify().agrees
        return journal.transact(lambda tx: tx.execute("SELECT n FROM counter")).rows[0][0], journal.position()


@pytest.mark.contract("JRN-09", "JRN-17")
def test_two_processes_that_count_lose_nothing(counter: str, engine: Engine, processes: Processes) -> None:
    """On PostgreSQL, where the bodies of both run at once, a host locks what it reads in order to write it."""
    read = "SELECT n FROM counter" + " FOR UPDATE" * (engine == "postgres")
    started = [processes.start(COUNTER, counter, read) for _ in range(2)]
    for process in started:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        processes.finish(process)

    assert (400, 0) == state_of(counter)


@pytest.mark.contract("JRN-03", "JRN-17")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_leaves_all_of_it_or_nothing(counter: str, engine: Engine, processes: Processes, moment: str) -> None:
    processes.finish(processes.start(KILLED, counter, moment, engine), status=-signal.SIGKILL)

    begun = 0 if engine == "sqlite" else 2  # on PostgreSQL the opening has begun by itself
    assert state_of(counter) == ((0, begun) if moment == "before" else (1, 3))


@pytest.mark.contract("JRN-15")
def test_a_forked_child_transacts_nothing(counter: str, processes: Processes) -> None:
    assert "5\n" == processes.finish(processes.start(FORKED, counter))

    assert (0, 0) == state_of(counter)
