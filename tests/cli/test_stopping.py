"""Kills and clean stops: nothing is lost, nothing is answered twice."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time

import pytest

from counterfoil.demo import traffic

from .conftest import Shell, interrupt, message, read_until, summary_of
from .test_programs import is_gone


def feed(process: subprocess.Popen[str], *lines: dict[str, object]) -> None:
    """Write lines and leave the stream open."""
    assert process.stdin is not None
    for line in lines:
        process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> tuple[dict[str, int], str]:
    """Wait for the end while standard input stays open; return the summary and what was said."""
    assert process.stdout is not None
    assert process.stderr is not None
    printed, said = process.stdout.read(), process.stderr.read()
    process.wait(30)
    assert "Traceback" not in said
    return summary_of(printed), said


@pytest.mark.contract("CLI-01", "RUN-02", "RUN-08")
def test_killed_in_the_middle_and_run_again(shell: Shell) -> None:
    """What was executing is listed with its command; what waited behind it runs, in order; nothing is answered twice."""
    lines = [message("0"), message("1", "stick"), *(message(str(number), f"n{number}") for number in range(2, 6))]
    process = shell.start("run", shell.journal, *shell.hosted)
    feed(process, *lines, message("6", actor="bob"))
    read_until(process, "stuck 1")
    while not ("6" in {event for event, _, _ in shell.sent} and len(shell.rows("unresolved", shell.journal)) == 5):
        assert process.poll() is None
    process.kill()
    process.wait()
    again = shell.run("run", shell.journal, *shell.hosted, "--events", shell.write("events.jsonl", *lines), "--json")
    counted = summary_of(again.stdout)
    (command,) = [line.strip() for line in again.stderr.splitlines() if line.startswith("  counterfoil reconcile ")]

    assert (0, 6, 4, 4, 1) == tuple(counted[key] for key in ("accepted", "duplicates", "succeeded", "delivered", "unresolved"))
    assert ["0", "2", "3", "4", "5"] == [event for event, _, _ in shell.sent if event != "6"]

    assert "will not run again" in shell.here(*shlex.split(command)[1:]).stdout
    assert [] == shell.rows("unresolved", shell.journal)
    assert 0 == shell.feed(*lines)["succeeded"]


@pytest.mark.contract("CLI-01")
def test_killed_at_some_moment_and_run_again(shell: Shell) -> None:
    """Traffic that is killed after some answers, again and again, ends with every message answered, or listed."""
    lines = list(traffic())
    events = shell.write("events.jsonl", *lines)
    for answers in (1, 40, 120):
        process = shell.start("run", shell.journal, "--agent", "host:agent", "--deliver", "host:deliver", "--events", events)
        while len(shell.sent) < answers and process.poll() is None:
            pass
        process.kill()
        process.wait()
    counted = summary_of(shell.run("run", shell.journal, *shell.hosted, "--events", events, "--json").stdout)
    answered = [event for event, _, _ in shell.sent]
    listed = {
        shell.rows("explain", shell.journal, row["operation_id"])[0]["event_id"]
        for row in shell.rows("unresolved", shell.journal)
    }

    assert 200 == counted["accepted"] + counted["duplicates"]
    assert len(answered) == len(set(answered))
    assert {line["event_id"] for line in lines} == set(answered) | listed
    assert 0 == json.loads(shell.here("verify", shell.journal, "--json").stdout)["rows"].count("false")


@pytest.mark.contract("RUN-13")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_clean_stop_keeps_what_waits(shell: Shell, number: signal.Signals, status: int) -> None:
    """Promptly, though standard input is open: the turn is cancelled, what waits is listed and runs the next time."""
    process = shell.start("run", shell.journal, *shell.hosted, "--json")
    feed(process, message("1", "stick"), message("2"), message("3"))
    read_until(process, "stuck 1")
    while len(shell.rows("unresolved", shell.journal)) != 3:
        assert process.poll() is None
    process.send_signal(number)
    counted, said = finish(process)

    assert status == process.returncode
    assert (3, 1, 0, 2) == tuple(counted[key] for key in ("accepted", "cancelled", "delivered", "unresolved"))
    assert "Stopping" in said

    again = summary_of(shell.run("run", shell.journal, *shell.hosted, "--json").stdout)

    assert (2, 2, 0) == tuple(again[key] for key in ("succeeded", "delivered", "unresolved"))
    assert ["2", "3"] == [event for event, _, _ in shell.sent]


def test_no_resume_leaves_what_waits(shell: Shell) -> None:
    process = shell.start("run", shell.journal, *shell.hosted, "--json")
    feed(process, message("1", "stick"), message("2"))
    read_until(process, "stuck 1")
    while len(shell.rows("unresolved", shell.journal)) != 2:
        assert process.poll() is None
    interrupt(process)
    finish(process)
    left = summary_of(shell.run("run", shell.journal, *shell.hosted, "--json", "--no-resume").stdout)

    assert (0, 1) == (left["succeeded"], left["unresolved"])


@pytest.mark.contract("RUN-08", "CLI-01")
def test_without_grants_what_waits_in_other_tenants_is_left_alone(shell: Shell) -> None:
    """It is not refused, which nobody could take back, but said; with its grants it runs."""
    grants = shell.write("grants.jsonl", {"actor": "ann", "tenant": "acme"}, {"actor": "bob", "tenant": "local", "user": "bob"})
    granted = (*shell.hosted, "--grants", grants, "--json")
    process = shell.start("run", shell.journal, *granted)
    feed(process, message("1", "stick"), message("2"), message("3", "stick", "bob"), message("4", actor="bob"))
    read_until(process, "stuck 1", "stuck 3")
    while len(shell.rows("unresolved", shell.journal)) != 4:
        assert process.poll() is None
    process.kill()
    process.wait()
    without = shell.run("run", shell.journal, *shell.hosted, "--json")
    again = shell.run("run", shell.journal, *granted)

    assert (0, 0, 4) == tuple(summary_of(without.stdout)[key] for key in ("succeeded", "failed", "unresolved"))
    assert "2 operations of other tenants wait, because nobody is granted there without --grants." in without.stderr
    assert "`counterfoil run --grants FILE`" in without.stderr
    assert (2, 0, 2) == tuple(summary_of(again.stdout)[key] for key in ("succeeded", "failed", "unresolved"))
    assert "--grants" not in again.stderr


@pytest.mark.parametrize("agent", ["plain_agent", "stubborn", "blocks"])
def test_a_second_interrupt_ends_at_once(shell: Shell, agent: str) -> None:
    """Also when a function cannot be told to stop, or holds up all else."""
    process = shell.start("run", shell.journal, "--agent", f"host:{agent}", "--deliver", "host:deliver")
    feed(process, message("1", "stick"))
    read_until(process, "stuck 1")
    interrupt(process)
    assert process.stderr is not None
    if agent == "blocks":
        time.sleep(0.2)  # two that come together are one
    else:
        assert "once more" in process.stderr.readline()
    interrupt(process)

    assert 130 == process.wait(10)
    assert "Stopped at once; what was at work is listed by `counterfoil unresolved`.\n" == process.stderr.read()


@pytest.mark.contract("RUN-13", "CLI-01")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_agent_that_ignores_a_stop_is_left(shell: Shell, number: signal.Signals, status: int) -> None:
    """At the deadline it is filed and said; then the process ends, with the status of the run and no dump."""
    process = shell.start(
        "run", shell.journal, "--agent", "host:stubborn", "--deliver", "host:deliver", "--json", program=("-c", SHORT_STOP)
    )
    feed(process, message("1"), message("2"))
    read_until(process, "stuck 1")
    while len(shell.rows("unresolved", shell.journal)) != 2:
        assert process.poll() is None
    process.send_signal(number)
    counted, said = finish(process)
    (unknown,) = shell.rows("timeline", shell.journal, "--outcome", "execution_unknown")

    assert status == process.returncode
    assert (0, 0, 1) == tuple(counted[key] for key in ("failed", "cancelled", "unresolved"))
    assert "1 turn did not end when told to, and nobody knows what was done; filed as execution_unknown:" in said
    assert f"  counterfoil explain {shlex.quote(shell.journal)} {unknown['operation_id']}\n" in said
    assert said.endswith("ignores that it was told to end; it is ended with the process.\n")
    assert "Task" not in said


SHORT_STOP = """
from counterfoil.domain.limits import Limits
Limits.__init__.__kwdefaults__["stop_deadline"] = "300ms"
from counterfoil.infrastructure.cli import main
main()
"""


def test_a_thread_of_an_agent_does_not_keep_the_process(shell: Shell) -> None:
    """One that the interpreter would wait for; the turn itself was cancelled in order."""
    process = shell.start("run", shell.journal, "--agent", "host:leaves_a_thread", "--deliver", "host:deliver", "--json")
    feed(process, message("1"))
    read_until(process, "stuck 1")
    process.send_signal(signal.SIGTERM)
    counted, said = finish(process)

    assert (0, 1) == (process.returncode, counted["cancelled"])
    assert said.endswith("it is ended with the process.\n")


@pytest.mark.contract("CLI-01")
@pytest.mark.parametrize("module", ["click", "asyncio", "counterfoil.infrastructure.cli.running", "host"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stop_that_comes_early_is_heard(shell: Shell, module: str, number: signal.Signals, status: int) -> None:
    """While the command line is still being loaded: the run stops in order before it has begun."""
    events = shell.write("events.jsonl", message("1"))
    early = f"MODULE, NUMBER = {module!r}, {int(number)}\n{EARLY}"
    process = shell.start("run", shell.journal, *shell.hosted, "--events", events, "--json", program=("-c", early))
    counted, said = finish(process)

    assert status == process.returncode
    assert 0 == sum(counted.values())
    assert 1 == said.count("\n") == said.count("Stopping")


EARLY = """
import os, sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), NUMBER)

sys.meta_path.insert(0, Hook())
from counterfoil.infrastructure.cli import main
main()
"""


def test_a_stop_takes_programs_along(shell: Shell) -> None:
    """An interrupt at the terminal reaches the run alone: the program is ended by it, and the turn is cancelled."""
    agent = shell.program("agent.sh", "cat > /dev/null; echo $$ > child; exec sleep 600")
    process = shell.start("run", shell.journal, "--agent-command", agent, "--deliver", "host:deliver", "--json")
    feed(process, message("1"))
    while not (shell.folder / "child").exists() or not (shell.folder / "child").read_text():
        assert process.poll() is None
    interrupt(process)
    counted, _ = finish(process)

    assert 1 == counted["cancelled"]
    assert is_gone(int((shell.folder / "child").read_text()))
