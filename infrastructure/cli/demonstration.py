"""The steps of `counterfoil demo`, with real processes and the commands that anybody can type."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import click

from counterfoil.demo import PEOPLE, traffic
from counterfoil.domain.errors import CounterfoilError, JournalRefused
from counterfoil.infrastructure.naming import is_postgres

from .advice import as_argument
from .demo_worker import STUCK
from .desk import opened
from .named_files import write_lines

LATER: Final = 2
"""Messages that the person writes after the one that is hit, so that something waits behind it."""
PATIENCE: Final = 20.0
"""Seconds within which the worker must have come to that message."""
WORKER: Final = "counterfoil.infrastructure.cli.demo_worker:echo_until_killed"
INDENT: Final = "    "


class Failed(Exception):
    """A step did not go as it should."""


class Demonstration:
    """Show it all, on a new journal."""

    def __init__(self, path: str | None) -> None:
        self.messages = list(traffic())
        self.stuck = _the_one(self.messages)
        folder = Path(tempfile.mkdtemp(prefix="counterfoil-demo-"))
        self.journal = str(folder / "support.sqlite") if path is None else path
        self.shown = as_argument(self.journal)
        """How the journal is named in what is printed: without a password."""
        self.events = str(folder / "messages.jsonl")
        self.answers: Counter[str] = Counter()
        self.number = 0

    def show(self) -> int:
        """Show every step; returns the exit status."""
        if _is_there(self.journal):
            raise click.UsageError("there is a journal already; name a new one", click.get_current_context(silent=True))
        write_lines(self.events, map(json.dumps, self.messages))
        click.echo(
            "counterfoil keeps the record between a chat platform and an agent: what came in, what was answered, "
            "and what nobody knows."
        )
        click.echo(f"The journal is {self.shown}")
        try:
            self._steps()
        except Failed as error:
            click.echo(f"counterfoil demo: {error}", err=True)
            return 1
        return 0

    def _steps(self) -> None:
        stuck = self.stuck
        self._say(
            f"{PEOPLE} people write {len(self.messages)} messages; each is recorded before it is answered: no kill loses one."
        )
        self._kill_a_worker()
        self._say("What is unresolved? The journal knows what the worker had in hand, and of what nobody can know the end.")
        listed = self._run("unresolved", self.journal)
        operation, command = _the_command(listed)
        self._say(
            f"The agent may have acted on {stuck}, so that is never run again by itself: an operator files it, as printed above."
        )
        self._run(*(self.journal if word == self.shown else word for word in shlex.split(command)[1:]))
        self._say(
            f"The worker reads all of it again: it is all duplicates, and only the {LATER} that waited are answered, in order."
        )
        self._run(*self._command("counterfoil.demo:echo"))
        self._say(f"The timeline of {stuck}: each step is an event in one chain that nobody edits, and none holds its text.")
        self._run("timeline", self.journal, "--operation", operation)
        self._say("Why was that message not answered? `explain` tells its story, to whoever has to answer that question.")
        self._run("explain", self.journal, stuck)
        self._say(
            "Does all of it agree? Digests, texts and read models are compared with the events, because a record must be true."
        )
        self._run("verify", self.journal)
        self._sum_up()

    def _kill_a_worker(self) -> None:
        command = self._command(WORKER)
        self._show_command(*command)
        environment = {**os.environ, STUCK: self.stuck}
        with tempfile.TemporaryFile() as talk, tempfile.TemporaryFile() as replies:
            worker = subprocess.Popen(_words(command), stdout=replies, stderr=talk, env=environment)
            try:
                self._wait_until_stuck(worker)
                self._say(
                    f"The agent is in the middle of message {self.stuck}, and the worker is killed, with no time for a word."
                )
                click.echo(f"{INDENT}$ kill -9 {worker.pid}")
                worker.send_signal(signal.SIGKILL)
            finally:
                worker.kill()
                worker.wait()
            replies.seek(0)
            self._count(replies.read().decode())
        click.echo(f"{INDENT}{self.answers.total()} replies had been sent by then.")

    def _wait_until_stuck(self, worker: subprocess.Popen[bytes]) -> None:
        """Wait until the turn of the one message runs, what came after it waits, and all else is done."""
        end = monotonic() + PATIENCE
        while monotonic() < end and worker.poll() is None:
            with suppress(CounterfoilError), opened(self.journal) as (journal, desk):
                rows = desk.unresolved().rows
                if journal.position() and [row.state for row in rows] == ["executing", *["accepted"] * LATER]:
                    return
            sleep(0.05)
        raise Failed("the worker did not come to where it was to be killed; try again")

    def _command(self, agent: str) -> tuple[str, ...]:
        sending = ("--agent", agent, "--deliver", "counterfoil.demo:print_reply")
        return "run", self.journal, "--events", self.events, *sending

    def _run(self, *command: str) -> str:
        """Run a verb in a process of its own, show what it prints, and return that."""
        self._show_command(*command)
        done = subprocess.run(_words(command), capture_output=True, text=True, check=False)
        if command[0] == "run":
            self._count(done.stdout)
        click.echo(textwrap.indent(done.stdout + done.stderr, INDENT), nl=False)
        if done.returncode:
            raise Failed(f"`counterfoil {command[0]}` ended with status {done.returncode}")
        return done.stdout

    def _show_command(self, *command: str) -> None:
        shown = (self.shown if word == self.journal else word for word in command)
        click.echo(f"{INDENT}$ {shlex.join(('counterfoil', *shown))}")

    def _count(self, printed: str) -> None:
        ids = {message["event_id"] for message in self.messages}
        self.answers.update(event for line in printed.splitlines() if (event := line.partition("\t")[0]) in ids)

    def _say(self, words: str) -> None:
        self.number += 1
        click.secho(f"\n{self.number}. {words}", bold=True)

    def _sum_up(self) -> None:
        twice = sum(count > 1 for count in self.answers.values())
        without = [message["event_id"] for message in self.messages if message["event_id"] not in self.answers]
        self._say(
            f"{len(self.messages)} messages, {len(self.answers)} answered, {twice} answered twice, and the journal names the one "
            f"that was not: {', '.join(without)}."
        )
        click.echo(f"{INDENT}Look around: counterfoil timeline {shlex.quote(self.shown)}")
        if twice or without != [self.stuck]:
            raise Failed("that is not what should have happened")


def _is_there(journal: str) -> bool:
    if not is_postgres(journal):
        return os.path.exists(journal)
    with suppress(JournalRefused), opened(journal):
        return True
    return False


def _the_one(messages: list[dict[str, str]]) -> str:
    """Return the id of the last message after which its person writes so many more."""
    later: Counter[str] = Counter()
    for message in reversed(messages):
        if later[message["actor"]] == LATER:
            return message["event_id"]
        later[message["actor"]] += 1
    raise AssertionError("nobody writes that much")


def _the_command(listed: str) -> tuple[str, str]:
    """Return the operation that was being executed and its command, as `unresolved` prints it."""
    for line in listed.splitlines():
        if line.strip().startswith("counterfoil reconcile") and "--acknowledge-duplicate-risk" in line:
            return shlex.split(line)[3], line.strip()
    raise Failed("nothing was found that had been executing")


def _words(command: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "counterfoil", *command]
