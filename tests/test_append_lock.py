"""The queue of writers, with real processes."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from counterfoil.domain.errors import Closed, JournalRefused
from counterfoil.infrastructure.sqlite import append_lock, descriptor
from counterfoil.infrastructure.sqlite.append_lock import AppendLock, AppendQueue, MemoryAppendLock
from counterfoil.infrastructure.sqlite.descriptor import HAS_BYTE_LOCKS, side_file

pytestmark = pytest.mark.sqlite_only("the queue of writers is a lock on a file")

ROOT = Path(__file__).parents[1]
LONG = 60_000_000
SHORT = 1_000
PRELUDE = """
import os, sys
from pathlib import Path
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.sqlite.append_lock import AppendLock
lock = AppendLock(Path(sys.argv[1]))
def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def append(tmp_path: Path) -> Path:
    """The path of the append file of a journal that exists."""
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    return side_file(journal, "append")


@pytest.fixture(params=[True, False], ids=["behind byte 0", "flock alone"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as on Linux, and as on other Unixes."""
    if request.param and not HAS_BYTE_LOCKS:
        pytest.skip("locks of bytes are Linux's")
    for module in (append_lock, descriptor):
        monkeypatch.setattr(module, "HAS_BYTE_LOCKS", request.param)


@contextmanager
def process(program: str, append: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program that has the lock opened, until it ends or the block does."""
    command = (sys.executable, "-W", "error", "-c", PRELUDE + program, str(append))
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def heard(running: subprocess.Popen[str]) -> str:
    """The next word that the process says."""
    assert running.stdout is not None
    return running.stdout.readline().strip()


def tell(running: subprocess.Popen[str]) -> None:
    """Let the process go on."""
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


def append_threads() -> set[threading.Thread]:
    """The threads of the queue in this process."""
    return {each for each in threading.enumerate() if each.name == "counterfoil-append"}


@pytest.fixture
def earlier() -> set[threading.Thread]:
    """The threads of earlier tests that have not ended yet."""
    return append_threads()


@pytest.mark.usefixtures("ways")
def test_one_writer_at_a_time(append: Path) -> None:
    """A second journal object of the same process waits like any other."""
    first, second = AppendLock(append), AppendLock(append)

    assert first.acquire(LONG)
    assert not second.acquire(SHORT)
    first.release()
    assert second.acquire(LONG)
    assert not first.acquire(0)
    second.close()
    assert first.acquire(LONG)
    first.close()


def test_free_lock_needs_no_thread(append: Path, earlier: set[threading.Thread]) -> None:
    """The common case is a call of the kernel, not a hand-over."""
    with_turn = AppendLock(append)
    for _ in range(3):
        assert with_turn.acquire(LONG)
        with_turn.release()

    assert append_threads() <= earlier


def test_turn_is_not_had_twice(append: Path) -> None:
    """Asking again for the own turn is a mistake of ours; giving up what is not had is none."""
    lock = AppendLock(append)
    lock.release()

    assert lock.acquire(LONG)
    with pytest.raises(RuntimeError):
        lock.acquire(LONG)
    lock.release()
    lock.release()
    assert AppendLock(append).acquire(LONG)


@pytest.mark.usefixtures("ways")
def test_turn_that_comes_too_late_is_passed_on(append: Path) -> None:
    """A wait that was given up holds nobody back."""
    holder, impatient, next_one = AppendLock(append), AppendLock(append), AppendLock(append)

    assert holder.acquire(LONG)
    assert not impatient.acquire(SHORT)
    holder.release()
    assert next_one.acquire(LONG)
    next_one.release()
    assert impatient.acquire(LONG)
    impatient.release()
    assert holder.acquire(LONG)


@pytest.mark.usefixtures("ways")
def test_place_outlives_a_wait(append: Path, earlier: set[threading.Thread]) -> None:
    """Who asks again stands where he stood."""
    holder, impatient = AppendLock(append), AppendLock(append)

    assert holder.acquire(LONG)
    for _ in range(3):
        assert not impatient.acquire(SHORT)
    assert 1 == len(append_threads() - earlier)
    holder.release()
    assert impatient.acquire(LONG)


@pytest.mark.usefixtures("ways")
def test_close_ends_the_thread(append: Path, earlier: set[threading.Thread]) -> None:
    """Closing, or being collected, leaves no thread behind once the turn has come."""
    holder, closed, dropped = AppendLock(append), AppendLock(append), AppendLock(append)
    assert holder.acquire(LONG)
    assert not closed.acquire(SHORT)
    assert not dropped.acquire(SHORT)
    threads = append_threads() - earlier
    closed.close()
    closed.close()
    del dropped
    gc.collect()
    holder.release()
    for thread in threads:
        thread.join(60)

    assert [False, False] == [thread.is_alive() for thread in threads]
    assert holder.acquire(LONG)
    with pytest.raises(Closed):
        closed.acquire(LONG)


def test_close_ends_a_wait(append: Path, earlier: set[threading.Thread]) -> None:
    """A journal that is closed while its writer waits does not wait to the end."""
    holder, waiter = AppendLock(append), AppendLock(append)
    assert holder.acquire(LONG)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            waiter.acquire(LONG)
        except Closed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not append_threads() - earlier:
        thread.join(0.001)
    waiter.close()
    thread.join(60)

    assert 1 == len(raised)


@pytest.mark.usefixtures("ways")
def test_killed_writer_gives_its_turn(append: Path) -> None:
    """A process that dies in its turn stops nobody."""
    lock = AppendLock(append)
    with process("lock.acquire(1000); say('had'); sys.stdin.read()", append) as running:
        assert "had" == heard(running)
        assert not lock.acquire(SHORT)
        running.kill()
        assert lock.acquire(LONG)


def test_stopped_writer_keeps_its_turn(append: Path) -> None:
    """A process that is frozen in its turn stops the others, for as long as they will wait, until it goes on."""
    lock = AppendLock(append)
    with process("lock.acquire(1000); say('had'); sys.stdin.readline(); lock.release()", append) as running:
        assert "had" == heard(running)
        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)
        tell(running)

        assert not lock.acquire(SHORT)
        running.send_signal(signal.SIGCONT)
        assert lock.acquire(LONG)


FORK = """
lock.acquire(1000)
told, tell = os.pipe()
child = os.fork()
if child == 0:
    answers = []
    for call in (lambda: lock.acquire(1000), lock.release):
        try:
            call()
        except ForkedError:
            answers.append("refused")
    lock.close()
    os.write(tell, " ".join(answers).encode())
    os.close(tell)
    sys.stdin.read()
    os._exit(0)
os.close(tell)
with open(told) as child_says:
    say(child_says.read())
sys.stdin.read()
"""


@pytest.mark.contract("JRN-15")
def test_forked_child_neither_ends_nor_keeps_the_turn(append: Path) -> None:
    """The child is refused at once; its closing gives nothing up, and its living keeps nothing."""
    lock = AppendLock(append)
    with process(FORK, append) as running:
        assert "refused refused" == heard(running)
        assert not lock.acquire(SHORT)
        running.kill()
        assert lock.acquire(LONG)

        os.killpg(running.pid, 0)  # the child is there still
        assert running.stdin is not None
        running.stdin.close()


BUSY = """
say("ready")
sys.stdin.readline()
with open(Path(sys.argv[1]).with_name("order"), "ab", buffering=0) as order:
    for _ in range(300):
        assert lock.acquire(60_000_000)
        order.write(b"%d\\n" % os.getpid())
        os.fsync(order.fileno())
        lock.release()
"""


@pytest.mark.skipif(not HAS_BYTE_LOCKS, reason="elsewhere flock alone decides who is next")
def test_busy_writers_take_turns(append: Path) -> None:
    """Of four processes that write all the time, none takes turn after turn while the others wait."""
    with ExitStack() as stack:
        running = [stack.enter_context(process(BUSY, append)) for _ in range(4)]
        for each in running:
            assert "ready" == heard(each)
        for each in running:
            tell(each)

        assert [0, 0, 0, 0] == [each.wait() for each in running]

    order = append.with_name("order").read_text("ascii").split()
    all_came = max(order.index(each) for each in set(order))
    one_left = min(len(order) - order[::-1].index(each) for each in set(order))
    turns = [order[all_came:one_left].count(each) for each in set(order)]

    assert 4 * 300 == len(order)
    assert max(turns) < 2 * min(turns)


@pytest.mark.contract("JRN-10")
def test_append_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The error names the file and the cure."""
    with pytest.raises(JournalRefused, match=r"nowhere/journal-append cannot be opened"):
        AppendLock(tmp_path / "nowhere" / "journal-append")


def test_memory_has_one_writer() -> None:
    """In memory the turn is always had."""
    queue: AppendQueue = MemoryAppendLock()

    assert queue.acquire(0)
    queue.release()
    assert queue.acquire(0)
    queue.close()
