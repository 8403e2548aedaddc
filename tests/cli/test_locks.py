"""`counterfoil locks`: who holds what and who waits, what happened to a key, and taking it away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

import counterfoil
from counterfoil.infrastructure.cli import locks as verbs
from counterfoil.infrastructure.cli.group import cli
from counterfoil.infrastructure.cli.locks import locks

from .conftest import Shell, message
from .test_help import HEAVY, loaded_by

PATIENCE = 30.0
KEY = "-1001234"
"""A chat as Telegram numbers them, so that it looks like an option."""
TAKE = ("summaries", "--yes", "--", KEY)


@pytest.fixture
def journal(shell: Shell) -> Iterator[counterfoil.Journal]:
    with counterfoil.open(shell.url) as opened:
        yield opened


@contextmanager
def waiting(journal: counterfoil.Journal, key: str, count: int = 1) -> Iterator[None]:
    """So many wait in line for a key of `summaries`, until the block ends and the key is free."""
    lock = journal.lock("summaries")

    def wait() -> None:
        with lock.hold(key, wait="1h"):
            pass

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + PATIENCE
    while len(lock.waiters()) < count:
        assert time.monotonic() < give_up
        time.sleep(0.005)  # another thread stands in line then
    yield
    for thread in threads:
        thread.join(PATIENCE)


def words_of(*words: str) -> tuple[str, ...]:
    """Put the journal where a verb wants it."""
    verb, *rest = words
    return "locks", verb, Shell.NAME, *rest


def take(shell: Shell, *words: str, status: int = 0) -> Any:
    return shell.here(*words_of("release", *words), status=status)


@pytest.mark.contract("CLI-02")
def test_tables(shell: Shell, journal: counterfoil.Journal, snapshot: SnapshotAssertion) -> None:
    """Who holds, who waits, and what happened; nothing in a key moves the cursor of a terminal."""
    with ExitStack() as stack:
        stack.enter_context(journal.lock("imports").hold("eve\x1b[2J"))
        with journal.lock("summaries").hold(KEY):
            stack.enter_context(waiting(journal, KEY, 2))
            listed = shell.here(*words_of("list", "--waiters")).stdout
    told = shell.here(*words_of("history", "summaries", "--newest-first", "--", KEY)).stdout

    assert snapshot == re.sub(" {2,}", "  ", shell.masked(f"{listed}\n{told}"))
    assert "\x1b" not in listed


@pytest.mark.contract("CLI-02", "LCK-13")
def test_holders_and_waiters_for_programs(shell: Shell, journal: counterfoil.Journal) -> None:
    """As the library tells them; of one lock, if it is named."""

    def listed(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(shell.here(*words_of("list", "--json", *words)).stdout)
        return found

    with ExitStack() as stack:
        stack.enter_context(journal.lock("imports").hold("x"))
        with journal.lock("summaries").hold(KEY) as lease:
            stack.enter_context(waiting(journal, KEY))
            everything, some, none = listed(), listed("--lock", "summaries"), listed("--lock", "others")
            holders, waiters = journal.holders(), journal.waiters()

    for row, holder in zip(everything["rows"], holders, strict=True):
        assert row == {**holder.to_json(), "remaining_seconds": row["remaining_seconds"]}  # which the time between changes
        assert 0 < row["remaining_seconds"] <= 30
    assert [waiter.to_json() for waiter in waiters] == everything["waiters"]
    assert ["imports", "summaries"] == [row["lock"] for row in everything["rows"]]
    assert [(KEY, lease.fence_text)] == [(row["key"], row["fence"]) for row in some["rows"]]
    assert [(KEY, 1)] == [(row["key"], row["place"]) for row in some["waiters"]]
    assert {"rows": [], "next": None, "waiters": []} == none


def test_nobody_holds_and_nobody_waits(shell: Shell, journal: counterfoil.Journal) -> None:
    """Leases of those who are gone are not listed; that nothing is there is talk."""
    with journal.lock("summaries").hold(KEY):
        pass
    result = shell.here(*words_of("list", "--waiters"))
    history = shell.here(*words_of("history", "summaries", "another"))

    assert ("", "Nobody holds a key.\nNobody waits for a key.\n") == (result.stdout, result.stderr)
    assert ("", "Nothing has happened to this key.\n") == (history.stdout, history.stderr)


def test_routes_are_listed_by_their_leases(shell: Shell) -> None:
    """While a turn runs, with the id that events have."""
    lines = shell.write("events.jsonl", message("1", "stick"))
    process = shell.start("run", shell.journal, "--events", lines, *shell.hosted)
    assert process.stdout is not None
    process.stdout.readline()  # it runs its turn
    (row,) = shell.rows(*words_of("list", "--lock", "counterfoil.route"))
    table = shell.here(*words_of("list")).stdout

    assert ("counterfoil.route", None) == (row["lock"], row["key"])
    assert row["lease_id"] in table


@pytest.mark.contract("LCK-13")
def test_history_comes_in_pages(shell: Shell, journal: counterfoil.Journal) -> None:
    lock = journal.lock("summaries")
    for _ in range(3):
        with lock.hold("k"):
            pass
    rows = shell.rows(*words_of("history", "summaries", "k"))
    first = json.loads(shell.here(*words_of("history", "summaries", "k", "--json", "--limit", "4")).stdout)
    rest = json.loads(shell.here(*words_of("history", "summaries", "k", "--json", "--after", first["next"])).stdout)
    told = shell.here(*words_of("history", "summaries", "k", "--limit", "4"))

    assert [event.to_json() for event in lock.history("k").rows] == rows
    assert (rows[:4], rows[4:], None) == (first["rows"], rest["rows"], rest["next"])
    assert rows[::-1] == shell.rows(*words_of("history", "summaries", "k", "--newest-first"))
    assert f"There is more: go on with --after {first['next']}\n" == told.stderr


@pytest.mark.contract("LCK-10", "CLI-02", "IDN-05")
def test_a_key_is_taken_from_its_holder(shell: Shell, journal: counterfoil.Journal) -> None:
    """The holder is fenced out, and the operator, the reason and the time are on record."""
    with pytest.raises(counterfoil.LeaseLost, match="revoked"), journal.lock("summaries").hold(KEY):
        result = take(shell, "--reason", "stuck", *TAKE)
    (event,) = shell.rows("timeline", shell.journal, "--type", "lock.revoked")

    assert "It was taken from its holder.\n" == result.stdout
    assert ("operator", "cli", "stuck") == (event["actor_kind"], event["actor"], event["detail"]["reason"])
    assert ["granted", "revoked"] == [row.happened for row in journal.lock("summaries").history(KEY).rows]


def test_a_release_for_programs(shell: Shell, journal: counterfoil.Journal) -> None:
    """The object goes to standard output, the sentence elsewhere."""
    with pytest.raises(counterfoil.LeaseLost), journal.lock("summaries").hold(KEY):
        done = take(shell, "--json", *TAKE)
    again = take(shell, "--json", *TAKE, status=5)

    assert {"lock": "summaries", "released": True} == json.loads(done.stdout)
    assert {"lock": "summaries", "released": False} == json.loads(again.stdout)
    assert "taken from its holder" in done.stderr


@pytest.mark.contract("CLI-02")
def test_a_key_that_nobody_holds_is_status_5(shell: Shell, journal: counterfoil.Journal) -> None:
    """Never held, and let go; the key is not repeated, and nothing is appended."""
    with journal.lock("summaries").hold("another"):
        pass
    before = journal.position()
    for key in (KEY, "another"):
        result = take(shell, "summaries", "--yes", "--", key, status=5)
        assert "nobody holds this key" in result.stderr
        assert key not in result.stderr

    assert before == journal.position()


@pytest.mark.contract("CLI-03")
def test_without_a_terminal_it_must_be_said(shell: Shell, journal: counterfoil.Journal) -> None:
    """Status 2 without --yes, and the lease stands."""
    with journal.lock("summaries").hold(KEY) as lease:
        result = take(shell, "summaries", "--", KEY, status=2)
        lease.extend()

    assert "add --yes" in result.stderr
    assert (0, 1) == (result.stdout.count("\n"), result.stderr.count("\n"))


def at_a_terminal(shell: Shell, given: str, meanwhile: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Release the key from a terminal, and answer; something may happen while the question stands."""
    ours, theirs = os.openpty()
    try:
        process = shell.start(*words_of("release", "summaries", "--", KEY), stdin=theirs)
        if meanwhile is not None:
            assert process.stderr is not None
            process.stderr.readline()  # it has looked
            meanwhile()
        os.write(ours, given.encode())
        out, err = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    return subprocess.CompletedProcess((), process.returncode, out, err)


@pytest.mark.contract("CLI-03")
def test_at_a_terminal_it_asks_first(shell: Shell, journal: counterfoil.Journal) -> None:
    """With who has it and since when; without a yes nothing is changed. The question is talk, and names no key."""
    with suppress(counterfoil.LeaseLost), journal.lock("summaries").hold(KEY) as lease:
        (holder,) = journal.holders()
        said_no, said_nothing = at_a_terminal(shell, "n\n"), at_a_terminal(shell, "\x04")
        lease.extend()
        said_yes = at_a_terminal(shell, "y\n")
    assert "revoked" == lease._held.reason
    nobody = at_a_terminal(shell, "y\n")

    assert [1, 130, 0, 5] == [each.returncode for each in (said_no, said_nothing, said_yes, nobody)]
    assert f"Opening {holder.opening_id}, which is alive, has it since {holder.since:%Y-%m-%d %H:%M:%S}" in said_no.stderr
    assert said_no.stderr.endswith("Nothing was changed.\n")
    assert ["", "It was taken from its holder.\n"] == [said_no.stdout, said_yes.stdout]
    assert KEY not in said_no.stderr + said_yes.stderr


@pytest.mark.contract("CLI-02")
def test_who_got_the_key_while_the_question_stood_keeps_it(shell: Shell, journal: counterfoil.Journal) -> None:
    """The answer was about another: status 4."""
    lock = journal.lock("summaries")
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(lock.hold(KEY))

        def change_hands() -> None:
            first.close()
            second.enter_context(lock.hold(KEY))

        result = at_a_terminal(shell, "y\n", change_hands)

    assert 4 == result.returncode
    assert "another has got it while" in result.stderr
    assert ["granted", "released"] * 2 == [row.happened for row in lock.history(KEY).rows]


@pytest.mark.contract("CLI-02")
def test_who_gets_the_key_at_the_last_moment_keeps_it(
    shell: Shell, journal: counterfoil.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has it is compared in the same step as it is taken away, however late it changes hands."""
    lock, force_release = journal.lock("summaries"), counterfoil.Lock.force_release
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(lock.hold(KEY))
        (seen,) = journal.holders()

        def change_hands(*words: Any, **options: Any) -> bool:
            first.close()
            second.enter_context(lock.hold(KEY))
            return force_release(*words, **options)

        monkeypatch.setattr(counterfoil.Lock, "force_release", change_hands)
        monkeypatch.setattr(verbs, "_look", lambda *_: seen)
        monkeypatch.setattr(verbs, "_is_wanted", lambda _: True)
        status = verbs._release(shell.url, "summaries", KEY, "operator", ask=True)

    assert 4 == status
    assert ["granted", "released"] * 2 == [row.happened for row in lock.history(KEY).rows]


WRONG: tuple[tuple[str, ...], ...] = (
    ("locks",),
    ("locks", "nonsense"),
    ("locks", "--nonsense"),
    ("locks", "list"),
    ("locks", "list", "missing"),
    words_of("list", "--lock", "No.Name"),
    words_of("history", "summaries"),
    words_of("history", "counterfoil.route", "lk-0"),
    words_of("history", "summaries", KEY),
    words_of("history", "summaries", "k", "--after", "nowhere"),
    words_of("history", "summaries", "k", "--limit", "0"),
    words_of("release", "counterfoil.route", "lk-0", "--yes"),
    words_of("release", "summaries", KEY, "--yes"),
    words_of("release", "summaries", "k", "--nonsense"),
    words_of("release", "summaries", "", "--yes"),
    words_of("release", "summaries", "x" * 1_025, "--yes"),
    words_of("release", "summaries", "\udcff", "--yes"),
    words_of("release", "summaries", "k", "--reason", "In words", "--yes"),
)


@pytest.mark.contract("CLI-03")
def test_wrong_usage_is_one_line(shell: Shell, journal: counterfoil.Journal, snapshot: SnapshotAssertion) -> None:
    """It names what is wrong and what would be right, and no key."""
    said = []
    with journal.lock("summaries").hold("k") as lease:
        for words in WRONG:
            result = shell.here(*words, status=2)
            assert ("", 1) == (result.stdout, result.stderr.count("\n")), words
            said.append(f"$ counterfoil {' '.join(words)[:100]}\n{result.stderr}".encode("utf-8", "backslashreplace").decode())
        lease.extend()

    assert snapshot == "".join(said)


@pytest.mark.contract("IDN-05")
def test_looking_changes_nothing(shell: Shell, journal: counterfoil.Journal) -> None:
    with journal.lock("summaries").hold(KEY):
        before = journal.position()
        shell.here(*words_of("list", "--waiters"))
        shell.here(*words_of("history", "summaries", "--", KEY))
        assert before == journal.position()


@pytest.mark.no_engine("help is of no journal")
@pytest.mark.parametrize("verb", list(locks.commands))
def test_help_of_a_verb(verb: str, snapshot: SnapshotAssertion) -> None:
    assert snapshot == CliRunner().invoke(cli, ["locks", verb, "--help"], prog_name="counterfoil", terminal_width=100).output
    assert all(each.help for each in locks.commands[verb].params if isinstance(each, click.Option))


@pytest.mark.no_engine("help is of no journal")
@pytest.mark.contract("CLI-04")
@pytest.mark.parametrize("verb", ["list", "history", "release"])
def test_help_loads_nothing_heavy(verb: str, tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "locks", verb, "--help")

    assert not [name for name in HEAVY if name in loaded]
