"""The bell of an opening, rung from other processes, and what is left of it when they are killed or fork."""

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from counterfoil.domain.errors import Closed
from counterfoil.infrastructure.sqlite.bell import MESSAGE_BYTES, MemoryBell, SocketBell, _let_ring, new_bell, ring
from tests.beside import running, said

pytestmark = pytest.mark.sqlite_only("the bells of SQLite are sockets beside the file")

PATIENCE = 60
"""Seconds for what comes within a millisecond, unless the machine is very busy."""
PRELUDE = """
import os, signal, subprocess, sys
from pathlib import Path
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.sqlite.bell import SocketBell, ring
journal = Path(sys.argv[1])
def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()
"""
HAS_BELL = "bell = SocketBell(journal, 5, lambda _: True)\n"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The path of a journal that exists."""
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    return journal


def process(program: str, journal: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a program beside a journal; it and its children end with the block."""
    return running(PRELUDE + program, journal)


def alive(_: int) -> bool:
    """Every opening lives."""
    return True


def dead(_: int) -> bool:
    """Every opening has ended."""
    return False


def bell_of(journal: Path, opening_id: int) -> Path:
    """Where the bell of an opening lies."""
    return journal.with_name(f"{journal.name}-bell-{opening_id}")


def listens(path: Path) -> bool:
    """Whether anybody has the socket at this path open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def returns(call: Callable[[], None], times: int) -> bool:
    """Whether all of these calls return; one that blocks is left behind."""

    def repeat() -> None:
        for _ in range(times):
            call()

    calling = threading.Thread(target=repeat, daemon=True)
    calling.start()
    calling.join(PATIENCE)
    return not calling.is_alive()


def test_ring_of_another_process_is_heard(journal: Path) -> None:
    """Messages come as they were sent, in order, and once."""
    with closing(SocketBell(journal, 5, alive)) as bell:
        with process("for word in (b'one', b'', bytes(range(256))): ring(journal, 5, word)", journal) as running:
            first = bell.hear(PATIENCE)
            assert 0 == running.wait(PATIENCE)

        assert [b"one", b"", bytes(range(256))] == [*first, *bell.hear(0)]
        assert [] == bell.hear(0)


def test_ring_reaches_one_opening(journal: Path) -> None:
    """Its neighbours hear nothing."""
    with closing(SocketBell(journal, 1, alive)) as one, closing(SocketBell(journal, 11, alive)) as other:
        ring(journal, 11, b"key")

        assert ([], [b"key"]) == (one.hear(0), other.hear(0))


def test_hearing_ends_with_its_time(journal: Path) -> None:
    """Nothing rings, so nothing is heard; a time that is over already is no time."""
    with closing(SocketBell(journal, 1, alive)) as bell:
        assert ([], [], []) == (bell.hear(0.001), bell.hear(0), bell.hear(-1))


@pytest.mark.parametrize("left", ["nothing", "socket", "file", "folder", "stream socket", "link to nothing"])
def test_ring_that_nobody_hears_does_nothing(journal: Path, left: str) -> None:
    """Whatever lies in the place of the socket, ringing neither raises nor makes a file."""
    path = bell_of(journal, 5)
    kind = socket.SOCK_STREAM if left == "stream socket" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_UNIX, kind) as made:
        if left in ("socket", "stream socket"):
            made.bind(str(path))
        if left == "stream socket":
            made.listen()
        elif left == "socket":
            made.close()
        elif left == "file":
            path.write_bytes(b"kept")
        elif left == "folder":
            path.mkdir()
        elif left == "link to nothing":
            path.symlink_to("nowhere")
        before = sorted(journal.parent.iterdir())

        ring(journal, 5, b"key")

    assert before == sorted(journal.parent.iterdir())
    assert left != "file" or b"kept" == path.read_bytes()


def test_message_that_is_too_long_is_cut_or_lost(journal: Path) -> None:
    """Anybody who may use the journal may send anything; the next message is whole again."""
    with closing(SocketBell(journal, 5, alive)) as bell:
        ring(journal, 5, b"x" * 1_000)
        ring(journal, 5, b"x" * 10_000_000)
        ring(journal, 5, b"key")

        assert [b"x" * MESSAGE_BYTES, b"key"] == bell.hear(PATIENCE)


def test_full_bell_stops_nobody(journal: Path) -> None:
    """One that does not hear loses rings, blocks nobody, and is in nobody's way; it goes on when it hears again."""
    with closing(SocketBell(journal, 1, alive)) as frozen, closing(SocketBell(journal, 2, alive)) as bell:
        assert returns(lambda: ring(journal, 1, b"x" * MESSAGE_BYTES), 2_000)
        ring(journal, 2, b"key")

        assert [b"key"] == bell.hear(PATIENCE)

        kept = frozen.hear(PATIENCE)

        assert 1 <= len(kept) < 2_000
        assert [] == frozen.hear(0)

        ring(journal, 1, b"key")

        assert [b"key"] == frozen.hear(PATIENCE)


@pytest.mark.parametrize("kind", ["socket", "memory"])
def test_interruption_before_hearing_counts(journal: Path, kind: str) -> None:
    """It is never missed, and several are one."""
    with closing(new_bell(journal if kind == "socket" else None, 1, alive)) as bell:
        for _ in range(3):
            bell.interrupt()

        assert [] == bell.hear(None)
        assert [] == bell.hear(0.001)


@pytest.mark.parametrize("kind", ["socket", "memory"])
def test_interruption_ends_hearing(journal: Path, kind: str) -> None:
    """Whenever it comes, the hearer who would have waited for ever returns."""
    heard = threading.Semaphore(0)

    def hear() -> None:
        for _ in range(200):
            bell.hear(None)
            heard.release()

    with closing(new_bell(journal if kind == "socket" else None, 1, alive)) as bell:
        hearing = threading.Thread(target=hear, daemon=True)
        hearing.start()
        for _ in range(200):
            bell.interrupt()
            assert heard.acquire(timeout=PATIENCE)
        hearing.join(PATIENCE)

        assert not hearing.is_alive()


def test_more_interruptions_than_are_kept(journal: Path) -> None:
    """Nobody who interrupts ever waits."""
    with closing(SocketBell(journal, 1, alive)) as bell:
        assert returns(bell.interrupt, 100_000)
        assert [] == bell.hear(None)


def test_close_ends_hearing(journal: Path) -> None:
    """The hearer returns, the socket is gone, and closing, interrupting and ringing again do nothing."""
    bell = SocketBell(journal, 1, alive)
    heard: list[list[bytes]] = []
    begun = threading.Event()

    def hear() -> None:
        heard.append(bell.hear(PATIENCE))
        begun.set()
        heard.append(bell.hear(None))

    ring(journal, 1, b"key")
    hearing = threading.Thread(target=hear, daemon=True)
    hearing.start()
    assert begun.wait(PATIENCE)
    while not bell._hearing.locked():
        assert hearing.is_alive()

    bell.close()
    bell.close()
    hearing.join(PATIENCE)
    bell.interrupt()
    ring(journal, 1, b"key")

    assert [[b"key"], []] == heard
    assert [journal] == list(journal.parent.iterdir())
    with pytest.raises(Closed):
        bell.hear(0)


def test_closing_leaves_no_descriptor(journal: Path) -> None:
    """An opening takes as many as it gives back, rings and all."""
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        bell = SocketBell(journal, 1, alive)
        ring(journal, 1, b"key")
        ring(journal, 2, b"key")
        assert [b"key"] == bell.hear(PATIENCE)
        bell.close()

    assert before == len(os.listdir("/dev/fd"))


def test_collected_bell_is_closed(journal: Path) -> None:
    """The list that is kept for forks keeps no bell, and what was not closed is no warning."""
    bell = SocketBell(journal, 1, alive)
    itself = [bell]
    itself.append(itself)  # type: ignore[arg-type]
    del bell, itself
    gc.collect()

    assert not bell_of(journal, 1).exists()


def test_memory_bell_hears_nobody() -> None:
    """A journal in memory has no file, and no other opening."""
    bell = new_bell(None, 1, alive)

    assert isinstance(bell, MemoryBell)
    assert [] == bell.hear(0.001)

    bell.close()
    bell.close()

    assert [] == bell.hear(None)


def at_length(folder: Path, length: int) -> Path:
    """A journal in folders below, the path of whose bell has this many bytes."""
    ending = len("/j-bell-5")
    while length - len(bytes(folder)) - ending > 1:
        folder /= "f" * min(200, length - len(bytes(folder)) - ending - 1)
    folder.mkdir(parents=True)
    journal = folder / "j"
    journal.touch()
    assert length - 1 <= len(bytes(bell_of(journal, 5))) <= length
    return journal


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="done through /proc")


@LINUX
@pytest.mark.parametrize("length", [106, 107, 108, 109, 300, 3_000])
def test_long_path_is_gone_around(length: int) -> None:
    """Folders may lie as deep as they like: from both sides of the length that an address has."""
    with short_folder() as folder:
        journal = at_length(folder, length)
        with closing(SocketBell(journal, 5, alive)) as bell:
            ring(journal, 5, b"key")

            assert [b"key"] == bell.hear(PATIENCE)
        assert [journal] == list(journal.parent.iterdir())


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a path that is short enough to lengthen it as one likes."""
    with tempfile.TemporaryDirectory(prefix="c") as folder:
        yield Path(folder)


def test_name_that_is_too_long_has_no_bell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, without the name; nobody can ring, and all else works."""
    journal = tmp_path / ("j" * 200)
    journal.touch()
    with closing(SocketBell(journal, 5, alive)) as bell:
        ring(journal, 5, b"key")

        assert [] == bell.hear(0.001)

        bell.interrupt()

        assert [] == bell.hear(None)
    assert [journal] == list(tmp_path.iterdir())
    assert ["no other process can ring this opening, which looks by itself instead: the path is too long"] == caplog.messages


def test_folder_that_takes_no_socket_has_no_bell(journal: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where something is in the way that cannot be removed."""
    bell_of(journal, 5).mkdir()
    with closing(SocketBell(journal, 5, alive)) as bell:
        assert [] == bell.hear(0.001)
    assert bell_of(journal, 5).is_dir()
    assert 1 == len(caplog.messages)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS takes no such names")
@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb", b"[ab]*?", b" ", "ü".encode(), b"%2f", b"-bell-3"])
def test_odd_names(tmp_path: Path, name: bytes) -> None:
    """A name is bytes, and no pattern: in the folder as in the file."""
    folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    folder.mkdir()
    journal = folder / folder.name
    journal.touch()
    left = SocketBell(journal, 4, alive)
    with closing(left), closing(SocketBell(journal, 5, lambda number: number == 5)) as bell:
        ring(journal, 5, b"key")

        assert [b"key"] == bell.hear(PATIENCE)
        assert not bell_of(journal, 4).exists()
        assert bell_of(journal, 5).is_socket()
    assert [journal] == list(folder.iterdir())


FORK = (
    HAS_BELL
    + """
told, tell = os.pipe()
if os.fork() == 0:
    try:
        bell.hear(0)
    except ForkedError:
        os.write(tell, b"refused")
    bell.interrupt()
    bell.close()
    os.close(tell)
    del bell
    signal.pause()
os.close(tell)
with open(told) as child_says:
    say(child_says.read())
say(bell.hear(60)[0].decode())
sys.stdin.read()
"""
)


@pytest.mark.contract("JRN-15")
def test_forked_child_neither_hears_nor_keeps_the_bell(journal: Path) -> None:
    """The child is refused at once; the parent hears on, and when it is dead nobody has the socket."""
    with process(FORK, journal) as running:
        assert "refused" == said(running)
        assert bell_of(journal, 5).is_socket()

        ring(journal, 5, b"key")

        assert "key" == said(running)
        assert listens(bell_of(journal, 5))

        running.kill()
        running.wait()

        assert not listens(bell_of(journal, 5))

        os.killpg(running.pid, 0)  # the child is there still


def test_started_program_does_not_keep_the_bell(journal: Path) -> None:
    """A program that the host starts, even with all descriptors, inherits no socket."""
    program = """
subprocess.Popen((sys.executable, "-c", "print('started', flush=True); input()"), close_fds=False)
sys.stdin.close()
signal.pause()
"""
    with process(HAS_BELL + program, journal) as running:
        assert "started" == said(running)
        assert listens(bell_of(journal, 5))

        running.kill()
        running.wait()

        assert not listens(bell_of(journal, 5))

        os.killpg(running.pid, 0)  # the program is there still


def test_sockets_of_the_dead_are_swept(journal: Path) -> None:
    """What a killed process left is removed by the next; what lives, what is no socket and what is another's stays."""
    others = [
        bell_of(journal, 7),  # a file
        journal.with_name(f"{journal.name}-bell-"),
        journal.with_name(f"{journal.name}-bell-05"),
        journal.with_name(f"{journal.name}-bell-x"),
        journal.with_name(f"{journal.name}-wal"),
        journal.with_name("other.sqlite-bell-5"),
    ]
    for path in others:
        path.touch()
    asked: list[int] = []

    def is_live(opening_id: int) -> bool:
        asked.append(opening_id)
        return opening_id == 3

    with process(HAS_BELL + "say('lives'); sys.stdin.read()", journal) as running, closing(SocketBell(journal, 3, alive)) as live:
        assert "lives" == said(running)
        running.kill()
        running.wait()
        assert bell_of(journal, 5).is_socket()

        with closing(SocketBell(journal, 8, is_live)):
            expected = sorted([journal, bell_of(journal, 3), bell_of(journal, 8), *others])

            assert expected == sorted(journal.parent.iterdir())
            assert [3, 5] == sorted(asked)

        ring(journal, 3, b"key")

        assert [b"key"] == live.hear(PATIENCE)


def test_socket_of_an_earlier_opening_of_the_number_gives_way(journal: Path) -> None:
    """After a restore a number is given again, and its bell may lie there still."""
    with process(HAS_BELL + "say('lives'); sys.stdin.read()", journal) as running:
        assert "lives" == said(running)
        running.kill()
        running.wait()

    with closing(SocketBell(journal, 5, alive)) as bell:
        ring(journal, 5, b"key")

        assert [b"key"] == bell.hear(PATIENCE)


def test_bell_is_as_open_as_the_journal(journal: Path) -> None:
    """Whoever may use the journal may ring, and nobody else; what root makes is its owner's."""
    journal.chmod(0o660)
    if os.geteuid() == 0:
        os.chown(journal, 4321, 1234)
    with closing(SocketBell(journal, 5, alive)):
        made, own = bell_of(journal, 5).stat(), journal.stat()

        assert (0o660, own.st_uid, own.st_gid) == (stat.S_IMODE(made.st_mode), made.st_uid, made.st_gid)


@LINUX
def test_link_in_the_place_of_the_bell_is_not_followed(journal: Path) -> None:
    """Whoever may write in the folder gets no other file changed by root."""
    journal.chmod(0o666)
    other = journal.with_name("other")
    other.touch(0o600)
    bell_of(journal, 5).symlink_to(other)

    _let_ring(bell_of(journal, 5))

    assert 0o600 == stat.S_IMODE(other.stat().st_mode)
