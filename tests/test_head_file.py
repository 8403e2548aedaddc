"""The highest position beside a journal, and what an older copy of the journal gives out after it was put back."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from counterfoil.domain.errors import Closed, JournalDamaged, JournalRefused, JournalUnavailable
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.opening import OpeningEpochRaised
from counterfoil.domain.turn import Answer
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.recording import RecordForeign
from counterfoil.infrastructure.commands.turn import Claim, Settle
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.sqlite.descriptor import side_file
from counterfoil.infrastructure.sqlite.kept_aside import EpochFile, HeadFile, HighestPosition, MemoryHead
from counterfoil.infrastructure.sqlite.verifying import verify_file
from counterfoil.testing import MovableClock
from tests.sqlite import sqlite_engine

pytestmark = pytest.mark.sqlite_only("it is a file beside the journal")

ROOT = Path(__file__).parents[1]
VERIFIER = Path(__file__).with_name("independent_verifier.py")
GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a journal."""
    return tmp_path / "journal.sqlite"


@pytest.fixture
def head(path: Path) -> Path:
    """The path of the head file of a journal that exists."""
    path.touch()
    return side_file(path, "head")


# The file.


def test_the_highest_position_outlives_who_wrote_it(head: Path) -> None:
    """It is 0 before anything was kept, and what was kept last afterwards, for everybody who has it open."""
    with closing(HeadFile(head)) as first, closing(HeadFile(head)) as second:
        assert (0, 0) == (first.read(), second.read())
        for position in (1, 2**62, 7):
            first.write(position)
            assert (position, position) == (first.read(), second.read())
    with closing(HeadFile(head)) as third:
        assert 7 == third.read()
    assert 7 == int(head.read_text("ascii"))


def test_a_journal_in_memory_keeps_none() -> None:
    """Nobody puts a copy of it back."""
    memory: HighestPosition = MemoryHead()
    memory.write(7)
    assert 0 == memory.read()
    memory.close()


@pytest.mark.parametrize("text", [b"", bytes(21)], ids=["empty", "noughts"])
def test_what_a_power_cut_leaves_of_it_says_nothing(head: Path, text: bytes) -> None:
    """It was not synced: there may be less of it than was written, or a length without the bytes."""
    head.write_bytes(text)
    with closing(HeadFile(head)) as file:
        assert 0 == file.read()
        file.write(7)
        assert 7 == file.read()


@pytest.mark.parametrize("text", [b"7\n", b"%020d" % 7, b"%021d\n" % 7, b"-%019d\n" % 7, b"x" * 21, b" " * 21])
def test_anything_else_in_it_is_named(head: Path, text: bytes) -> None:
    """With the cure; it is never taken for a lower position."""
    head.write_bytes(text)
    with closing(HeadFile(head)) as file, pytest.raises(JournalDamaged, match="put it back from a backup") as damaged:
        file.read()
    assert str(damaged.value).startswith(f"{head} does not hold a position")


def test_a_folder_that_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(JournalRefused, match=r"nowhere/journal-head cannot be opened"):
        HeadFile(tmp_path / "nowhere" / "journal-head")


def test_it_is_as_open_as_the_journal(head: Path, path: Path) -> None:
    """Whoever may use the journal may use its side files, and nobody else."""
    path.chmod(0o660)
    HeadFile(head).close()
    assert 0o660 == stat.S_IMODE(head.stat().st_mode)


@pytest.mark.parametrize("function", ["pread", "pwrite"])
def test_a_disk_that_fails_is_unavailable(head: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Like every other failure of the store, and without the system's own error in it."""

    def fail(*values: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with closing(HeadFile(head)) as file:
        monkeypatch.setattr(os, function, fail)
        with pytest.raises(JournalUnavailable, match=r"journal\.sqlite-head: .*Input/output error.*try again"):
            file.read() if function == "pread" else file.write(7)


def test_a_closed_one_says_so(head: Path) -> None:
    file = HeadFile(head)
    file.close()
    with pytest.raises(Closed):
        file.read()
    with pytest.raises(Closed):
        file.write(7)


# A journal and what lies beside it.


@dataclass
class Seen:
    """What somebody who looked at a journal all the time has seen of it."""

    positions: set[int] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    fences: list[int] = field(default_factory=list)

    def look(self, core: Core) -> None:
        for event in events(core):
            self.positions.add(event.position)
            raised = event.recorded.event
            if isinstance(raised, OpeningEpochRaised):
                self.epochs.add(raised.epoch)


@dataclass
class Journal:
    """A journal that is worked on, copied aside and put back."""

    path: Path
    clock: MovableClock | None = None

    @property
    def copy(self) -> Path:
        return self.path.with_name("older.sqlite")

    @contextmanager
    def opened(self, seen: Seen | None = None) -> Iterator[Core]:
        """Open it, and let somebody look when it is closed."""
        with closing(Core(self.path, clock=self.clock)) as core:
            yield core
        if seen is not None:
            with closing(Core(self.path, readonly=True)) as core:
                seen.look(core)

    def copy_aside(self) -> None:
        shutil.copy(self.path, self.copy)

    def put_back(self) -> None:
        """Put the older copy in its place; what lies beside it stays, but for SQLite's own."""
        for name in ("wal", "shm"):
            side_file(self.path, name).unlink(missing_ok=True)
        shutil.copy(self.copy, self.path)

    def agrees(self) -> bool:
        """Ask both verifiers."""
        verification = verify_file(self.path)
        assert verification.agrees, verification
        command = [sys.executable, "-I", str(VERIFIER), str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (0, "") == (done.returncode, done.stderr), done.stdout
        return True


@pytest.fixture
def journal(path: Path) -> Journal:
    return Journal(path)


def run(core: Core, command: Any) -> Any:
    return core.committer.submit(command).result(30)


def admit(core: Core, event_id: str, text: str = "hello") -> int:
    """Admit a message on a route of its own, and return the position of its admission."""
    inbound = Inbound(connection="tg", conversation=event_id, actor="ann", event_id=event_id, text=text)
    position: int = run(core, AdmitInbound(inbound, GRANT, "agent")).position
    return position


def claim(core: Core, event_id: str) -> int:
    """Take a message as far as its settlement, and return the fence that was given for it."""
    inbound = Inbound(connection="tg", conversation=event_id, actor="ann", event_id=event_id, text="hello")
    admitted = run(core, AdmitInbound(inbound, GRANT, "agent"))
    claimed = run(core, Claim(admitted.route, admitted.position))
    fence: int = claimed.fence
    assert "settled" == run(core, Settle(claimed.operation.operation_id, fence, Answer("succeeded", reply="hi"))).found
    return fence


def events(core: Core, after: int = 0) -> list[EventRow]:
    return core.read(lambda store: store.events_after(after, 10_000))


def gaps(core: Core) -> list[str]:
    """The types of the events before which positions were passed over."""
    positions = [0] + [event.position for event in events(core)]
    return [event.type for before, event in zip(positions, events(core), strict=False) if event.position != before + 1]


def kept(path: Path) -> int:
    with closing(HeadFile(side_file(path, "head"))) as file:
        return file.read()


# An older copy.


@pytest.mark.contract("JRN-01", "LCK-02", "LCK-03", "JRN-13")
@pytest.mark.parametrize("how", ["clock runs", "clock set back", "no older epoch beside"])
def test_an_older_copy_gives_neither_positions_nor_fences_out_again(path: Path, how: str) -> None:
    """
    However often it is put back, and however far: what anybody has seen is below what comes after.

    With the clock set back the epoch is above those before because of its side file; without the file because of the clock.
    """
    clock = MovableClock()
    journal, seen = Journal(path, clock), Seen()
    with journal.opened(seen) as core:
        seen.fences.append(claim(core, "first"))
    journal.copy_aside()
    for life in range(4):
        if life:
            journal.put_back()
        if how == "no older epoch beside":
            side_file(path, "epoch").unlink()
        clock.set_back("1h") if how == "clock set back" else clock.advance("1s")
        last, epoch = max(seen.positions), max(seen.epochs)
        with journal.opened(seen) as core:
            older = core.read(lambda store: store.head().position)
            fences = [claim(core, f"{life}-{number}") for number in range(3 - life // 2)]
            fences.append(claim(core, "again"))
            positions = [event.position for event in events(core, older)]
            assert (["opening.started"] if life else []) == gaps(core)
        assert list(range(last + 1, last + 1 + len(positions))) == positions
        assert {epoch} < {each for each in seen.epochs if each >= epoch}
        assert max(seen.fences) < min(fences)
        seen.fences += fences
        assert journal.agrees()

    assert sorted(set(seen.fences)) == seen.fences


@pytest.mark.contract("JRN-01")
def test_what_was_moved_away_and_begun_anew_gives_no_position_out_again(journal: Journal) -> None:
    """A new journal where an older one was is no older copy, but nobody who followed the older one can tell."""
    seen = Seen()
    with journal.opened(seen) as core:
        seen.fences.append(claim(core, "first"))
    for name in ("wal", "shm"):
        side_file(journal.path, name).unlink(missing_ok=True)
    journal.path.unlink()
    with journal.opened() as core:
        assert max(seen.fences) < claim(core, "first")
        assert max(seen.positions) + 1 == events(core)[0].position
        assert ["opening.started"] == gaps(core)
    assert journal.agrees()


@pytest.mark.contract("JRN-01", "JRN-14")
def test_a_recorder_on_an_older_copy_gives_no_position_out_again(journal: Journal) -> None:
    """It begins no opening: the gap stands before what it records first, and there is no other after it."""
    seen = Seen()
    with journal.opened(seen) as core:
        run(core, RecordForeign([("theirs", 1, "topic", b"")]))
    journal.copy_aside()
    with journal.opened(seen) as core:
        run(core, RecordForeign([("theirs", version, "lost", b"") for version in (2, 3, 4)]))
    journal.put_back()
    with journal.opened() as core:
        assert [max(seen.positions) + 1] == run(core, RecordForeign([("theirs", 2, "topic", b"")]))
        assert max(seen.positions) + 4 == admit(core, "e1")
        assert ["topic"] == gaps(core)
    assert journal.agrees()


class Failing:
    """A connection whose COMMIT fails."""

    def __init__(self, connection: sqlite3.Connection, how: Callable[[], None]) -> None:
        self._connection = connection
        self._how = how
        self.armed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT" and self.armed:
            self._how()
        return self._connection.execute(sql, *values)


def refuse() -> None:
    raise sqlite3.OperationalError("disk I/O error")


@contextmanager
def failing(core: Core) -> Iterator[None]:
    """Let each COMMIT fail meanwhile."""
    writer = sqlite_engine(core)._writer
    sqlite_engine(core)._writer = Failing(writer, refuse)  # type: ignore[assignment]
    yield
    sqlite_engine(core)._writer = writer


@pytest.mark.contract("JRN-01", "ADM-07")
@pytest.mark.parametrize("closed_between", [False, True])
def test_an_older_copy_whose_first_commits_fail_gives_no_position_out_again(journal: Journal, closed_between: bool) -> None:
    """What was passed over stays so, in the same process and for the next one."""
    seen = Seen()
    with journal.opened(seen) as core:
        admit(core, "e1")
    journal.copy_aside()
    with journal.opened(seen) as core:
        admit(core, "e2")
    journal.put_back()
    with journal.opened() as core:
        with failing(core):
            for _ in range(2):
                with pytest.raises(JournalUnavailable, match="nothing of it is there"):
                    admit(core, "e3")
        assert max(seen.positions) == kept(journal.path)
        if not closed_between:
            assert max(seen.positions) + 3 == admit(core, "e3")
    if closed_between:
        with journal.opened() as core:
            assert max(seen.positions) + 3 == admit(core, "e3")
            assert ["opening.started"] == gaps(core)
    assert journal.agrees()


# No gap without an older copy.


@pytest.mark.contract("JRN-01", "ADM-07")
def test_a_full_disk_leaves_no_gap_in_a_running_process(journal: Journal) -> None:
    """The file may not grow (`max_page_count`), then it may again; the opening that follows leaves none either."""
    with journal.opened() as core:
        before = admit(core, "e1")
        count = sqlite_engine(core)._writer.execute("PRAGMA page_count").fetchone()[0]
        sqlite_engine(core)._writer.execute(f"PRAGMA max_page_count = {count}")
        for number in range(3):
            with pytest.raises(JournalUnavailable, match="the disk is full"):
                admit(core, f"f{number}", "x" * 30_000)
        assert before == kept(journal.path)
        sqlite_engine(core)._writer.execute("PRAGMA max_page_count = 1000000")
        assert before + 1 == admit(core, "f0", "x" * 30_000)
    with journal.opened() as core:
        admit(core, "e2")
        assert [] == gaps(core)
    assert journal.agrees()


@pytest.mark.contract("JRN-01", "ADM-07")
def test_a_failed_commit_leaves_no_gap(journal: Journal) -> None:
    """Neither in the process whose commits failed, nor in one that is opened after it."""
    with journal.opened() as core:
        with failing(core), pytest.raises(JournalUnavailable):
            admit(core, "e1")
        assert 0 == kept(journal.path)
        assert 3 == admit(core, "e1")
        with failing(core), pytest.raises(JournalUnavailable):
            admit(core, "e2")
        assert 3 == kept(journal.path)
        assert 4 == admit(core, "e2")
        with failing(core), pytest.raises(JournalUnavailable):
            admit(core, "e3")
        assert 4 == kept(journal.path)
    with journal.opened() as core:
        admit(core, "e3")
        assert [] == gaps(core)
    assert journal.agrees()


@pytest.mark.contract("JRN-01", "ADM-07")
def test_a_head_file_that_cannot_be_written_is_unavailable(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is appended whose position is not kept, and the next append is good."""
    with journal.opened() as core:
        admit(core, "e1")

        def fail(*values: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            with pytest.raises(JournalUnavailable, match="No space left on device"):
                admit(core, "e2")
        assert 3 == core.read(lambda store: store.head().position)
        assert 4 == admit(core, "e2")
    assert journal.agrees()


@pytest.mark.contract("JRN-01", "JRN-03")
def test_a_process_that_is_killed_in_its_commit_costs_nobody_else_a_position(journal: Journal) -> None:
    """Who runs beside it goes on without a gap; so does the next opening, since the other has kept a position after it."""
    with journal.opened() as core:
        admit(core, "e1")
        killed_in_its_commit(journal.path)
        assert 3 + 3 == kept(journal.path)  # what it would have appended: its opening's two, and the admission
        assert 4 == admit(core, "e2")
    with journal.opened() as core:
        admit(core, "e3")
        assert [] == gaps(core)
    assert journal.agrees()


@pytest.mark.contract("JRN-01", "JRN-03", "JRN-13")
def test_a_process_that_is_killed_in_its_commit_may_leave_a_gap_to_the_next_opening(journal: Journal) -> None:
    """Nobody can tell afterwards whether anybody had seen what it appended."""
    with journal.opened() as core:
        admit(core, "e1")
    killed_in_its_commit(journal.path)
    before = kept(journal.path)
    with journal.opened() as core:
        assert before + 3 == admit(core, "e2")
        assert ["opening.started"] == gaps(core)
    assert journal.agrees()


def killed_in_its_commit(path: Path) -> None:
    """Let another process admit something and be killed before COMMIT has done anything."""
    program = """
        import os, signal, sys
        sys.path.insert(0, os.path.dirname(sys.argv[2]))
        import test_head_file as tests
        core = tests.Core(sys.argv[1])
        core.engine._writer = tests.Failing(core.engine._writer, lambda: os.kill(os.getpid(), signal.SIGKILL))
        tests.admit(core, "killed")
        """
    lines = "\n".join(line.strip() for line in program.splitlines())
    command = [sys.executable, "-c", lines, str(path), __file__]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert -signal.SIGKILL == done.returncode, done.stderr


@pytest.mark.contract("JRN-01")
@pytest.mark.parametrize("text", [None, b"", b"%020d\n" % 1], ids=["missing", "empty", "behind"])
def test_a_head_file_that_is_behind_the_journal_says_nothing(journal: Journal, text: bytes | None) -> None:
    """After a power cut, or where only the journal was carried to."""
    with journal.opened() as core:
        assert 3 == admit(core, "e1")
    if text is None:
        side_file(journal.path, "head").unlink()
    else:
        side_file(journal.path, "head").write_bytes(text)
    with journal.opened() as core:
        last = admit(core, "e2")
        assert [] == gaps(core)
        assert last == kept(journal.path)
    assert journal.agrees()


@pytest.mark.contract("LCK-03")
def test_the_epoch_beside_the_journal_is_the_newest(journal: Journal) -> None:
    seen = Seen()
    for number in range(3):
        with journal.opened(seen) as core:
            admit(core, f"e{number}")
    assert 3 == len(seen.epochs)
    assert max(seen.epochs) == EpochFile(side_file(journal.path, "epoch")).read()
