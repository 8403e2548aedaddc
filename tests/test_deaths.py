"""The end of another opening is told at once, with real processes that are killed, frozen and survived by their children."""

import errno
import gc
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from counterfoil.domain.errors import JournalRefused
from counterfoil.infrastructure.sqlite.deaths import watch_death
from counterfoil.infrastructure.sqlite.descriptor import HAS_BYTE_LOCKS, Descriptor, side_file
from counterfoil.infrastructure.sqlite.liveness import FileLiveness, check_locking, sign_file
from tests.beside import running, said

pytestmark = pytest.mark.sqlite_only("deaths are heard in locks on files; tests/postgres has those in the server")

PATIENCE = 60
"""Seconds for what comes within milliseconds, unless the machine is very busy."""
PRELUDE = """
import multiprocessing, os, signal, subprocess, sys, threading, time, warnings
from pathlib import Path
from counterfoil.infrastructure.sqlite.deaths import watch_death
from counterfoil.infrastructure.sqlite.liveness import FileLiveness
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
path, byte_locks = Path(sys.argv[1]), sys.argv[2] == "True"
own = FileLiveness(path, byte_locks=byte_locks)
own.begin(int(sys.argv[3]))
def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()
"""
LIVES = "say('lives'); sys.stdin.read()"

WAYS = pytest.mark.parametrize(
    "byte_locks",
    [
        pytest.param(True, marks=pytest.mark.skipif(not HAS_BYTE_LOCKS, reason="locks of bytes are Linux's")),
        False,
    ],
    ids=["byte locks", "flock"],
)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The path of the live file of a journal that exists."""
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    return side_file(journal, "live")


def process(program: str, live: Path, byte_locks: bool, opening_id: int = 5) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a program in which an opening lives; it and its children end with the block."""
    return running(PRELUDE + program, live, byte_locks, opening_id)


def watchers() -> set[threading.Thread]:
    """The threads that wait for the end of openings."""
    return {each for each in threading.enumerate() if each.name == "counterfoil-watch"}


@WAYS
@pytest.mark.contract("LCK-08")
def test_killed_process_is_told(live: Path, byte_locks: bool) -> None:
    """Nobody has to look: the kernel tells."""
    told = threading.Event()
    with process(LIVES, live, byte_locks) as running:
        assert "lives" == said(running)
        watch_death(live, 5, told.set, byte_locks=byte_locks)
        assert not told.is_set()

        running.kill()

        assert told.wait(PATIENCE)
        assert not FileLiveness(live, byte_locks=byte_locks).is_live(5)


@WAYS
def test_stopped_process_is_not_told(live: Path, byte_locks: bool) -> None:
    """A process that is only frozen may go on; its neighbour is told of meanwhile, and itself when it is killed."""
    frozen, neighbour = threading.Event(), threading.Event()
    with process(LIVES, live, byte_locks, 5) as running, process(LIVES, live, byte_locks, 6) as other:
        assert ("lives", "lives") == (said(running), said(other))
        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
        watch_death(live, 5, frozen.set, byte_locks=byte_locks)
        watch_death(live, 6, neighbour.set, byte_locks=byte_locks)

        other.kill()

        assert neighbour.wait(PATIENCE)
        assert not frozen.is_set()

        running.kill()

        assert frozen.wait(PATIENCE)


CHILDREN = {
    "fork": "if os.fork() == 0: signal.pause()",
    "multiprocessing fork": "multiprocessing.get_context('fork').Process(target=signal.pause).start()",
    "multiprocessing spawn": "multiprocessing.get_context('spawn').Process(target=time.sleep, args=(600,)).start()",
    "program": "subprocess.Popen((sys.executable, '-c', 'import signal; signal.pause()'), close_fds=False)",
    "fork that is watching": "watch_death(path, 6, print, byte_locks=byte_locks)\nif os.fork() == 0: signal.pause()",
}


@WAYS
@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
@pytest.mark.contract("JRN-15")
def test_child_that_lives_on_keeps_nothing(live: Path, byte_locks: bool, child: str) -> None:
    """Neither a fork nor a program that was started holds the sign of life of the dead."""
    told = threading.Event()
    with opening(live, byte_locks, 6), process(f"{child}\n{LIVES}", live, byte_locks) as running:
        assert "lives" == said(running)
        watch_death(live, 5, told.set, byte_locks=byte_locks)

        running.kill()
        running.wait()

        assert told.wait(PATIENCE)

        os.killpg(running.pid, 0)  # the child is there still


@contextmanager
def opening(live: Path, byte_locks: bool, opening_id: int) -> Iterator[FileLiveness]:
    """An opening of this process."""
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(opening_id)
    try:
        yield own
    finally:
        own.end()


@WAYS
def test_opening_of_the_own_process_is_told(live: Path, byte_locks: bool) -> None:
    """It ends when its journal is closed, or collected; the process goes on."""
    closed, collected = threading.Event(), threading.Event()
    one, other = FileLiveness(live, byte_locks=byte_locks), FileLiveness(live, byte_locks=byte_locks)
    one.begin(1)
    other.begin(2)
    watch_death(live, 1, closed.set, byte_locks=byte_locks)
    watch_death(live, 2, collected.set, byte_locks=byte_locks)

    one.end()

    assert closed.wait(PATIENCE)
    assert not collected.is_set()

    del other
    gc.collect()

    assert collected.wait(PATIENCE)


@WAYS
@pytest.mark.parametrize("began", [True, False])
def test_what_has_ended_is_told_on_another_thread(live: Path, byte_locks: bool, began: bool) -> None:
    """Whoever watches too late is told all the same, and never from within the call, where it may hold a lock."""
    if began:
        with opening(live, byte_locks, 5):
            pass
    told = threading.Event()
    threads: list[threading.Thread] = []

    def tell() -> None:
        threads.append(threading.current_thread())
        told.set()

    watch_death(live, 5, tell, byte_locks=byte_locks)

    assert told.wait(PATIENCE)
    assert threading.current_thread() not in threads
    assert began or not live.exists()


@WAYS
def test_hundred_watches_are_one_thread(live: Path, byte_locks: bool) -> None:
    """Each is told once, and those that were taken back not at all; the thread serves those that come later."""
    before = watchers()
    told: list[int] = []
    last = threading.Event()
    with opening(live, byte_locks, 5):
        cancels = [watch_death(live, 5, lambda n=n: told.append(n), byte_locks=byte_locks) for n in range(100)]  # type: ignore[misc]
        (thread,) = watchers() - before
        for cancel in cancels:
            cancel()
        for n in range(100, 200):
            watch_death(live, 5, lambda n=n: told.append(n), byte_locks=byte_locks)  # type: ignore[misc]
        watch_death(live, 5, last.set, byte_locks=byte_locks)

        assert {thread} == watchers() - before

    assert last.wait(PATIENCE)
    thread.join(PATIENCE)

    assert list(range(100, 200)) == told
    assert not thread.is_alive()


@WAYS
def test_watch_is_taken_back_alone(live: Path, byte_locks: bool) -> None:
    """Two watches with one function are two, and taking one back twice leaves the other."""
    told: list[str] = []
    done = threading.Event()

    def tell() -> None:
        told.append("told")

    with opening(live, byte_locks, 5):
        cancel = watch_death(live, 5, tell, byte_locks=byte_locks)
        watch_death(live, 5, tell, byte_locks=byte_locks)
        cancel()
        cancel()
        watch_death(live, 5, done.set, byte_locks=byte_locks)

    assert done.wait(PATIENCE)
    assert ["told"] == told


def test_what_is_told_may_take_back_what_is_not_yet(live: Path) -> None:
    """Whoever is told first can spare the rest."""
    told: list[str] = []
    done = threading.Event()
    later: list[Callable[[], None]] = []
    with opening(live, HAS_BYTE_LOCKS, 5):
        watch_death(live, 5, lambda: later[0]())
        later.append(watch_death(live, 5, lambda: told.append("told")))
        watch_death(live, 5, done.set)

    assert done.wait(PATIENCE)
    assert [] == told


def test_one_that_raises_costs_its_neighbours_nothing(live: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are told, the next watch works, and the log names the class and no more."""
    done, again = threading.Event(), threading.Event()

    def fail() -> None:
        raise ValueError("secret")

    with opening(live, HAS_BYTE_LOCKS, 5):
        watch_death(live, 5, fail)
        watch_death(live, 5, done.set)

    assert done.wait(PATIENCE)

    watch_death(live, 5, again.set)

    assert again.wait(PATIENCE)
    assert ["telling of the end of an opening raised ValueError"] == caplog.messages
    assert "secret" not in caplog.text


def test_what_cannot_be_watched_is_logged_and_not_told(live: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is declared dead because a file cannot be opened."""
    live.touch()
    before, told = watchers(), threading.Event()
    with caplog.at_level(logging.WARNING):
        watch_death(live / "no folder", 5, told.set)()

    assert set() == watchers() - before
    assert ["an opening cannot be watched: JournalRefused"] == caplog.messages
    assert not told.is_set()


@WAYS
def test_wait_that_fails_tells_nobody(
    live: Path, byte_locks: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is anybody declared dead because the kernel has no lock left; the next watch tries again."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "secret")

    first, second = threading.Event(), threading.Event()
    with opening(live, byte_locks, 5):
        before = watchers()
        with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):
            broken.setattr(Descriptor, "wait_lock", fail)
            broken.setattr(Descriptor, "wait_lock_byte", fail)
            watch_death(live, 5, first.set, byte_locks=byte_locks)
            for thread in watchers() - before:
                thread.join(PATIENCE)
        watch_death(live, 5, second.set, byte_locks=byte_locks)

    assert second.wait(PATIENCE)
    assert not first.is_set()
    assert ["an opening cannot be watched: OSError"] == caplog.messages


@WAYS
def test_file_in_the_place_of_another_is_another(live: Path, byte_locks: bool) -> None:
    """After a journal and its side files were exchanged, opening 5 is not the one that was watched before."""
    first, second = threading.Event(), threading.Event()
    with opening(live, byte_locks, 5):
        watch_death(live, 5, first.set, byte_locks=byte_locks)
        sign = sign_file(live, 5, byte_locks=byte_locks)
        sign.rename(side_file(live, "aside"))
        with opening(live, byte_locks, 5):
            watch_death(live, 5, second.set, byte_locks=byte_locks)

        assert second.wait(PATIENCE)
        assert not first.is_set()

    assert first.wait(PATIENCE)


FORK = """
other = FileLiveness(path, byte_locks=byte_locks)
other.begin(6)
watch_death(path, 6, lambda: None, byte_locks=byte_locks)
if os.fork() == 0:
    told = threading.Event()
    watch_death(path, 6, told.set, byte_locks=byte_locks)
    say("watches")
    say("told" if told.wait(60) else "not told")
    os._exit(0)
sys.stdin.readline()
other.end()
os.wait()
"""


@WAYS
def test_forked_child_watches_by_itself(live: Path, byte_locks: bool) -> None:
    """The parent's threads are not there any more, so a watch of the same opening makes one of its own."""
    with process(FORK, live, byte_locks) as running:
        assert "watches" == said(running)
        assert running.stdin is not None
        running.stdin.write("\n")
        running.stdin.flush()

        assert "told" == said(running)
        assert 0 == running.wait(PATIENCE)


@WAYS
def test_watching_keeps_no_process(live: Path, byte_locks: bool) -> None:
    """A process ends though a thread of it waits in the kernel."""
    with opening(live, byte_locks, 6):
        with process("watch_death(path, 6, print, byte_locks=byte_locks)", live, byte_locks) as running:
            assert 0 == running.wait(PATIENCE)


def shared(sign: Descriptor, opening_id: int, byte_locks: bool) -> bool:
    """Lock a sign as those do who waited for the end of the opening."""
    return sign.try_lock_byte(opening_id, shared=True) if byte_locks else sign.try_lock(shared=True)


@WAYS
def test_waiting_is_no_sign_of_life(live: Path, byte_locks: bool) -> None:
    """What a watcher has for a moment, even one that is frozen right then, makes no opening live, and hides none that lives."""
    with process(LIVES, live, byte_locks) as running:
        assert "lives" == said(running)
        sign = Descriptor(sign_file(live, 5, byte_locks=byte_locks), create=False)
        assert not shared(sign, 5, byte_locks)
        running.kill()
        running.wait()
        assert shared(sign, 5, byte_locks)

        assert not FileLiveness(live, byte_locks=byte_locks).is_live(5)

        check_locking(live)
        with opening(live, byte_locks, 6):
            assert FileLiveness(live, byte_locks=byte_locks).is_live(6)
        sign.close()


WATCHING = """
sys.stdin.readline()
say("begins")
while True:
    told = threading.Event()
    watch_death(path, 7, told.set, byte_locks=byte_locks)
    told.wait()
"""


@WAYS
def test_openings_begin_and_end_beside_watchers(live: Path, byte_locks: bool) -> None:
    """Others get and give up the shared lock without a pause: each opening begins, lives and is dead when it has ended."""
    with process(WATCHING, live, byte_locks, 1) as one, process(WATCHING, live, byte_locks, 2) as other:
        for each in (one, other):
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        assert ("begins", "begins") == (said(one), said(other))

        for _ in range(300):
            with opening(live, byte_locks, 7):
                assert FileLiveness(live, byte_locks=byte_locks).is_live(7)
            assert not FileLiveness(live, byte_locks=byte_locks).is_live(7)


@WAYS
def test_opening_begins_when_a_watcher_lets_go(live: Path, byte_locks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is given again, as after a restore, may still be had by those who waited for its end."""
    sign = Descriptor(sign_file(live, 5, byte_locks=byte_locks))
    assert shared(sign, 5, byte_locks)
    monkeypatch.setattr(time, "sleep", lambda _: sign.close())

    with opening(live, byte_locks, 5):
        assert not sign.is_open
        assert FileLiveness(live, byte_locks=byte_locks).is_live(5)


@WAYS
def test_opening_is_refused_when_a_watcher_never_lets_go(live: Path, byte_locks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that is frozen in that very moment makes no opening wait for ever."""
    sign = Descriptor(sign_file(live, 5, byte_locks=byte_locks))
    assert shared(sign, 5, byte_locks)
    monkeypatch.setattr(time, "sleep", lambda _: None)

    with pytest.raises(JournalRefused):
        FileLiveness(live, byte_locks=byte_locks).begin(5)
    sign.close()
