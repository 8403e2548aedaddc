"""Several processes on one journal, forks among them, and kills at every point around a commit."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from subprocess import Popen
from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.commands.turn import Claim
from counterfoil.infrastructure.core import Core
from tests.copies import verify_at
from tests.rows import rows, sessions
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from tests.engines import Engine
    from tests.journal.conftest import Host, Processes


def read_line(process: Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def release(started: list[Popen[str]]) -> None:
    """Let processes that are ready go on, all at once."""
    for process in started:
        assert "ready" == read_line(process)
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


@pytest.mark.contract("JRN-09")
def test_many_processes_make_a_journal_at_once(host: Host, processes: Processes) -> None:
    """All of them succeed, and each has an opening of its own."""
    body = """
    say("ready")
    sys.stdin.readline()
    core = Core(sys.argv[1], limits=LIMITS)
    say(run(core, message(sys.argv[2])).admission.status, core.engine.opening_id)
    core.close()
    """
    started = [processes.start(body, host.url, number) for number in range(6)]
    release(started)
    said = sorted(processes.finish(process).strip() for process in started)

    assert [f"accepted {number}" for number in range(1, 7)] == said
    assert verify_at(host.url).agrees
    core = host.open()
    assert 6 == host.types(core).count("operation.admitted")


@pytest.mark.contract("JRN-09", "JRN-13")
def test_two_processes_append_at_once(host: Host, processes: Processes) -> None:
    """To the same routes and to others; the chain is one, and every answer is there."""
    body = """
    core = Core(sys.argv[1], limits=LIMITS)
    say("ready")
    sys.stdin.readline()
    mine = sys.argv[2]
    positions = []
    for number in range(40):
        futures = [core.committer.submit(message(f"{mine}-{number}-{k}", f"{k} {number % 4} {mine * k}")) for k in range(5)]
        positions += [future.result(30).admission.position for future in futures]
    say(*positions)
    core.close()
    """
    started = [processes.start(body, host.url, name) for name in ("a", "b")]
    release(started)
    answers = [int(word) for process in started for word in processes.finish(process).split()]

    assert 400 == len(set(answers))
    verification = verify_at(host.url)
    assert verification.agrees, verification
    core = host.open(readonly=True)
    admitted = core.read(lambda s: [e.position for e in s.events_after(0, 10_000) if e.type == "operation.admitted"])
    assert sorted(answers) == admitted


@pytest.mark.contract("JRN-02", "JRN-09", "ADM-02")
def test_of_equal_commands_in_many_processes_one_has_an_effect(host: Host, processes: Processes) -> None:
    body = """
    core = Core(sys.argv[1], limits=LIMITS)
    say("ready")
    sys.stdin.readline()
    answer = run(core, message("same")).admission
    say(answer.operation_id, answer.duplicate)
    core.close()
    """
    started = [processes.start(body, host.url) for _ in range(4)]
    release(started)
    said = [processes.finish(process).split() for process in started]

    assert 1 == len({operation for operation, _ in said})
    assert ["False", "True", "True", "True"] == sorted(duplicate for _, duplicate in said)
    core = host.open()
    assert 1 == host.types(core).count("operation.admitted")


@pytest.mark.sqlite_only("on PostgreSQL no process is inside a commit of the server's, and a frozen one stops nobody")
@pytest.mark.contract("LCK-16")
def test_a_process_that_is_frozen_in_a_commit_makes_the_others_unavailable(host: Host, processes: Processes) -> None:
    """After `busy_wait`; when it is killed the next command goes through, and nothing of the frozen one is there."""
    frozen = processes.start(
        """
        core = Core(sys.argv[1], limits=LIMITS)
        run(core, message("e1"))
        class Freeze:
            def run(self, unit):
                message("frozen").run(unit)
                say("frozen")
                os.kill(os.getpid(), signal.SIGSTOP)
                signal.pause()  # the signal may reach another thread first
        run(core, Freeze())
        """,
        host.url,
    )
    assert "frozen" == read_line(frozen)
    core = host.open(limits=Limits(busy_wait="50ms"))
    with pytest.raises(JournalUnavailable):
        host.run(core, host.message("e2"))
    assert 3 == host.position(core)
    frozen.kill()
    frozen.wait()
    patient = host.open()
    assert 3 < (host.admit(patient, "e2").admission.position or 0)
    assert not host.admit(patient, "frozen").admission.duplicate
    assert verify_at(host.url).agrees


# What may be opened.


@pytest.mark.sqlite_only("it is about the files of SQLite")
def test_no_file_of_sqlite_is_opened_but_by_sqlite(host: Host, processes: Processes) -> None:
    """
    An audit hook over a real run: creating, admitting, turns, a checkpoint, reading, verifying, closing.

    If a descriptor of ours were closed on the journal, SQLite's locks of the whole process would be gone, and the next process
    to leave would delete the WAL under it.
    """
    said = processes.run(
        """
        opened, connected = [], []
        def hook(event, arguments):
            if event == "open":
                opened.append(os.fspath(arguments[0]) if not isinstance(arguments[0], int) else "")
            elif event == "sqlite3.connect":
                connected.append(arguments[0])
        sys.addaudithook(hook)
        from counterfoil.infrastructure.sqlite import engine
        from counterfoil.infrastructure.sqlite.verifying import verify_file
        from counterfoil.infrastructure.verification import verify
        engine.CHECKPOINT_FRAMES = 5
        path = Path(sys.argv[1])
        for _ in range(2):
            core = Core(path, limits=LIMITS)
            for number in range(5):
                answer = run(core, message(f"e{number}{os.urandom(4)}"))
                claimed = run(core, Claim(answer.route, answer.position))
                run(core, Settle(claimed.operation.operation_id, claimed.fence, Answer("succeeded", reply="hi")))
            assert core.read(verify).agrees
            core.close()
        reader = Core(path, readonly=True)
        reader.read(lambda store: store.head())
        reader.close()
        verify_file(path)
        names = {os.path.basename(each) for each in map(os.fsdecode, opened) if os.path.basename(each).startswith(path.name)}
        say(*sorted(names))
        say(len(connected) > 0)
        """,
        host.url,
    )
    names, connected = said.splitlines()
    assert "True" == connected
    assert {f"{host.path.name}-{name}" for name in ("append", "live", "epoch")} <= set(names.split())
    assert not {host.path.name, f"{host.path.name}-wal", f"{host.path.name}-shm"} & set(names.split())


@pytest.mark.contract("JRN-03", "JRN-09")
def test_nothing_is_lost_when_another_process_comes_and_goes(host: Host, processes: Processes) -> None:
    """The run in which a stray `open` of the journal lost committed rows: one stays, one opens, writes and leaves."""
    core = host.open()
    host.turn(core, "e1")
    processes.run("core = Core(sys.argv[1], limits=LIMITS); run(core, message('e2')); core.close()", host.url)
    host.turn(core, "e3", "c3")
    assert [(3,)] == rows(host.url, "SELECT count(*) FROM cf_event WHERE type = 'operation.admitted'")
    assert 3 == host.types(core).count("operation.admitted")


# Forks.


@pytest.mark.contract("JRN-15")
def test_a_forked_child_is_answered_at_once_in_every_call(host: Host, processes: Processes) -> None:
    """While the parent's writer holds every lock that there is; the parent goes on as before."""
    said = processes.run(
        """
        import asyncio, threading
        core = Core(sys.argv[1], limits=LIMITS)
        run(core, message("e1"))
        begun, go = threading.Event(), threading.Event()
        class Hold:
            def run(self, unit):
                begun.set()
                go.wait(30)
        asyncio.run(core.read_async(lambda store: store.head()))
        held = core.committer.submit(Hold())
        begun.wait(30)
        async def submit():
            core.committer.submit_async(message("e2"))
        calls = {
            "submit": lambda: core.committer.submit(message("e2")),
            "submit_async": lambda: asyncio.run(submit()),
            "read": lambda: core.read(lambda store: store.head()),
            "read_async": lambda: asyncio.run(core.read_async(lambda store: store.head())),
            "close": core.close,
            "is_live": lambda: core.engine.is_live(1),
        }
        child = os.fork()
        if not child:
            signal.alarm(20)
            for name, call in calls.items():
                try:
                    call()
                except ForkedError:
                    say(name, "ForkedError")
                else:
                    say(name, "answered")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        say("child", status)
        go.set()
        held.result(30)
        say("parent", run(core, message("e2")).admission.status)
        core.close()
        """,
        host.url,
    )
    calls = ("submit", "submit_async", "read", "read_async", "close", "is_live")
    assert [f"{name} ForkedError" for name in calls] + ["child 0", "parent accepted"] == said.splitlines()
    assert verify_at(host.url).agrees


@pytest.mark.contract("JRN-15", "LCK-08")
def test_a_forked_child_keeps_none_of_the_parent_s_leases_alive(host: Host, processes: Processes, engine: Engine) -> None:
    """
    The parent is killed, its child lives on; the route is free at once, or as soon as the server has seen the end of the parent's
    connections. The child opens the journal anew.
    """
    named = f"{host.url}&application_name=parent" if engine == "postgres" else host.url
    parent = processes.start(
        """
        core = Core(sys.argv[1], limits=LIMITS)
        first = run(core, message("e1"))
        assert run(core, Claim(first.route, first.position)).found == "claimed"
        second = run(core, message("e2"))
        child = os.fork()
        if not child:
            again = Core(sys.argv[2], limits=LIMITS)
            run(again, message("e3", "of the child"))
            say(os.getpid(), second.route, second.position, core.engine.opening_id)
            sys.stdin.read()
            os._exit(0)
        signal.pause()
        """,
        named,
        host.url,
    )
    child, route, position, opening = read_line(parent).split()
    try:
        core = host.open()
        assert core.engine.is_live(int(opening))
        assert "held" == host.run(core, Claim(route, int(position))).found
        parent.kill()
        parent.wait()
        os.kill(int(child), 0)
        until = time.monotonic() + 30
        while engine == "postgres" and sessions(host.url, "parent"):
            assert time.monotonic() < until
            time.sleep(0.005)
        assert "claimed" == host.run(core, Claim(route, int(position))).found
    finally:
        os.kill(int(child), signal.SIGKILL)
    assert verify_at(host.url).agrees


# Kills.

POINTS = {
    "before BEGIN": 0,
    "after BEGIN": 0,
    "after the events are written": 0,
    "after everything is written": 0,
    "before COMMIT": 0,
    "after COMMIT": 1,
}


@pytest.mark.sqlite_only(
    "the points lie between statements of SQLite; tests/runtime/test_crash.py has those that all engines have"
)
@pytest.mark.contract("JRN-01", "JRN-03")
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_around_a_commit_leaves_all_or_nothing(host: Host, processes: Processes, point: str) -> None:
    """A turn of several events and rows; what was answered before is there, and whoever opens next goes on."""
    body = """
    class Killing:
        def __init__(self, connection, point):
            self.connection, self.point = connection, point
        def __getattr__(self, name):
            return getattr(self.connection, name)
        def at(self, point):
            if self.point == point:
                say("killed")
                os.kill(os.getpid(), signal.SIGKILL)
        def execute(self, sql, *values):
            begin = sql.split()[0]
            if begin in ("BEGIN", "COMMIT"):
                self.at("before " + begin)
            done = self.connection.execute(sql, *values)
            if begin in ("BEGIN", "COMMIT"):
                self.at("after " + begin)
            return done
        def executemany(self, sql, rows):
            done = self.connection.executemany(sql, rows)
            if sql.startswith("INSERT INTO cf_event "):
                self.at("after the events are written")
            if sql.startswith("UPDATE cf_projection"):
                self.at("after everything is written")
            return done
    core = Core(sys.argv[1], limits=LIMITS)
    first = run(core, message("e1"))
    claimed = run(core, Claim(first.route, first.position))
    killing = Killing(core.engine._writer, sys.argv[2])
    core.engine._writer = core.engine._store.connection = killing
    run(core, Settle(claimed.operation.operation_id, claimed.fence, Answer("succeeded", reply="hi")))
    """
    killed = processes.start(body, host.url, point)
    assert "killed" == read_line(killed)
    assert -signal.SIGKILL == killed.wait(30)

    assert verify_at(host.url).agrees
    core = host.open()
    types = host.types(core)
    assert (1, 1) == (types.count("operation.admitted"), types.count("operation.claimed"))
    assert [POINTS[point]] * 2 == [types.count(each) for each in ("operation.settled", "reply.staged")]
    assert host.admit(core, "e1").admission.duplicate
    host.turn(core, "e2", "c2")
    assert verify_at(host.url).agrees


@pytest.mark.contract("JRN-03")
def test_kills_at_any_moment_lose_nothing_that_was_answered(host: Host, processes: Processes) -> None:
    """Whatever was answered before the kill is there after it, each time once."""
    body = """
    core = Core(sys.argv[1], limits=LIMITS)
    number = 0
    while True:
        futures = [core.committer.submit(message(f"{sys.argv[2]}-{number}-{k}", f"c{number}-{k}")) for k in range(8)]
        number += 1
        for future in futures:
            say(future.result(30).admission.operation_id)
    """
    answered: list[str] = []
    for run in range(5):
        process = processes.start(body, host.url, run)
        answered += [read_line(process) for _ in range(20 + 37 * run)]
        process.kill()
        out, _ = process.communicate(timeout=60)
        answered += [line for line in out.splitlines() if len(line) == 35]
    assert verify_at(host.url).agrees
    with closing(Core(host.url, readonly=True)) as core:
        admitted = core.read(lambda s: [e.originator_id for e in s.events_after(0, 100_000) if e.type == "operation.admitted"])
    assert len(set(admitted)) == len(admitted)
    assert set(answered) <= set(admitted)


@pytest.mark.sqlite_only("a pragma of the connection tells how it commits")
def test_every_commit_is_synced(host: Host) -> None:
    """FULL, in WAL mode: COMMIT returns when the disk has it."""
    core = host.open()
    writer = sqlite_engine(core)._writer
    assert (2,) == writer.execute("PRAGMA synchronous").fetchone()
    assert ("wal",) == writer.execute("PRAGMA journal_mode").fetchone()
