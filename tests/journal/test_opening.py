"""What may be opened as a journal, and what is refused, with a sentence that names the file and the reason."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import counterfoil
from counterfoil.domain.errors import (
    CounterfoilError,
    JournalDamaged,
    JournalRefused,
    NotAJournal,
)
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.sqlite.verifying import verify_file

if TYPE_CHECKING:
    from tests.journal.conftest import Host, Processes

pytestmark = pytest.mark.sqlite_only("it is about the files of SQLite")

PAGE = 4096


def refused(path: Path, kind: type[CounterfoilError], words: str, *, readonly: bool | None = None) -> None:
    """Opening is refused, for reading and for writing, with one line, and the file is as it was."""
    before = path.read_bytes() if path.is_file() else None
    beside = neighbours(path)
    for mode in (True, False) if readonly is None else (readonly,):
        with pytest.raises(kind) as caught:
            Core(path, readonly=mode)
        message = str(caught.value)
        assert str(path) in message
        assert words in message, message
        assert "\n" not in message
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert before == (path.read_bytes() if path.is_file() else None)
    assert beside == neighbours(path)


def neighbours(path: Path) -> list[str]:
    """What lies in the folder, but for the files that SQLite keeps to itself."""
    return sorted(each.name for each in path.parent.iterdir() if not each.name.endswith(("-wal", "-shm")))


def alone(path: Path) -> None:
    """Leave nothing beside a journal."""
    for beside in path.parent.glob(path.name + "-*"):
        beside.unlink()


@pytest.mark.contract("JRN-10")
def test_what_is_not_a_journal_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A database of another program, its empty one, a text, a picture, a folder, a pipe."""
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("PRAGMA application_id = 17")
    refused(other, NotAJournal, "another program")

    empty = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute("PRAGMA application_id = 17")
    refused(empty, NotAJournal, "another program")

    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to be read as a header\n" * 100)
    refused(text, NotAJournal, "not an SQLite database")

    short = tmp_path / "short"
    short.write_bytes(b"x")
    refused(short, NotAJournal, "too short")

    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder, JournalRefused, "is a folder")

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(pipe, NotAJournal, "not a regular file")


@pytest.mark.contract("JRN-10")
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.sqlite", JournalRefused, "does not exist", readonly=True)
    with pytest.raises(JournalRefused, match="its folder does not exist"):
        Core(tmp_path / "no" / "journal.sqlite")
    nothing = tmp_path / "nothing.sqlite"
    nothing.touch()
    refused(nothing, NotAJournal, "is empty", readonly=True)


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize("name", ["epoch", "live", "wal"])
def test_an_empty_file_beside_a_side_file_was_a_journal(host: Host, name: str) -> None:
    """Nothing is ever created over."""
    host.path.touch()
    host.path.with_name(f"{host.path.name}-{name}").write_bytes(b"1\n")
    refused(host.path, JournalDamaged, f"{host.path.name}-{name}", readonly=False)


@pytest.mark.contract("JRN-10")
def test_a_missing_file_beside_its_wal_was_a_journal(host: Host) -> None:
    host.path.with_name(f"{host.path.name}-wal").write_bytes(b"x" * 100)
    refused(host.path, JournalDamaged, "missing", readonly=False)


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize("kept", [0.9, 0.5, 0.1])
def test_a_truncated_journal_is_refused(busy_journal: str, kept: float) -> None:
    path = Path(busy_journal)
    alone(path)
    os.truncate(path, int(path.stat().st_size * kept) // PAGE * PAGE)
    refused(path, JournalDamaged, "restore a backup", readonly=True)
    with pytest.raises(JournalDamaged, match="restore a backup"):
        Core(busy_journal)


@pytest.mark.contract("JRN-10")
def test_a_journal_cut_inside_its_header_is_refused(busy_journal: str) -> None:
    path = Path(busy_journal)
    alone(path)
    os.truncate(path, 60)
    refused(path, NotAJournal, "too short to be a journal (60 bytes)")
    assert 60 == path.stat().st_size


def garble(path: Path, table: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize("table", ["cf_event", "cf_head", "cf_projection"])
def test_a_garbled_page_is_named_when_it_is_met(busy_journal: str, table: str, host: Host) -> None:
    garble(Path(busy_journal), table)
    with pytest.raises(JournalDamaged, match="malformed"), closing(Core(busy_journal)) as core:
        host.admit(core, "more")


@pytest.mark.contract("JRN-10")
def test_deeper_damage_is_named_when_it_is_met_and_found_by_verify(busy_journal: str, host: Host) -> None:
    """The journal opens; what does not touch the damage goes on."""
    garble(Path(busy_journal), "cf_payload")
    assert not verify_file(Path(busy_journal)).agrees
    core = host.open()
    assert 0 < host.position(core)
    with pytest.raises(JournalDamaged, match="malformed"):
        host.admit(core, "more")


# Rights.


@pytest.fixture
def shared(busy_journal: str) -> Iterator[Path]:
    """A copy of a journal where another user finds it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    copy = folder / "journal.sqlite"
    shutil.copyfile(busy_journal, copy)
    yield copy
    folder.chmod(0o777)
    shutil.rmtree(folder)


AS_ANOTHER = """
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for readonly in (True, False):
    try:
        core = Core(sys.argv[1], readonly=readonly)
        try:
            say("read", core.read(lambda store: store.head().position))
            if not readonly:
                say(run(core, message("more")).admission.status)
        finally:
            core.close()
    except JournalRefused as error:
        say("refused:", error)
"""


@pytest.mark.contract("JRN-10")
def test_a_journal_without_permission_is_refused(shared: Path, processes: Processes) -> None:
    shared.chmod(0o000)
    said = processes.run(AS_ANOTHER, shared).splitlines()
    assert 2 == len(said), said
    assert all(line.startswith(f"refused: {shared}") for line in said), said


@pytest.mark.contract("JRN-10")
def test_a_journal_that_may_only_be_read_is_refused_for_writing_alone(shared: Path, processes: Processes) -> None:
    shared.chmod(0o444)
    said = processes.run(AS_ANOTHER, shared).splitlines()
    assert said[0].startswith("read "), said
    assert said[1].startswith(f"refused: {shared}"), said
    assert 2 == len(said), said


@pytest.mark.contract("JRN-10")
def test_a_journal_in_a_folder_that_may_not_be_written_is_refused(shared: Path, processes: Processes) -> None:
    """SQLite cannot even read it there, and the sentence says so."""
    shared.chmod(0o444)
    shared.parent.chmod(0o555)
    said = processes.run(AS_ANOTHER, shared).splitlines()
    assert all(line.startswith(f"refused: {shared}") for line in said), said
    assert "its folder may not be written" in said[0]


@pytest.mark.contract("JRN-01", "LCK-03")
def test_a_journal_that_is_exchanged_while_it_is_open_takes_nothing_more(tmp_path: Path) -> None:
    path, other = tmp_path / "journal.sqlite", tmp_path / "other.sqlite"
    grant = counterfoil.Grant(identity=counterfoil.Identity(tenant="acme", principal="ann", verified=True), aliases=["helper"])
    inbound = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")
    with counterfoil.open(other) as journal:
        journal.admit(inbound, grant)
    with counterfoil.open(path) as journal:
        journal.admit(inbound, grant)
        other.replace(path)

        assert "unavailable" == journal.admit(inbound, grant).reason
        with pytest.raises(counterfoil.JournalRefused, match="exchanged while it was open"):
            journal.acting_as(grant.identity).erase_scope()


@pytest.mark.contract("JRN-01", "ADM-02", "ADM-07")
def test_repeats_are_answered_where_a_process_was_killed_before_its_commit(host: Host) -> None:
    """It had kept aside a position that nobody has seen; an opening that appends nothing does not take it for the head."""
    first = host.open()
    for _ in range(2):
        host.admit(first, "e1")
    position = host.position(first)
    host.close()
    Path(f"{host.path}-head").write_bytes(b"%020d\n" % (position + 4))
    core = host.open()

    assert [True] * 3 == [host.admit(core, "e1").admission.duplicate for _ in range(3)]
    assert position + 5 < (host.admit(core, "e2").admission.position or 0)
    assert verify_file(host.path).agrees


@pytest.mark.parametrize("readonly", [False, True], ids=["writing", "readonly"])
def test_what_is_refused_is_not_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readonly: bool) -> None:
    """Its first statements fail already, on a file that is no database."""
    path = tmp_path / "journal.sqlite"
    path.write_text("not a database" * 100)
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def keeping(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", keeping)
    with pytest.raises(NotAJournal):
        Core(path, readonly=readonly)

    assert opened
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


@pytest.mark.contract("JRN-09")
def test_a_journal_is_made_when_somebody_else_has_the_empty_file_locked_for_a_moment(host: Host) -> None:
    """SQLite gives up at once when it cannot lock a file whose mode it is to change; whoever makes the journal waits for that."""
    host.path.touch()
    with closing(sqlite3.connect(host.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = threading.Timer(0.2, lambda: other.execute("COMMIT"))
        done.start()
        core = host.open()
        done.join()

    assert "accepted" == host.admit(core, "e1").admission.status
