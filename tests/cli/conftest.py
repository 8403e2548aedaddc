"""The command line, in this process and in others, with a host that does what the text of a message says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import counterfoil
from counterfoil.infrastructure.cli.group import cli
from tests.engines import Engine
from tests.rows import is_postgres

ROOT = Path(counterfoil.__file__).parents[1]
SECRET = "marker-of-a-text"

HOST = """
import asyncio, json, os, threading, time
from counterfoil import DeliveryFailed, NotSent

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

async def agent(turn):
    if "stick" in turn.text:
        say("stuck", turn.event_id)
        await asyncio.sleep(3600)
    if "raise" in turn.text:
        raise RuntimeError(turn.text)
    return "" if "nothing" in turn.text else f"re: {turn.text}"

def plain_agent(turn):
    if "stick" in turn.text:
        say("stuck", turn.event_id)
        threading.Event().wait(3600)
    return turn.text

def deliver(reply):
    with open("sent", "a") as file:
        file.write(json.dumps([reply.in_reply_to, reply.kind, reply.text]) + "\\n")
        file.flush()
        os.fsync(file.fileno())
    if "refuse" in reply.text:
        return DeliveryFailed("forbidden")
    if "unsent" in reply.text:
        raise NotSent("no_route")
    if "explode" in reply.text:
        raise RuntimeError(reply.text)
    return None if "anonymous" in reply.text else f"m-{reply.in_reply_to}"

async def deliver_slowly(reply):
    say("sending", reply.in_reply_to)
    await asyncio.sleep(3600)

async def stubborn(turn):
    say("stuck", turn.event_id)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def blocks(turn):
    say("stuck", turn.event_id)
    time.sleep(3600)

async def leaves_a_thread(turn):
    say("stuck", turn.event_id)
    await asyncio.to_thread(threading.Event().wait, 3600)

async def deliver_all(reply):
    say("sent", reply.in_reply_to)

no_function = 1
def two(a, b): ...
"""


class Shell:
    """A folder with a host and what it is fed, and the journal that it is fed through."""

    NAME = "support.sqlite"
    """How words that stand for the journal name it."""
    hosted = ("--agent", "host:agent", "--deliver", "host:deliver")

    def __init__(self, folder: Path, journal: str = NAME) -> None:
        self.folder = folder
        self.journal = journal
        """How the command line is told of it."""
        (folder / "host.py").write_text(HOST)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._started: list[subprocess.Popen[str]] = []

    @property
    def url(self) -> str:
        """The journal, by a name that is good in any folder."""
        return self.journal if is_postgres(self.journal) else str(self.folder / self.journal)

    def _words(self, words: Sequence[str | Path]) -> list[str]:
        return [self.journal if word == self.NAME else str(word) for word in words]

    def masked(self, text: str) -> str:
        """What is printed, without what differs from run to run and from engine to engine."""
        text = re.sub(r"\bschema +\d+ +tables\b", "file N  pages", text)
        return masked(text.replace(shlex.quote(self.journal), self.NAME))

    # Other processes.

    def start(self, *words: str | Path, program: Sequence[str] = ("-m", "counterfoil"), **options: Any) -> subprocess.Popen[str]:
        """Start a verb in a process of its own, in the folder."""
        command = [sys.executable, "-W", "error", *program, *self._words(words)]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(command, text=True, cwd=self.folder, env=self._environment, **options)
        self._started.append(process)
        return process

    def run(self, *words: str | Path, given: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end, with this on its standard input."""
        process = self.start(*words)
        out, err = process.communicate(given, timeout=60)
        assert status == process.returncode, out + err
        assert "Traceback" not in err
        return subprocess.CompletedProcess(words, status, out, err)

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # This process.

    def here(self, *words: str | Path, status: int = 0) -> Result:
        """Run a verb in this process, in the folder."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            result = CliRunner().invoke(cli, self._words(words), prog_name="counterfoil")
        finally:
            os.chdir(before)
        assert status == result.exit_code, result.output
        return result

    def rows(self, *words: str | Path) -> list[dict[str, Any]]:
        """The rows of a list."""
        printed = json.loads(self.here(*words, "--json").stdout)
        assert printed["next"] is None
        rows: list[dict[str, Any]] = printed["rows"]
        return rows

    # What goes in and comes out.

    def write(self, name: str, *lines: dict[str, Any] | str | bytes) -> str:
        """Write a file of lines."""
        with open(self.folder / name, "wb") as file:
            for line in lines:
                text = json.dumps(line) if isinstance(line, dict) else line
                file.write((text.encode() if isinstance(text, str) else text) + b"\n")
        return name

    def program(self, name: str, body: str) -> str:
        """Write a script for the shell."""
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + textwrap.dedent(body))
        path.chmod(0o755)
        return f"./{name}"

    def feed(self, *lines: dict[str, Any] | str | bytes, status: int = 0, options: Sequence[str] = hosted) -> dict[str, int]:
        """Run the host on lines, in this process, and return the summary."""
        events = self.write("events.jsonl", *lines)
        result = self.here("run", self.journal, "--events", events, *options, "--json", status=status)
        return summary_of(result.stdout)

    @property
    def sent(self) -> list[tuple[str, str, str]]:
        """What the host sent, in its order: event id, kind and text."""
        path = self.folder / "sent"
        written = path.read_text().rpartition("\n")[0] if path.exists() else ""  # a line may be in the middle of being written
        return [tuple(json.loads(line)) for line in written.splitlines()]


def message(event_id: str, text: str = "hello", actor: str = "ann", **more: Any) -> dict[str, Any]:
    return {"connection": "tg", "conversation": "-100", "actor": actor, "event_id": event_id, "text": text, **more}


def summary_of(printed: str) -> dict[str, int]:
    """The summary of a run: the last line."""
    summary: dict[str, int] = json.loads(printed.splitlines()[-1])
    return summary


def read_until(process: subprocess.Popen[str], *words: str) -> None:
    """Read what a process prints up to the line that is each of these words in turn."""
    assert process.stdout is not None
    for word in words:
        for line in process.stdout:
            if line.strip() == word:
                break
        else:
            raise AssertionError(f"it ended without {word!r}: {process.stderr and process.stderr.read()}")


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def masked(text: str) -> str:
    """What is printed, without what differs from run to run."""
    text = re.sub(r"\b(op|rt|lk|opn|ses|sc)-[0-9a-f]{32}", r"\1-…", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(\+00:00)?", "INSTANT", text)
    text = re.sub(r"\b\d{40}\b", "FENCE", text)
    text = re.sub(r"(epoch to|in process) \d+", r"\1 N", text)
    text = re.sub(r"release [\w.]+", "release R", text)
    text = re.sub(r"file +\d+ ", "file N ", text)
    text = re.sub(r" *\b\d+(\.\d+)? (ms|s|m)\b", " AGE", text)
    text = re.sub(r" *\bat once\b", " AGE", text)
    return re.sub(r"─{4,}", "────", text)


@pytest.fixture
def shell(tmp_path: Path, engine: Engine, journal_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.delitem(sys.modules, "host", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "100")
    shell = Shell(tmp_path, journal_url if engine == "postgres" else Shell.NAME)
    yield shell
    shell.end()
    sys.modules.pop("host", None)
