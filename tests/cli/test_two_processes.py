"""Two processes on one journal from the first day."""

from __future__ import annotations

import json
import signal

import pytest

from .conftest import Shell, message, read_until, summary_of
from .test_stopping import feed, finish


@pytest.mark.contract("JRN-09", "RUN-03", "RCN-03")
def test_verbs_beside_a_run(shell: Shell) -> None:
    """`unresolved`, `timeline`, `reconcile` and a second `run` work beside a run that goes on."""
    process = shell.start("run", shell.journal, *shell.hosted, "--json")
    feed(process, message("1", "stick"), message("2"), message("3", actor="bob"))
    read_until(process, "stuck 1")
    while not (shell.sent and len(shell.rows("unresolved", shell.journal)) == 2):
        assert process.poll() is None

    rows = json.loads(shell.run("unresolved", shell.journal, "--json").stdout)["rows"]
    assert [("executing", 1, True), ("accepted", 1, True)] == [(row["state"], row["holder"], row["holder_alive"]) for row in rows]
    told = shell.run("unresolved", shell.journal).stdout
    assert "runs now under opening 1, which is alive" in told
    assert "waits in the queue of opening 1, which is alive and has it in hand; look again" in told
    assert "claimed the message" in shell.run("timeline", shell.journal).stdout

    stuck = rows[0]
    words = ("reconcile", shell.journal, stuck["operation_id"], "--expect", str(stuck["version"]))
    held = shell.run(*words, "--acknowledge-duplicate-risk", "--json", status=4)
    assert "holder_alive" == json.loads(held.stdout)["detail"]

    events = shell.write("more.jsonl", message("3", actor="bob"), message("4", actor="bob"), message("5", actor="eve"))
    beside = shell.run("run", shell.journal, *shell.hosted, "--events", events, "--json")
    second = summary_of(beside.stdout)
    assert "opening 1, which is alive and has it in hand" in beside.stderr
    assert (2, 1, 2, 2) == tuple(second[key] for key in ("accepted", "duplicates", "succeeded", "unresolved"))

    forced = shell.run(*words, "--acknowledge-duplicate-risk", "--force")
    assert "nobody knows" in forced.stdout
    while "2" not in [event for event, _, _ in shell.sent]:  # it would be cut off by the stop otherwise, if it had just begun
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    finish(process)

    assert 0 == process.returncode
    last = summary_of(shell.run("run", shell.journal, *shell.hosted, "--json").stdout)
    assert 0 == last["unresolved"]
    assert sorted(["2", "3", "4", "5"]) == sorted(event for event, _, _ in shell.sent)


@pytest.mark.contract("RCN-01")
def test_a_reply_that_is_being_sent_is_not_offered_to_be_sent_again(shell: Shell) -> None:
    """While its run lives; when that is gone, it is."""
    process = shell.start("run", shell.journal, "--agent", "host:agent", "--deliver", "host:deliver_slowly")
    feed(process, message("1"))
    read_until(process, "sending 1")
    told = shell.run("unresolved", shell.journal).stdout
    beside = shell.run("run", shell.journal, *shell.hosted)
    process.kill()
    process.wait()

    for said in (told, beside.stderr):
        assert "opening 1, which is alive, has in hand and may be sending now; look again" in said
        assert "nobody recorded a sending" not in said
    assert "nobody recorded a sending" in shell.run("unresolved", shell.journal).stdout


@pytest.mark.contract("ADM-02", "JRN-09")
def test_two_runs_on_the_same_lines(shell: Shell) -> None:
    """Started together on one new journal, they answer every message once between them, in order."""
    lines = [message(str(number), actor=f"p{number % 3}") for number in range(60)]
    events = shell.write("events.jsonl", *lines)
    both = [shell.start("run", shell.journal, *shell.hosted, "--events", events, "--json") for _ in range(2)]
    counted = [finish(process)[0] for process in both]

    assert 60 == sum(one["accepted"] for one in counted) == sum(one["duplicates"] for one in counted)
    assert 60 == len(shell.sent) == sum(one["delivered"] for one in counted)
    for person in range(3):
        theirs = [int(event) for event, _, _ in shell.sent if int(event) % 3 == person]
        assert sorted(theirs) == theirs
