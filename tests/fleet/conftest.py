"""Fleets to steer: workers in processes of their own on one journal, killed, frozen and started again; see worker.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

import counterfoil
from tests.conftest import Site
from tests.runtime.conftest import Aftermath, aftermath

ROOT = Path(counterfoil.__file__).parents[1]

PATIENCE = 60.0
"""Seconds after which something that was waited for is missed."""


class Forker:
    """The process that forks workers."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-W", "error", str(Path(__file__).with_name("worker.py")), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONPATH": path})
        self._ours.settimeout(PATIENCE)

    def fork(self, channel: socket.socket) -> int:
        socket.send_fds(self._ours, [b"fork"], [channel.fileno()])
        return int(self._ours.recv(64))

    def wait(self, pid: int) -> int:
        """Wait for a worker's end: its exit status, or minus the signal that ended it."""
        self._ours.sendall(b"ended %d" % pid)
        return int(self._ours.recv(64))

    def wait_stopped(self, pid: int) -> None:
        """Wait until a worker has been stopped by a signal."""
        self._ours.sendall(b"stopped %d" % pid)
        assert os.WIFSTOPPED(-int(self._ours.recv(64)))

    def close(self) -> None:
        self._ours.close()
        self._process.wait(PATIENCE)


class Worker:
    """A worker as its test sees it."""

    def __init__(self, forker: Forker, job: dict[str, Any]) -> None:
        self.name: str = job["name"]
        self.reports: list[list[str]] = []
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(PATIENCE)
        with theirs:
            self.pid = forker.fork(theirs)
        self.ended = False
        self._forker = forker
        self._answers: dict[int, Any] = {}
        self._requests = 0
        self._half = b""
        self._send(job)

    def _send(self, message: dict[str, Any]) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def tell(self, do: str, *, opening: int = 0, **words: Any) -> int:
        """Ask for something, and do not wait for it; returns the number of the request."""
        self._requests += 1
        self._send({"number": self._requests, "do": do, "opening": opening, **words})
        return self._requests

    def answer(self, number: int) -> Any:
        """Wait for the answer to a request."""
        while number not in self._answers:
            self.read()
        return self._answers.pop(number)

    def answered(self, number: int) -> bool:
        return number in self._answers

    def ask(self, do: str, **words: Any) -> Any:
        return self.answer(self.tell(do, **words))

    def hear(self, *words: str, times: int = 1) -> None:
        """Wait until the worker has reported this."""
        while self.reports.count(list(words)) < times:
            self.read()

    def said(self, *words: str) -> bool:
        """Tell whether the worker reported this, as far as was read."""
        return list(words) in self.reports

    def read(self) -> list[list[str]]:
        """Wait for what the worker says next, and return what of it are reports."""
        data = self.channel.recv(65_536)
        assert data, f"worker {self.name} ended unasked"
        return self._take_in(data)

    def _take_in(self, data: bytes) -> list[list[str]]:
        *lines, self._half = (self._half + data).split(b"\n")
        reports: list[list[str]] = []
        for message in map(json.loads, lines):
            if "report" in message:
                reports.append(message["report"])
            else:
                self._answers[message["number"]] = message["answer"]
        self.reports += reports
        return reports

    # What is asked for most.

    def accept(self, event_id: str, text: str = "hello", *, opening: int = 0, **more: str) -> str:
        """Have a message admitted; returns its operation id."""
        answer = self.ask("admit", event=message(event_id, text, **more), opening=opening)
        assert "accepted" == answer["status"], answer
        return str(answer["operation_id"])

    def hold(self, event_id: str, text: str = "hold", *, opening: int = 0, **more: str) -> str:
        """Have a message admitted whose turn lasts until it is told to go, and wait until it is at work on it."""
        operation_id = self.accept(event_id, text, opening=opening, **more)
        self.hear("began", event_id)
        return operation_id

    def go(self, event_id: str) -> None:
        self.ask("go", event_id=event_id)

    # Signals.

    def kill(self) -> int:
        """End it as it stands, and take in what it said until then; returns the status that it ended with."""
        os.kill(self.pid, signal.SIGKILL)
        return self._wait()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self._forker.wait_stopped(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Let it stop, keeping what waits, and end."""
        self.channel.shutdown(socket.SHUT_WR)
        assert 0 == self._wait()

    def _wait(self) -> int:
        with suppress(ConnectionResetError):  # it was killed with requests unread; what it had said came before
            while data := self.channel.recv(65_536):
                self._take_in(data)
        status = self._forker.wait(self.pid)
        self.ended = True
        self.channel.close()
        return status


def message(event_id: str, text: str = "hello", **more: str) -> dict[str, str]:
    """An inbound event of one person in one chat, but for what is said."""
    return {"connection": "tg", "conversation": "c1", "actor": "ann", "event_id": event_id, "text": text, **more}


class Fleet:
    """The workers of one test, on one journal; those that are left are killed when the test ends."""

    def __init__(self, forker: Forker, site: Site) -> None:
        self.site = site
        self.workers: list[Worker] = []
        self._forker = forker

    def start(
        self, name: str = "", *, openings: int = 1, pace: float = 0, set_wrongly: int | None = None, **limits: Any
    ) -> Worker:
        """
        Start a worker; limits are those of its openings, and the pace is the seconds that a turn takes.

        With `set_wrongly` its machine is another than that of other values, and these seconds are what its clocks are off by.
        """
        name = name or f"w{len(self.workers)}"
        job = {
            "name": name,
            "folder": str(self.site.folder),
            "url": self.site.url,
            "openings": openings,
            "pace": pace,
            "set_wrongly": set_wrongly,
            "limits": limits,
        }
        self.workers.append(Worker(self._forker, job))
        return self.workers[-1]

    def _lines(self) -> list[list[str]]:
        path = self.site.folder / "order"
        return [line.split("\t") for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    @property
    def order(self) -> list[tuple[str, str, str]]:
        """What the workers began and sent, in order: the word, the event and the name of the worker."""
        return [(line[0], line[1], line[2]) for line in self._lines()]

    @property
    def texts(self) -> list[str]:
        """The texts of the answers, in order."""
        return [line[3] for line in self._lines() if line[0] == "sent"]

    @property
    def sent(self) -> list[tuple[str, str]]:
        """The events that were answered, in order, and by whom."""
        return [(event_id, name) for word, event_id, name in self.order if word == "sent"]

    def look(self) -> AbstractContextManager[Aftermath]:
        """Look at the journal, without changing it."""
        return aftermath(self.site)

    def types(self, *operation_ids: str) -> list[str]:
        """The types of the events in order; of some operations, if they are named."""
        with self.look() as left:
            rows = left.journal._read(lambda store: store.events_after(0, 1_000_000))
        return [row.type for row in rows if not operation_ids or row.originator_id in operation_ids]

    def end(self) -> None:
        for worker in self.workers:
            if not worker.ended:
                worker.kill()


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    forker = Forker()
    yield forker
    forker.close()


@pytest.fixture
def fleet(site: Site, forker: Forker) -> Iterator[Fleet]:
    fleet = Fleet(forker, site)
    yield fleet
    fleet.end()
