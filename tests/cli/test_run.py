"""`counterfoil run` as a host: lines in, turns, replies out, a summary."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from counterfoil.demo import traffic
from tests.postgres_server import Server

from .conftest import SECRET, Shell, message, summary_of

KEYS = (
    "accepted duplicates denied malformed succeeded failed cancelled delivered delivery_failed delivery_unknown unresolved"
).split()


def summary(**counts: int) -> dict[str, int]:
    return {**dict.fromkeys(KEYS, 0), **counts}


@pytest.mark.contract("CLI-01")
def test_each_message_is_answered_once_in_order(shell: Shell) -> None:
    """All of the demo's traffic, and then all of it again."""
    lines = list(traffic())
    first = shell.feed(*lines)
    again = shell.feed(*lines)

    assert summary(accepted=200, succeeded=200, delivered=200) == first
    assert summary(duplicates=200) == again
    assert KEYS == list(first)
    assert {line["event_id"] for line in lines} == {sent[0] for sent in shell.sent}
    assert 200 == len(shell.sent)
    for person in {line["actor"] for line in lines}:
        theirs = [line["event_id"] for line in lines if line["actor"] == person]
        assert theirs == [event for event, _, _ in shell.sent if event in theirs]


def test_outcomes_are_counted(shell: Shell) -> None:
    """Whatever agent and channel make of a message, the line was accepted and the status is 0."""
    texts = ["fine", "raise", "nothing", "refuse", "unsent", "explode", "anonymous"]
    counted = shell.feed(*(message(str(number), text, f"p{number}") for number, text in enumerate(texts)))
    rows = {row["reply_state"]: row for row in shell.rows("unresolved", shell.journal)}

    assert summary(accepted=7, succeeded=6, failed=1, delivered=3, delivery_failed=2, delivery_unknown=1, unresolved=3) == counted
    assert {"delivery_failed", "delivery_unknown"} == set(rows)
    assert ["1", "notice", "Sorry, this could not be answered."] in list(map(list, shell.sent))
    reasons = {row["detail"]["reason"] for row in shell.rows("timeline", shell.journal, "--type", "reply.delivery_failed")}
    assert {"forbidden", "no_route"} == reasons


@pytest.mark.contract("CLI-03")
def test_bad_lines_are_reported_and_the_rest_goes_on(shell: Shell) -> None:
    """Each with its number and a reason, and without a word of what it says."""
    lines: list[Any] = [
        b"\xef\xbb\xbf" + json.dumps(message("ok-1", actor="a")).encode(),
        "",
        "{" + SECRET,
        b"\xff\xfe",
        f'["{SECRET}"]',
        '{"connection": NaN}',
        '{"connection": ' + "9" * 5000 + "}",
        "[" * 100_000,
        message(SECRET, "", actor="b"),
        {**message("x", SECRET), "event_id": 7},
        {**message("x", SECRET), SECRET: 1},
        message("x" * 257, SECRET),
        message("x\0", SECRET),
        message("\ud800", SECRET),
        message("x", SECRET, received_at="2026-01-01T00:00:00"),
        message("x", SECRET, claims=[1]),
        {"text": SECRET},
        message(SECRET, "/help"),
        message(SECRET, "x" * 40_000),
        message("ok-2", "lone \ud800 and \0", actor="-", thread="a:b", claims={"deep": [1]}, received_at="2026-01-01T00:00:00Z"),
        json.dumps(message("ok-3", actor="a|b")) + "\r",
    ]
    events = shell.write("events.jsonl", *lines)
    result = shell.here("run", shell.journal, "--events", events, *shell.hosted, "--json", status=1)
    complaints = result.stderr.splitlines()

    assert summary(accepted=3, denied=2, malformed=16, succeeded=3, delivered=3) == summary_of(result.stdout)
    assert [f"line {number}" for number in range(2, 18)] == [line.partition(":")[0] for line in complaints[:16]]
    assert "line 18: unsupported: unknown_command" in complaints
    assert "line 19: denied: oversized" in complaints
    assert SECRET not in result.stderr
    assert ("ok-2", "final", "re: lone \ud800 and \0") in shell.sent


@pytest.mark.contract("CLI-03")
def test_reasons_for_bad_lines(shell: Shell, snapshot: SnapshotAssertion) -> None:
    bad: list[Any] = [
        "",
        "{bad",
        "[]",
        "null",
        {},
        {**message("x"), "conversation": -100},
        {**message("x"), "more": 1},
        {**message("x"), "text": 5, "thread": ""},
        message("x", received_at="yesterday"),
        message("x", received_at="2026-01-01T00:00:00"),
        message("x", claims=[]),
        b"\xef\xbb\xbf" + json.dumps(message("x")).encode(),
    ]
    events = shell.write("events.jsonl", *bad)

    assert snapshot == shell.here("run", shell.journal, "--events", events, *shell.hosted, "--json", status=1).stderr


def test_an_endless_line_is_not_held(shell: Shell) -> None:
    """A line beyond all measure is one malformed line, and what follows is read."""
    counted = shell.feed(b"x" * 17_000_000, message("1"), status=1)

    assert (1, 1) == (counted["malformed"], counted["accepted"])


def test_standard_input_is_the_default(shell: Shell) -> None:
    """The last line needs no end."""
    given = json.dumps(message("1")) + "\n" + json.dumps(message("2"))
    done = shell.run("run", shell.journal, *shell.hosted, "--json", given=given)

    assert summary(accepted=2, succeeded=2, delivered=2) == summary_of(done.stdout)
    assert "" == done.stderr


def test_nothing_on_standard_input(shell: Shell) -> None:
    assert summary() == summary_of(shell.run("run", shell.journal, *shell.hosted, "--json").stdout)


def test_replies_are_printed_before_the_summary(shell: Shell) -> None:
    """`print_reply` writes event id, a tab and the text as JSON; the summary is the last line of standard output."""
    given = json.dumps(message("1", "h\u00e9 \ud800\ttab"))
    printing = ("--agent", "counterfoil.demo:echo", "--deliver", "counterfoil.demo:print_reply")
    printed = shell.run("run", shell.journal, *printing, "--json", given=given).stdout.splitlines()

    assert ["1", "you said: h\u00e9 \ud800\ttab"] == [printed[0].partition("\t")[0], json.loads(printed[0].partition("\t")[2])]
    assert summary(accepted=1, succeeded=1, delivered=1) == json.loads(printed[1])


def test_a_closed_standard_output_is_no_traceback(shell: Shell) -> None:
    shell.feed(*(message(str(number)) for number in range(200)))
    process = shell.start("timeline", shell.journal)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(30) in (0, 1)
    assert "" == process.stderr.read()


def test_more_than_fits_is_waited_for(shell: Shell) -> None:
    """A person who writes fifty messages at once fills the route; the feeder waits, and nothing is denied."""
    counted = shell.feed(*(message(str(number)) for number in range(50)))

    assert summary(accepted=50, succeeded=50, delivered=50) == counted
    assert [str(number) for number in range(50)] == [event for event, _, _ in shell.sent]


def test_grants_name_who_may_write(shell: Shell) -> None:
    grants = shell.write(
        "grants.jsonl",
        {"actor": "ann", "tenant": "acme", "user": "u-1", "permissions": ["x"], "aliases": ["first", "second"]},
        {"actor": "bob", "tenant": "other", "account": "b", "principal": "robert", "revision": "7"},
    )
    lines = (message("1", actor="ann"), message("2", actor="bob"), message("3", actor="eve"))
    counted = shell.feed(*lines, options=(*shell.hosted, "--grants", grants), status=1)
    aliases = {row["detail"]["alias"] for row in shell.rows("timeline", shell.journal, "--type", "operation.admitted")}

    assert summary(accepted=2, denied=1, succeeded=2, delivered=2) == counted
    assert {"first", "agent"} == aliases


@pytest.mark.parametrize("agent", ["agent", "plain_agent"])
def test_an_agent_that_takes_too_long_has_failed(shell: Shell, agent: str) -> None:
    options = ("--agent", f"host:{agent}", "--deliver", "host:deliver", "--agent-timeout", "50ms")
    counted = shell.feed(message("1", "stick"), message("2", "go on"), options=options)

    assert summary(accepted=2, succeeded=1, failed=1, delivered=2) == counted


@pytest.mark.parametrize(("agent", "what"), [("agent", "raised RuntimeError"), ("plain_agent", "timed out after 50 ms")])
def test_how_a_callable_failed_is_said(shell: Shell, agent: str, what: str) -> None:
    """Once, with the operation, and without its text."""
    options = ("--agent", f"host:{agent}", "--deliver", "host:deliver", "--agent-timeout", "50ms")
    given = json.dumps(message("1", "raise" if agent == "agent" else "stick"))
    said = shell.run("run", shell.journal, *options, given=given).stderr
    (admitted,) = shell.rows("timeline", shell.journal, "--type", "operation.admitted")

    assert f"{admitted['operation_id']}: the agent {what}\n" == said


def test_summary_for_people(shell: Shell, snapshot: SnapshotAssertion) -> None:
    events = shell.write("events.jsonl", message("1"), message("1"), message("2", "refuse"))
    result = shell.here("run", shell.journal, "--events", events, *shell.hosted)

    assert snapshot == result.stdout
    assert "--deliver host:deliver" in result.stderr


@pytest.mark.sqlite_only("files may not grow in that process")
def test_a_journal_that_takes_nothing_ends_the_run(shell: Shell) -> None:
    """A full disk: what was not admitted is said, the order is kept by reading no further, and the summary is there."""
    events = shell.write("events.jsonl", *(message(str(number), actor=f"p{number}") for number in range(40)))
    words = ["run", shell.journal, "--events", events, *shell.hosted, "--json"]
    limited = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (180_000, 180_000))\n{_AS_MODULE}"
    command = [sys.executable, "-c", limited, *words]
    done = subprocess.run(
        command, cwd=shell.folder, env=shell._environment, capture_output=True, text=True, timeout=60, check=False
    )
    counted = summary_of(done.stdout)

    assert 1 == done.returncode
    assert 1 == counted["denied"]
    assert "no further line is read" in done.stderr
    assert "Traceback" not in done.stderr

    after = summary_of(shell.run(*words).stdout)

    assert 40 == after["accepted"] + after["duplicates"]
    assert after["accepted"] == 40 - counted["accepted"] - (after["duplicates"] - counted["accepted"])
    assert len(shell.sent) == len({event for event, _, _ in shell.sent})


@pytest.mark.slow
@pytest.mark.postgres_only("a file is never away")
@pytest.mark.contract("CLI-01", "ADM-06")
def test_a_run_waits_for_a_server_that_comes_back(shell: Shell, own_postgres: Server) -> None:
    """For longer than an immediate restart takes: lines on a pipe cannot be read again."""
    command = [sys.executable, "-m", "counterfoil", "run", shell.journal, "--events", "-", *shell.hosted, "--json"]
    with subprocess.Popen(
        command,
        cwd=shell.folder,
        env=shell._environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        print(json.dumps(message("first")), file=process.stdin, flush=True)
        while not shell.sent:
            assert process.poll() is None
            time.sleep(0.01)
        own_postgres.stop(immediate=True)
        try:
            print(json.dumps(message("second")), file=process.stdin, flush=True)
            told = next(line for line in process.stderr if "waits for" in line)
        finally:
            own_postgres.start()
        out, _ = process.communicate(timeout=60)

    assert "server" in told
    assert 0 == process.returncode
    assert 2 == summary_of(out)["accepted"]
    assert ["first", "second"] == [event for event, _, _ in shell.sent]


_AS_MODULE = "from counterfoil.infrastructure.cli import main; main()"
