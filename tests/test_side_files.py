"""The queue of writers and the highest epoch, with real processes."""

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from counterfoil.domain.errors import Closed, JournalDamaged, JournalRefused
from counterfoil.infrastructure.sqlite import side_files
from counterfoil.infrastructure.sqlite.side_files import (
    AppendLock,
    AppendQueue,
    EpochFile,
    EpochStore,
    MemoryAppendLock,
    MemoryEpoch,
    side_file,
)

ROOT = Path(__file__).parents[1]
LONG = 60_000_000
SHORT = 1_000
PRELUDE = """
import os, sys
from pathlib import Path
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.sqlite.side_files import AppendLock
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


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    """The path of the epoch file of a journal that exists."""
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    return side_file(journal, "epoch")


@pytest.fixture(params=[True, False], ids=["behind byte 0", "flock alone"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as on Linux, and as on other Unixes."""
    if request.param and not side_files.HAS_BYTE_LOCKS:
        pytest.skip("locks of bytes are Linux's")
    monkeypatch.setattr(side_files, "HAS_BYTE_LOCKS", request.param)


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


# The queue of writers.


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


@pytest.mark.skipif(not side_files.HAS_BYTE_LOCKS, reason="elsewhere flock alone decides who is next")
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


# The highest epoch.


@pytest.mark.contract("LCK-03")
def test_epoch_is_kept(epoch: Path) -> None:
    """What was raised is read by the next opening, as decimal text."""
    assert 0 == EpochFile(epoch).read()

    EpochFile(epoch).raise_to(1_767_225_600_000)

    assert 1_767_225_600_000 == EpochFile(epoch).read()
    assert "1767225600000\n" == epoch.read_text("ascii")
    assert ["journal.sqlite", "journal.sqlite-epoch"] == sorted(each.name for each in epoch.parent.iterdir())


@pytest.mark.contract("LCK-03")
def test_epoch_is_never_lowered(epoch: Path) -> None:
    """A clock that was set back, or an older journal, lowers nothing."""
    stores: tuple[EpochStore, ...] = (EpochFile(epoch), MemoryEpoch())
    for store in stores:
        store.raise_to(5)
        store.raise_to(3)
        store.raise_to(5)

        assert 5 == store.read()


@pytest.mark.parametrize("text", ["", "x", "-1", "1 2", "\u0661", "1" * 20, "1\n\n"])
def test_epoch_that_is_none_is_refused(epoch: Path, text: str) -> None:
    """Garbage is named, and neither read as nought nor written over."""
    epoch.write_text(text, "utf-8")
    for call in (EpochFile(epoch).read, lambda: EpochFile(epoch).raise_to(9)):
        with pytest.raises(JournalDamaged, match=r"journal\.sqlite-epoch does not hold an epoch"):
            call()

    assert text == epoch.read_text("utf-8")


@pytest.mark.contract("LCK-03")
def test_epoch_survives_a_crash_in_the_middle(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the new file stands complete the old one does, and what was left over is no hindrance."""
    EpochFile(epoch).raise_to(5)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(JournalRefused, match=r"journal\.sqlite-epoch"):
            EpochFile(epoch).raise_to(6)

    assert 5 == EpochFile(epoch).read()

    EpochFile(epoch).raise_to(7)

    assert 7 == EpochFile(epoch).read()


def test_epoch_file_is_as_open_as_the_journal(epoch: Path) -> None:
    """Whoever may use the journal may raise the epoch."""
    epoch.with_name("journal.sqlite").chmod(0o600)
    EpochFile(epoch).raise_to(1)

    assert 0o600 == stat.S_IMODE(epoch.stat().st_mode)
