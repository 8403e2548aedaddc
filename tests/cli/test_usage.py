"""Bad input gets one line that names what is wrong and what would be right, status 2, and no traceback."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.rows import change

from .conftest import Shell, message

DELIVER = ("--deliver", "host:deliver")

WRONG = [
    ("nonsense",),
    ("--nonsense",),
    ("run",),
    ("run", "j"),
    ("run", "j", *DELIVER),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--agent-command", "cat"),
    ("run", "j", "--agent", "host:agent"),
    ("run", "j", *DELIVER, "--agent", "host"),
    ("run", "j", *DELIVER, "--agent", "no_such_module:f"),
    ("run", "j", *DELIVER, "--agent", "broken:f"),
    ("run", "j", *DELIVER, "--agent", "host:nothing"),
    ("run", "j", *DELIVER, "--agent", "host:no_function"),
    ("run", "j", *DELIVER, "--agent", "host:two"),
    ("run", "j", *DELIVER, "--agent-command", ""),
    ("run", "j", *DELIVER, "--agent-command", "'open"),
    ("run", "j", *DELIVER, "--agent-command", "no-such-program"),
    ("run", "j", *DELIVER, "--agent-command", "./missing"),
    ("run", "j", *DELIVER, "--agent-command", "./plain"),
    ("run", "j", *DELIVER, "--agent-command", "./no-interpreter"),
    ("run", "j", *DELIVER, "--agent-command", "./lost-interpreter"),
    ("run", "j", *DELIVER, "--agent-command", "./folder"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--agent-timeout", "30"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--deliver-timeout", "0s"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--deliver-timeout", "25h"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--events", "missing"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--events", "folder"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--grants", "missing"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--grants", "bad-grants"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--grants", "twice-grants"),
    ("run", "j", *DELIVER, "--agent", "host:agent", "--grants", "empty-grants"),
    ("run", "folder", *DELIVER, "--agent", "host:agent"),
    ("run", "nowhere/j", *DELIVER, "--agent", "host:agent"),
    ("run", "plain/j", *DELIVER, "--agent", "host:agent"),
    ("run", "", *DELIVER, "--agent", "host:agent"),
    ("run", "mysql://localhost/x", *DELIVER, "--agent", "host:agent"),
    ("unresolved", "j"),
    ("unresolved", ":memory:"),
    ("timeline", "there", "--limit", "0"),
    ("timeline", "there", "--limit", "many"),
    ("timeline", "there", "--after", "nowhere"),
    ("timeline", "there", "--type", "no.type"),
    ("timeline", "there", "--since", "yesterday"),
    ("timeline", "there", "--since", "2026-01-01T00:00:00"),
    ("timeline", "there", "--correlation", "xyz"),
    ("timeline", "there", "--actor", ""),
    ("timeline", "there", "--actor", "x" * 257),
    ("timeline", "there", "--outcome", "well"),
    ("explain", "there"),
    ("explain", "there", "\udcff"),
    ("reconcile", "there", "op-1"),
    ("reconcile", "there", "op-1", "--expect", "one"),
    ("reconcile", "there", "op-1", "--expect", "1", "--reason", "In words"),
    ("reconcile", "there", "op-1", "--expect", "1", "--note", "x" * 4_097),
    ("reconcile", "j", "op-1", "--expect", "1"),
    ("demo", "--keep", "there"),
    ("demo", "--keep", ":memory:"),
]


@pytest.mark.sqlite_only("most of it is about names of files")
@pytest.mark.contract("CLI-03")
def test_wrong_usage_is_one_line_and_nothing_is_made(shell: Shell, snapshot: SnapshotAssertion) -> None:
    """Whatever is wrong on the command line is found before anything is done."""
    shell.program("no-interpreter", "").removeprefix("#!")
    (shell.folder / "no-interpreter").write_text("echo hello\n")
    (shell.folder / "lost-interpreter").write_text("#!/no/such/interpreter\n")
    (shell.folder / "lost-interpreter").chmod(0o755)
    (shell.folder / "plain").write_text("plain\n")
    (shell.folder / "broken.py").write_text("1 / 0\n")
    (shell.folder / "folder").mkdir()
    shell.write("bad-grants", {"actor": "a"})
    shell.write("empty-grants", {"actor": "a", "tenant": "t", "aliases": [], "permissions": [1]})
    shell.write("twice-grants", {"actor": "a", "tenant": "t"}, {"actor": "a", "tenant": "u"})
    shell.here("run", "there", *shell.hosted, "--events", shell.write("none"))

    def there() -> list[str]:
        return sorted(path.name for path in shell.folder.iterdir() if path.name != "__pycache__")

    before = there()
    said = []
    for words in WRONG:
        result = shell.here(*words, status=2)
        assert "" == result.stdout, words
        assert 1 == result.stderr.count("\n"), words
        said.append(f"$ counterfoil {' '.join(words)[:100]}\n{result.stderr}".encode("utf-8", "backslashreplace").decode())

    assert before == there()
    assert snapshot == "".join(said)


@pytest.mark.contract("CLI-03")
@pytest.mark.parametrize("words", [("--help",), ("unresolved", "j"), ("run", "j", "--agent", "host:agent", *DELIVER)])
def test_a_closed_standard_output_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    """Before anything is done, for what is printed is what was asked for."""
    done = closed(shell, ">&-", *words)

    assert (2, "") == (done.returncode, done.stdout)
    assert "counterfoil: standard output is closed; send it to a file, or to /dev/null\n" == done.stderr
    assert not (shell.folder / "j").exists()


def test_a_closed_standard_error_is_no_harm(shell: Shell) -> None:
    """What is said goes nowhere, above all into no file of the journal, and what is printed is printed."""
    events = shell.write("events.jsonl", message("1"), message("2", "raise", "bob"), "bad")
    done = closed(shell, "2>&-", "run", shell.journal, *shell.hosted, "--events", events, "--json")

    assert 1 == done.returncode
    assert (2, 1, 1) == tuple(json.loads(done.stdout)[key] for key in ("accepted", "malformed", "failed"))
    assert 0 == closed(shell, "2>&-", "verify", shell.journal).returncode


def closed(shell: Shell, how: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with a stream closed."""
    command = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "counterfoil", *words]
    return subprocess.run(
        command, cwd=shell.folder, env=shell._environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.sqlite_only("SQLite has locks on files")
@pytest.mark.contract("CLI-03")
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_files_of_the_journal_are_not_read_as_others(shell: Shell, suffix: str) -> None:
    """To close one of them would drop the locks of SQLite."""
    process = shell.start("run", shell.journal, *shell.hosted)
    assert process.stdin is not None
    process.stdin.write("x\n")
    process.stdin.flush()
    assert process.stderr is not None
    process.stderr.readline()
    for option in ("--events", "--grants"):
        result = shell.here("run", shell.journal, *shell.hosted, option, f"./{shell.journal}{suffix}", status=2)
        assert "belongs to the journal" in result.stderr
    process.communicate()


def _is_text(shell: Shell) -> None:
    (shell.folder / "bad").write_text("not a journal, but long enough to be looked at\n" * 100)


def _is_empty_beside_a_wal(shell: Shell) -> None:
    (shell.folder / "bad").touch()
    (shell.folder / "bad-wal").write_bytes(b"x" * 4_096)


def _is_of_another_program(shell: Shell) -> None:
    with closing(sqlite3.connect(shell.folder / "bad")) as connection:
        connection.execute("CREATE TABLE theirs (id)")


def _is_truncated(shell: Shell) -> None:
    whole = (shell.folder / shell.journal).read_bytes()
    (shell.folder / "bad").write_bytes(whole[: len(whole) // 2])


def _is_newer(shell: Shell) -> None:
    (shell.folder / "bad").write_bytes((shell.folder / shell.journal).read_bytes())
    with closing(sqlite3.connect(shell.folder / "bad", isolation_level=None)) as connection:
        connection.execute("UPDATE cf_head SET format = 99")


@pytest.mark.sqlite_only("files are spoiled")
@pytest.mark.parametrize("spoil", [_is_text, _is_empty_beside_a_wal, _is_of_another_program, _is_truncated, _is_newer])
def test_what_is_no_journal_is_refused_by_every_verb(shell: Shell, spoil: Callable[[Shell], None]) -> None:
    """In one line that names the file, with status 1, and without a change to it."""
    shell.feed(message("1"))
    spoil(shell)
    before = (shell.folder / "bad").read_bytes()
    for words in (
        ("unresolved", "bad"),
        ("timeline", "bad"),
        ("explain", "bad", "1"),
        ("stats", "bad"),
        ("verify", "bad"),
        ("reconcile", "bad", "op-1", "--expect", "1"),
        ("run", "bad", *shell.hosted, "--events", "events.jsonl"),
    ):
        result = shell.here(*words, status=1)
        assert "" == result.stdout
        assert re.match(r"counterfoil: (/\S+/)?bad: ", result.stderr)
        assert 1 == result.stderr.count("\n")

    assert before == (shell.folder / "bad").read_bytes()


def test_verify_names_what_does_not_agree(shell: Shell) -> None:
    """Status 3."""
    shell.feed(message("1"), message("2"))
    change(shell.url, "UPDATE cf_event SET connection = 'else' WHERE position = 3")
    result = shell.here("verify", shell.journal, "--json", status=3)

    assert '"agrees": false' in result.stdout
    assert "the digest at position 3" in result.stdout
