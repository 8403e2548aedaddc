"""Programs as agents and channels."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

import pytest

from .conftest import Shell, message


def feed(shell: Shell, agent: str, deliver: str, text: str = "hello", *more: str) -> dict[str, int]:
    return shell.feed(message("1", text, thread="t"), options=("--agent-command", agent, "--deliver-command", deliver, *more))


def sent_by(shell: Shell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shell.folder / "got").read_text())
    return found


@pytest.mark.contract("CLI-01")
@pytest.mark.parametrize("text", ["hello", "h\u00e9\u4f60 \ud800 \0 \"'$(x)`\n\t", "x" * 32_768])
def test_both_get_one_json_object(shell: Shell, text: str) -> None:
    """And the channel what the agent printed, without its last newline; any text passes."""
    shell.program("keep.sh", "cat > got\necho m-7\n")
    counted = feed(shell, "cat", "./keep.sh", text)
    reply = sent_by(shell)
    turn = json.loads(reply["text"])

    assert (1, 1) == (counted["succeeded"], counted["delivered"])
    assert "operation_id connection conversation thread actor in_reply_to kind text".split() == list(reply)
    assert "operation_id connection conversation thread actor event_id text session_id generation".split() == list(turn)
    assert ("tg", "-100", "t", "ann", "1", "final") == tuple(reply[key] for key in list(reply)[1:7])
    assert (text, 0) == (turn["text"], turn["generation"])
    assert not reply["text"].endswith("\n")
    assert "m-7" == shell.rows("timeline", shell.journal, "--type", "reply.delivered")[0]["message_id"]


@pytest.mark.parametrize(
    ("body", "outcome", "kind"),
    [
        ("echo hi; exit 0", "succeeded", "final"),
        ("echo hi; exit 1", "failed", "notice"),
        ("kill -9 $$", "failed", "notice"),
        ("exec sleep 600", "failed", "notice"),
    ],
)
def test_how_an_agent_ends(shell: Shell, body: str, outcome: str, kind: str) -> None:
    agent = shell.program("agent.sh", body)
    counted = feed(shell, agent, shell.program("keep.sh", "cat > got"), "hello", "--agent-timeout", "300ms")

    assert (1, 1) == (counted[outcome], counted["delivered"])
    assert kind == sent_by(shell)["kind"]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("exec sleep 600", "timed out after 300 ms"),
        ("kill -9 $$", "ended by signal 9"),
        ("echo secret; exit 3", "ended with exit status 3"),
    ],
)
def test_how_an_agent_failed_is_said(shell: Shell, body: str, what: str) -> None:
    """Once, with the operation, and without what it printed."""
    agent = shell.program("agent.sh", body)
    given = json.dumps(message("1", "secret"))
    options = ("--agent-command", agent, "--deliver-command", "true", "--agent-timeout", "300ms")
    said = shell.run("run", shell.journal, *options, given=given).stderr
    (admitted,) = shell.rows("timeline", shell.journal, "--type", "operation.admitted")

    assert f"{admitted['operation_id']}: the agent {what}\n" == said


def test_an_empty_reply_succeeds_and_is_not_sent(shell: Shell) -> None:
    counted = feed(shell, "true", "false")

    assert (1, 0, 0) == (counted["succeeded"], counted["delivered"], counted["delivery_failed"])


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        ("exit 0", "delivered", None),
        ("echo forbidden; echo more; exit 1", "delivery_failed", "forbidden"),
        ("echo 'Not A Word'; exit 1", "delivery_failed", "failed"),
        ("exit 2", "delivery_unknown", "raised"),
        ("kill -9 $$", "delivery_unknown", "raised"),
        ("exec sleep 600", "delivery_unknown", "timed_out"),
        ("rm deliver.sh; exit 3", "delivery_unknown", "raised"),
    ],
)
def test_how_a_channel_ends(shell: Shell, body: str, outcome: str, reason: str | None) -> None:
    channel = shell.program("deliver.sh", body)
    counted = feed(shell, "echo hi", channel, "hello", "--deliver-timeout", "300ms")
    (last,) = shell.rows("timeline", shell.journal, "--outcome", outcome)

    assert 1 == counted[outcome]
    assert reason == last["detail"].get("reason")


@pytest.mark.contract("RPL-02")
def test_a_channel_that_vanishes_has_sent_nothing(shell: Shell) -> None:
    """A program that cannot be started is a known failure."""
    shell.program("agent.sh", "cat > /dev/null; rm -f deliver.sh; echo hi")
    channel = shell.program("deliver.sh", "exit 0")
    counted = feed(shell, "./agent.sh", channel)

    assert 1 == counted["delivery_failed"]
    assert "not_started" == shell.rows("timeline", shell.journal, "--outcome", "delivery_failed")[0]["detail"]["reason"]


@pytest.mark.contract("RPL-04")
def test_output_is_read_up_to_the_limit(shell: Shell) -> None:
    """Then the program is stopped; what it said is cut between characters, and that is recorded."""
    counted = feed(shell, "yes h\u00e9\u4f60", shell.program("keep.sh", "cat > got"))
    text = sent_by(shell)["text"]

    assert 1 == counted["delivered"]
    assert len(text.encode()) <= 65_536
    assert text.endswith("\n[truncated]")
    assert "\ufffd" not in text
    assert shell.rows("timeline", shell.journal, "--type", "reply.staged")[0]["detail"]["truncated"]


@pytest.mark.contract("RPL-04")
def test_output_that_is_not_utf_8_is_sent_all_the_same(shell: Shell) -> None:
    agent = shell.program("agent.sh", "printf 'caf\\351 au lait'")
    feed(shell, agent, shell.program("keep.sh", "cat > got"))

    assert "caf\ufffd au lait" == sent_by(shell)["text"]


def test_a_program_that_reads_nothing(shell: Shell) -> None:
    """Its input is larger than a pipe holds, and is not waited for."""
    assert 1 == feed(shell, "echo hi", "true", "x" * 32_768)["delivered"]


def test_what_a_program_leaves_behind_is_not_waited_for(shell: Shell) -> None:
    """A child that holds standard output open delays the answer by a moment only."""
    agent = shell.program("agent.sh", "sleep 600 & echo $! > child; echo hi")
    begun = time.monotonic()
    counted = feed(shell, agent, "true")

    assert 1 == counted["delivered"]
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_what_a_program_leaves_behind_is_ended(shell: Shell, trap: str) -> None:
    """With its process group, however well the program itself ended, and by force if need be."""
    leaving = f"cat > /dev/null; {trap}sleep 600 < /dev/null > /dev/null 2>&1 & echo $! >> children; echo hi"
    agent, channel = shell.program("agent.sh", leaving), shell.program("deliver.sh", leaving)
    counted = feed(shell, agent, channel)

    assert (1, 1) == (counted["succeeded"], counted["delivered"])
    for child in (shell.folder / "children").read_text().split():
        assert is_gone(int(child))


def test_a_timeout_takes_children_along(shell: Shell) -> None:
    agent = shell.program("agent.sh", "trap '' TERM; sleep 600 & echo $! > child; wait; wait; wait")
    counted = feed(shell, agent, "true", "hello", "--agent-timeout", "500ms")

    assert 1 == counted["failed"]
    assert is_gone(int((shell.folder / "child").read_text()))


def is_gone(process_id: int) -> bool:
    """Whether a process has ended, if need be after a moment; one that nobody has asked about yet counts."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with suppress(OSError):
            os.waitpid(process_id, os.WNOHANG)
        try:
            with open(f"/proc/{process_id}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False
