"""The sign of life of an opening, with real processes that fork, end and are killed."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from counterfoil.domain.errors import JournalRefused
from counterfoil.infrastructure.sqlite.descriptor import HAS_BYTE_LOCKS, Descriptor, side_file
from counterfoil.infrastructure.sqlite.liveness import FileLiveness, Liveness, MemoryLiveness, check_locking
from tests.beside import running, said

pytestmark = pytest.mark.sqlite_only("signs of life are locks on files; tests/postgres has those in the server")

ROOT = Path(__file__).parents[1]
PRELUDE = """
import os, signal, subprocess, sys
from pathlib import Path
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.sqlite.liveness import FileLiveness
path, byte_locks = Path(sys.argv[1]), sys.argv[2] == "True"
own = FileLiveness(path, byte_locks=byte_locks)
own.begin(5)
def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()
"""

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


def process(program: str, live: Path, byte_locks: bool) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a program in which opening 5 lives, until it ends or the block does."""
    return running(PRELUDE + program, live, byte_locks)


@WAYS
def test_opening_lives_until_it_ends(live: Path, byte_locks: bool) -> None:
    """Other journal objects of the same process see it, and so does it itself."""
    own, other = FileLiveness(live, byte_locks=byte_locks), FileLiveness(live, byte_locks=byte_locks)
    own.begin(3)

    assert (True, True) == (own.is_live(3), other.is_live(3))

    own.end()
    own.end()

    assert (False, False) == (own.is_live(3), other.is_live(3))


@WAYS
def test_openings_do_not_disturb_each_other(live: Path, byte_locks: bool) -> None:
    """The end of one, with its descriptor closed, leaves its neighbours alive."""
    own, other = FileLiveness(live, byte_locks=byte_locks), FileLiveness(live, byte_locks=byte_locks)
    own.begin(1)
    other.begin(2)
    own.end()
    watcher = FileLiveness(live, byte_locks=byte_locks)

    assert (False, True) == (watcher.is_live(1), watcher.is_live(2))


@WAYS
def test_any_close_of_the_file_leaves_it_alive(live: Path, byte_locks: bool) -> None:
    """A host that opens and closes every file it finds ends no opening: a classic lock would be gone."""
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(1)
    for file in live.parent.iterdir():
        file.read_bytes()

    assert FileLiveness(live, byte_locks=byte_locks).is_live(1)


@WAYS
def test_unknown_opening_is_dead(live: Path, byte_locks: bool) -> None:
    """Nobody lives beside a journal that has no live file, and looking makes none."""
    assert not FileLiveness(live, byte_locks=byte_locks).is_live(9)
    assert not live.exists()


@WAYS
def test_dead_stays_dead(live: Path, byte_locks: bool) -> None:
    """What was seen dead is not asked again, since its number is never given again."""
    watcher = FileLiveness(live, byte_locks=byte_locks)

    assert not watcher.is_live(4)

    FileLiveness(live, byte_locks=byte_locks).begin(4)

    assert not watcher.is_live(4)


@WAYS
def test_opening_that_lives_already_is_refused(live: Path, byte_locks: bool) -> None:
    """Two openings of one number mean that the journal was put back under the feet of the first."""
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(7)
    with pytest.raises(JournalRefused, match="opening 7 lives already"):
        FileLiveness(live, byte_locks=byte_locks).begin(7)

    assert FileLiveness(live, byte_locks=byte_locks).is_live(7)


def test_one_object_is_one_opening(live: Path) -> None:
    """A second opening, or one without a number, is a mistake of ours."""
    own = FileLiveness(live)
    with pytest.raises(RuntimeError):
        own.begin(0)
    own.begin(1)
    with pytest.raises(RuntimeError):
        own.begin(2)


@WAYS
def test_collected_journal_is_dead(live: Path, byte_locks: bool) -> None:
    """The list that is kept for forks keeps no journal alive."""
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(1)
    del own

    assert not FileLiveness(live, byte_locks=byte_locks).is_live(1)


@WAYS
@pytest.mark.contract("LCK-08")
def test_killed_process_is_dead_at_once(live: Path, byte_locks: bool) -> None:
    """An opening ends with its process, and not before, whatever the clocks say."""
    watcher = FileLiveness(live, byte_locks=byte_locks)
    with process("say('lives'); sys.stdin.read()", live, byte_locks) as running:
        assert "lives" == said(running)
        assert watcher.is_live(5)

        running.kill()
        running.wait()

        assert not watcher.is_live(5)


@WAYS
def test_stopped_process_lives(live: Path, byte_locks: bool) -> None:
    """A process that is only frozen may go on, so its opening lives."""
    with process("say('lives'); sys.stdin.read()", live, byte_locks) as running:
        assert "lives" == said(running)

        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WNOWAIT)

        assert FileLiveness(live, byte_locks=byte_locks).is_live(5)


FORK = """
told, tell = os.pipe()
child = os.fork()
if child == 0:
    try:
        own.is_live(5)
    except ForkedError:
        os.write(tell, b"refused")
    own.end()
    os.close(tell)
    sys.stdin.read()
    os._exit(0)
os.close(tell)
with open(told) as child_says:
    say(child_says.read())
sys.stdin.read()
"""


@WAYS
@pytest.mark.contract("JRN-15")
def test_forked_child_neither_ends_nor_keeps_the_parent(live: Path, byte_locks: bool) -> None:
    """The child is refused at once; its closing ends nothing, and its living keeps nothing."""
    watcher = FileLiveness(live, byte_locks=byte_locks)
    with process(FORK, live, byte_locks) as running:
        assert "refused" == said(running)
        assert watcher.is_live(5)

        running.kill()
        running.wait()

        assert not watcher.is_live(5)

        os.killpg(running.pid, 0)  # the child is there still
        assert running.stdin is not None
        running.stdin.close()


@WAYS
def test_end_is_seen_though_a_child_has_a_copy(live: Path, byte_locks: bool) -> None:
    """A copy that nobody could close, as after a fork outside Python, keeps no ended opening alive."""
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(1)
    sign = own._sign
    assert sign is not None
    copy = os.dup(sign.number)
    own.end()

    assert not FileLiveness(live, byte_locks=byte_locks).is_live(1)

    os.close(copy)


@WAYS
def test_started_program_does_not_keep_the_opening(live: Path, byte_locks: bool) -> None:
    """A program that the host starts, even with all descriptors, inherits no sign of life."""
    program = """
subprocess.Popen((sys.executable, "-c", "print('started', flush=True); input()"), close_fds=False)
sys.stdin.close()
signal.pause()
"""
    watcher = FileLiveness(live, byte_locks=byte_locks)
    with process(program, live, byte_locks) as running:
        assert "started" == said(running)

        running.kill()
        running.wait()

        assert not watcher.is_live(5)


def test_memory_has_one_opening() -> None:
    """In memory only the own opening lives."""
    own: Liveness = MemoryLiveness()
    own.begin(1)

    assert (True, False) == (own.is_live(1), own.is_live(2))

    own.end()
    own.end()

    assert not own.is_live(1)


@pytest.mark.contract("JRN-10")
def test_locks_that_work_pass(live: Path) -> None:
    """A good file system passes, again and beside openings that live."""
    FileLiveness(live).begin(1)
    check_locking(live)
    check_locking(live)


@pytest.mark.contract("JRN-10")
def test_many_processes_check_at_once(live: Path) -> None:
    """Processes that check at the same time do not take each other's lock for a fault."""
    program = (
        "import sys; from pathlib import Path\n"
        "from counterfoil.infrastructure.sqlite.liveness import check_locking\n"
        "input()\n"
        "for _ in range(500): check_locking(Path(sys.argv[1]))\n"
    )
    running = [
        subprocess.Popen((sys.executable, "-c", program, str(live)), cwd=ROOT, stdin=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for each in running:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.close()

    assert [0, 0, 0, 0] == [each.wait() for each in running]


def yes(*_: object, **__: object) -> bool:
    """A lock that everybody gets."""
    return True


def no(*_: object, **__: object) -> bool:
    """A lock that nobody sees."""
    return False


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize(
    ("method", "faulty", "complaint"),
    [
        ("try_lock", yes, "do not exclude each other"),
        pytest.param(
            "try_lock_byte",
            yes,
            "do not exclude each other",
            marks=pytest.mark.skipif(not HAS_BYTE_LOCKS, reason="locks of bytes are Linux's"),
        ),
        pytest.param(
            "sees_byte_locked",
            no,
            "are not seen by others",
            marks=pytest.mark.skipif(not HAS_BYTE_LOCKS, reason="locks of bytes are Linux's"),
        ),
    ],
)
def test_locks_that_do_nothing_are_refused(
    live: Path, monkeypatch: pytest.MonkeyPatch, method: str, faulty: Callable[..., bool], complaint: str
) -> None:
    """A file system where everybody gets every lock is named, with the cure."""
    monkeypatch.setattr(Descriptor, method, faulty)
    with pytest.raises(JournalRefused) as refused:
        check_locking(live)

    expected = f"{live}: locks on this file system {complaint}; move the journal to a local disk"

    assert expected == str(refused.value)


@pytest.mark.contract("JRN-10")
def test_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    """What cannot be opened is named."""
    path = tmp_path / "nowhere" / "journal-live"
    with pytest.raises(JournalRefused, match=r"nowhere/journal-live cannot be opened"):
        check_locking(path)


@WAYS
def test_side_file_is_as_open_as_the_journal(live: Path, byte_locks: bool) -> None:
    """Whoever may use the journal may use its side files, and nobody else."""
    journal = live.with_name("journal.sqlite")
    journal.chmod(0o660)
    own = FileLiveness(live, byte_locks=byte_locks)
    own.begin(1)
    (made,) = live.parent.glob("*-live*")

    assert 0o660 == stat.S_IMODE(made.stat().st_mode)
