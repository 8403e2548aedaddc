"""`counterfoil reconcile`: what it files, what it sends, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from click.testing import Result

from tests.engines import Engine

from .conftest import Shell, message

RISK = "--acknowledge-duplicate-risk"
SENDING = ("--deliver", "host:deliver")


@pytest.fixture
def failed(shell: Shell) -> Shell:
    """A journal with a reply that did not arrive."""
    shell.feed(message("1", "refuse"))
    return shell


@pytest.fixture
def unknown(shell: Shell) -> Shell:
    """A journal with a reply of which nobody can tell whether it arrived."""
    shell.feed(message("1", "explode"))
    return shell


def row_of(shell: Shell) -> dict[str, Any]:
    (row,) = shell.rows("unresolved", shell.journal)
    return row


def reconcile(shell: Shell, *options: str, expect: int | None = None, status: int = 0) -> Result:
    row = row_of(shell)
    version = str(row["version"] if expect is None else expect)
    return shell.here("reconcile", shell.journal, row["operation_id"], "--expect", version, *options, status=status)


def events(shell: Shell) -> int:
    return len(shell.rows("timeline", shell.journal))


@pytest.mark.contract("CLI-02")
def test_a_resend_needs_a_way_to_send(failed: Shell) -> None:
    """Status 2 without one, and nothing is changed."""
    before = events(failed)
    result = reconcile(failed, status=2)

    assert "--deliver" in result.stderr
    assert 1 == result.stderr.count("\n")
    assert before == events(failed)


def test_a_failed_reply_is_sent_again(failed: Shell) -> None:
    (failed.folder / "other.py").write_text("def deliver(reply):\n    return 'm-1'\n")
    result = reconcile(failed, "--deliver", "other:deliver", "--json", "--reason", "asked", "--note", "the customer called")

    assert {"status": "resolved", "outcome": "reply_delivered", "detail": None} == {
        key: value for key, value in json.loads(result.stdout).items() if key != "version"
    }
    assert [] == failed.rows("unresolved", failed.journal)
    (claim,) = failed.rows("timeline", failed.journal, "--type", "reply.resend_claimed")
    assert ("operator", "cli", "asked", 2) == (
        claim["actor_kind"],
        claim["actor"],
        claim["detail"]["reason"],
        claim["detail"]["attempt"],
    )


@pytest.mark.contract("CLI-02", "RCN-04")
def test_an_unknown_reply_needs_the_acknowledgment(unknown: Shell) -> None:
    result = reconcile(unknown, *SENDING, "--json", status=4)

    assert ("conflict", "duplicate_risk") == (json.loads(result.stdout)["status"], json.loads(result.stdout)["detail"])
    assert "--acknowledge-duplicate-risk" in result.stderr
    assert 1 == len(unknown.sent)

    assert "nobody can tell" in reconcile(unknown, *SENDING, RISK).stdout
    assert 2 == len(unknown.sent)


@pytest.mark.contract("RCN-06")
def test_a_stale_version_is_a_conflict(unknown: Shell) -> None:
    result = reconcile(unknown, *SENDING, RISK, "--force", expect=2, status=4)

    assert f"at version {row_of(unknown)['version']} now" in result.stderr
    assert 1 == len(unknown.sent)


@pytest.mark.contract("RCN-07")
def test_a_withdrawn_grant_sends_nothing(failed: Shell) -> None:
    grants = failed.write("grants.jsonl", {"actor": "somebody-else", "tenant": "local"})
    reconcile(failed, *SENDING, "--grants", grants, status=1)

    assert 1 == len(failed.sent)


def test_what_is_not_there_is_status_5(failed: Shell) -> None:
    for operation in ("op-" + "0" * 32, "nonsense"):
        failed.here("reconcile", failed.journal, operation, "--expect", "1", status=5)
        failed.here("reconcile", failed.journal, operation, "--expect", "1", *SENDING, status=5)


@pytest.mark.contract("RCN-05")
def test_what_is_settled_is_left_alone(shell: Shell) -> None:
    shell.feed(message("1"))
    (story,) = shell.rows("explain", shell.journal, "1")
    words = ("reconcile", shell.journal, story["operation_id"], "--expect", str(story["version"]))
    result = shell.here(*words, *SENDING, RISK, "--json")

    assert "none" == json.loads(result.stdout)["outcome"]
    assert 1 == len(shell.sent)


def test_the_printed_command_works_as_it_is(shell: Shell, engine: Engine) -> None:
    """The end of a run prints it with the options of that run, quoted for a shell."""
    journal = "it's a journal.sqlite" if engine == "sqlite" else shell.journal
    marked = shell.program("send once.sh", "cat > /dev/null\n[ -e sent-once ] && exit 0\n: > sent-once\nexit 1\n")
    lines = shell.write("events.jsonl", message("1"))
    sending = ("--agent", "host:agent", "--deliver-command", shlex.quote(marked))
    result = shell.here("run", journal, "--events", lines, *sending)
    (command,) = [line.strip() for line in result.stderr.splitlines() if line.startswith("  counterfoil reconcile ")]
    again = shell.here(*shlex.split(command)[1:])

    assert "arrived" in again.stdout
    assert [] == shell.rows("unresolved", journal)
