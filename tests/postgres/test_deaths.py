"""The end of another opening is told at once, with real processes that are killed, frozen and survived by their children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from counterfoil.infrastructure.postgres import connecting, deaths
from counterfoil.infrastructure.postgres.deaths import WATCHED, watch_death
from counterfoil.infrastructure.postgres.naming import Address, parse
from counterfoil.infrastructure.postgres.sign import Sign, lock_class
from tests.beside import running, said
from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy

BUSY_US = 5_000_000
PATIENCE = 60
PRELUDE = """
import multiprocessing, os, signal, subprocess, sys, threading, time, warnings
from counterfoil.infrastructure.postgres.deaths import watch_death
from counterfoil.infrastructure.postgres.naming import parse
from counterfoil.infrastructure.postgres.sign import Sign
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
address = parse(sys.argv[1])
own = Sign(address, busy_us=5_000_000, on_lost=lambda opening_id: None)
oid = own.begin(int(sys.argv[2])).schema_oid
def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()
"""
LIVES = "say('lives'); sys.stdin.read()"


class Journal:
    """A schema with openings, and those who watch them under the name of the schema."""

    def __init__(self, postgres: Postgres, schema: str) -> None:
        self.postgres = postgres
        self.schema = schema
        postgres.execute(f"CREATE SCHEMA {schema}")
        self.oid = int(postgres.execute("SELECT oid::bigint FROM pg_namespace WHERE nspname = %s", (schema,))[0][0])

    @property
    def address(self) -> Address:
        """As whoever watches names it."""
        return parse(f"{self.postgres.url(self.schema)}&application_name={self.schema}")

    def watch(self, opening_id: int, tell: Callable[[], object]) -> Callable[[], None]:
        return watch_death(self.address, self.oid, opening_id, tell)  # type: ignore[arg-type]

    def watching(self) -> int:
        """How many sessions wait for the end of an opening."""
        found: int = self.postgres.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'", (self.schema,)
        )[0][0]
        return found

    def sessions(self) -> int:
        counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        found: int = self.postgres.execute(counted, (self.schema,))[0][0]
        return found

    def process(self, program: str, opening_id: int = 5) -> AbstractContextManager[subprocess.Popen[str]]:
        """Run a program in which an opening lives; it and its children end with the block."""
        return running(PRELUDE + program, f"{self.postgres.url(self.schema)}&application_name=other", opening_id)

    @contextmanager
    def opening(self, opening_id: int) -> Iterator[None]:
        """An opening of this process."""
        sign = Sign(parse(self.postgres.url(self.schema)), busy_us=BUSY_US, on_lost=lambda opening_id: None)
        sign.begin(opening_id)
        try:
            yield
        finally:
            sign.close()


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    """A schema of this test's own; when it ends nobody watches any more."""
    yield Journal(postgres, schema)
    for thread in watchers():
        thread.join(PATIENCE)
    assert not watchers()
    assert {} == deaths._watches


def watchers() -> set[threading.Thread]:
    """The threads that wait for the end of openings."""
    return {each for each in threading.enumerate() if each.name == "counterfoil-watch"}


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.contract("LCK-08")
def test_killed_process_is_told(journal: Journal) -> None:
    """Nobody has to look: the server tells."""
    told = threading.Event()
    with journal.process(LIVES) as running:
        assert "lives" == said(running)
        journal.watch(5, told.set)
        until(lambda: journal.watching() == 1)
        assert not told.is_set()

        running.kill()

        assert told.wait(PATIENCE)


def test_stopped_process_is_not_told(journal: Journal) -> None:
    """A process that is only frozen may go on; its neighbour is told of meanwhile, and itself when it is killed."""
    frozen, neighbour = threading.Event(), threading.Event()
    with journal.process(LIVES, 5) as running, journal.process(LIVES, 6) as other:
        assert ("lives", "lives") == (said(running), said(other))
        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
        journal.watch(5, frozen.set)
        journal.watch(6, neighbour.set)

        other.kill()

        assert neighbour.wait(PATIENCE)
        assert not frozen.is_set()

        running.kill()

        assert frozen.wait(PATIENCE)


CHILDREN = {
    "fork": "if os.fork() == 0: signal.pause()",
    "multiprocessing spawn": "multiprocessing.get_context('spawn').Process(target=time.sleep, args=(600,)).start()",
    "program": "subprocess.Popen((sys.executable, '-c', 'import signal; signal.pause()'), close_fds=False)",
    "fork that is watching": "watch_death(address, oid, 6, print)\nif os.fork() == 0: signal.pause()",
}


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
@pytest.mark.contract("JRN-15")
def test_child_that_lives_on_keeps_nothing(journal: Journal, child: str) -> None:
    """Neither a fork nor a program that was started holds the sign of life of the dead."""
    told = threading.Event()
    with journal.opening(6), journal.process(f"{child}\n{LIVES}") as running:
        assert "lives" == said(running)
        journal.watch(5, told.set)

        running.kill()
        running.wait()

        assert told.wait(PATIENCE)

        os.killpg(running.pid, 0)  # the child is there still


WATCHES = """
from counterfoil.infrastructure.postgres import connecting
connecting._CHECK_CLIENT_MS = 100
watch_death(parse(sys.argv[1].replace("=other", "=watching")), oid, 6, print)
say("lives")
sys.stdin.read()
"""


def test_process_that_watched_leaves_nobody_waiting(journal: Journal) -> None:
    """The server notices that it is gone, although it sends it nothing."""
    with journal.opening(6):
        with journal.process(WATCHES) as running:
            assert "lives" == said(running)
            waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'watching' AND wait_event_type = 'Lock'"
            until(lambda: len(journal.postgres.execute(waiting)) == 1)

            running.kill()

            until(lambda: not journal.postgres.execute(waiting))


def test_opening_of_the_own_process_is_told(journal: Journal) -> None:
    """It ends when its journal is closed; the process goes on."""
    told = threading.Event()
    with journal.opening(1):
        journal.watch(1, told.set)
        until(lambda: journal.watching() == 1)

    assert told.wait(PATIENCE)
    until(lambda: not journal.sessions())


@pytest.mark.parametrize("began", [True, False])
def test_what_has_ended_is_told_on_another_thread(journal: Journal, began: bool) -> None:
    """Whoever watches too late is told all the same, and never from within the call, where it may hold a lock."""
    if began:
        with journal.opening(5):
            pass
    told = threading.Event()
    threads: list[threading.Thread] = []

    def tell() -> None:
        threads.append(threading.current_thread())
        told.set()

    journal.watch(5, tell)

    assert told.wait(PATIENCE)
    assert threading.current_thread() not in threads


def test_hundred_watches_are_one_connection(journal: Journal) -> None:
    """Each is told once, and those that were taken back not at all."""
    told: list[int] = []
    last = threading.Event()
    with journal.opening(5):
        cancels = [journal.watch(5, lambda n=n: told.append(n)) for n in range(100)]  # type: ignore[misc]
        (thread,) = watchers()
        kept = journal.watch(5, lambda: told.append(-1))
        for cancel in cancels:
            cancel()
        for n in range(100, 200):
            journal.watch(5, lambda n=n: told.append(n))  # type: ignore[misc]
        journal.watch(5, last.set)
        until(lambda: journal.watching() == 1)

        assert ({thread}, 1) == (watchers(), journal.sessions())
        kept()

    assert last.wait(PATIENCE)
    thread.join(PATIENCE)

    assert list(range(100, 200)) == told
    assert not thread.is_alive()


def test_connection_is_given_back_when_nobody_watches(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the opening lives on, and although the server does not look whether anybody is there; the next watch has another."""
    monkeypatch.setattr(connecting, "_CHECK_CLIENT_MS", 0)
    told: list[str] = []
    done = threading.Event()
    with journal.opening(5):
        for _ in range(3):
            cancel = journal.watch(5, lambda: told.append("told"))
            until(lambda: journal.watching() == 1)
            cancel()
            cancel()
            until(lambda: not journal.sessions() and not watchers())

        journal.watch(5, done.set)

    assert done.wait(PATIENCE)
    assert [] == told


def test_watch_that_is_taken_back_at_once(journal: Journal) -> None:
    """Before there is a connection; and another watch of the same opening stands."""
    told: list[str] = []
    done = threading.Event()
    with journal.opening(5):
        journal.watch(5, lambda: told.append("told"))()
        journal.watch(5, done.set)
        until(lambda: journal.watching() == 1 == journal.sessions())

    assert done.wait(PATIENCE)
    assert [] == told


def test_watches_of_one_function_are_taken_back_alone(journal: Journal) -> None:
    told: list[str] = []
    done = threading.Event()

    def tell() -> None:
        told.append("told")

    with journal.opening(5):
        cancel = journal.watch(5, tell)
        journal.watch(5, tell)
        cancel()
        cancel()
        journal.watch(5, done.set)

    assert done.wait(PATIENCE)
    assert ["told"] == told


def test_what_is_told_may_take_back_what_is_not_yet(journal: Journal) -> None:
    """Whoever is told first can spare the rest."""
    told: list[str] = []
    done = threading.Event()
    later: list[Callable[[], None]] = []
    with journal.opening(5):
        journal.watch(5, lambda: later[0]())
        later.append(journal.watch(5, lambda: told.append("told")))
        journal.watch(5, done.set)

    assert done.wait(PATIENCE)
    assert [] == told


def test_one_that_raises_costs_its_neighbours_nothing(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """They are told, and the log names the class and no more."""
    done = threading.Event()

    def fail() -> None:
        raise ValueError("s3cret")

    with journal.opening(5):
        journal.watch(5, fail)
        journal.watch(5, done.set)

    assert done.wait(PATIENCE)
    assert ["telling of the end of an opening raised ValueError"] == caplog.messages
    assert "s3cret" not in caplog.text


def test_few_openings_are_watched_at_once(journal: Journal) -> None:
    """Connections are dear: beyond so many whoever waits looks by itself, until one is free again."""
    told: list[int] = []
    with ExitStack() as openings:
        for number in range(1, WATCHED + 3):
            openings.enter_context(journal.opening(number))
        cancels = [journal.watch(n, lambda n=n: told.append(n)) for n in range(1, WATCHED + 2)]  # type: ignore[misc]
        until(lambda: journal.watching() == WATCHED)
        cancels[-1]()

        assert (WATCHED, WATCHED) == (len(watchers()), journal.sessions())

        cancels[0]()
        journal.watch(WATCHED + 2, lambda: told.append(WATCHED + 2))
        until(lambda: journal.watching() == WATCHED == journal.sessions())
    until(lambda: len(told) == WATCHED)

    assert [*range(2, WATCHED + 1), WATCHED + 2] == sorted(told)


def test_what_cannot_be_watched_is_logged_and_not_told(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is declared dead because a server cannot be reached."""
    told = threading.Event()
    cancel = watch_death(parse("postgresql://127.0.0.1:1/chat"), journal.oid, 5, told.set)
    for thread in watchers():
        thread.join(PATIENCE)
    cancel()

    assert ["an opening cannot be watched: JournalUnavailable"] == caplog.messages
    assert not told.is_set()


@pytest.mark.parametrize("way", ["session", "statement", "wire"])
def test_wait_that_is_cut_tells_nobody(journal: Journal, proxy: Proxy, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is anybody declared dead because a connection was lost; the next watch tries again."""
    first, second = threading.Event(), threading.Event()
    with journal.opening(5):
        if way == "wire":
            watch_death(parse(f"{proxy.url(journal.schema)}&application_name={journal.schema}"), journal.oid, 5, first.set)
        else:
            journal.watch(5, first.set)
        until(lambda: journal.watching() == 1)
        (thread,) = watchers()
        if way == "session":
            assert 1 == journal.postgres.terminate_backends(journal.schema)
        elif way == "wire":
            proxy.drop()
        else:
            journal.postgres.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (journal.schema,)
            )
        thread.join(PATIENCE)
        journal.watch(5, second.set)

    assert second.wait(PATIENCE)
    assert not first.is_set()
    assert ["an opening cannot be watched: OperationalError"] == caplog.messages


@pytest.mark.parametrize("immediate", [True, False])
def test_restart_of_the_server_tells_nobody(own_postgres: Server, schema: str, immediate: bool) -> None:
    """All have lost what they had, and see by themselves who began again."""
    journal = Journal(own_postgres, f"{schema}_own")
    told = threading.Event()
    with journal.opening(5):
        journal.watch(5, told.set)
        until(lambda: journal.watching() == 1)
        (thread,) = watchers()
        own_postgres.restart(immediate=immediate)
        thread.join(PATIENCE)

    assert not thread.is_alive()
    assert not told.is_set()
    own_postgres.drop(journal.schema)


def test_standby_cannot_watch(standby: Server, caplog: pytest.LogCaptureFixture) -> None:
    """It would have the lock at once, which its primary knows nothing of."""
    told = threading.Event()
    watch_death(parse(standby.url("counterfoil")), 1, 5, told.set)
    for thread in watchers():
        thread.join(PATIENCE)

    assert not told.is_set()
    assert ["an opening cannot be watched: JournalUnavailable"] == caplog.messages


def test_watching_is_no_sign_of_life(journal: Journal) -> None:
    """Whoever waits gets the lock for a moment, shared, and its number can be begun meanwhile."""
    told = threading.Event()
    with journal.postgres.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s, 5)", (lock_class(journal.oid),))
        journal.watch(5, told.set)
        until(lambda: journal.watching() == 1)
    with journal.opening(5):
        assert told.wait(PATIENCE)


FORK = """
watch_death(address, oid, 6, lambda: None)
if os.fork() == 0:
    told = threading.Event()
    watch_death(address, oid, 6, told.set)
    say("watches")
    say("told" if told.wait(60) else "not told")
    os._exit(0)
sys.stdin.readline()
os.wait()
"""


def test_child_watches_for_itself(journal: Journal) -> None:
    """The threads and connections of the parent are not there, and it does not wait for them."""
    with journal.opening(6):
        with_child = journal.process(FORK)
        running = with_child.__enter__()
        assert "watches" == said(running)

    assert "told" == said(running)
    with_child.__exit__(None, None, None)
