"""Journals to try, what goes into them, and processes that work on them beside the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import counterfoil
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.admission import AdmitInbound, Admitted
from counterfoil.infrastructure.commands.turn import Claim, Claimed, Mark, Settle, Settled
from counterfoil.infrastructure.core import Core
from tests.conftest import FreshURL
from tests.copies import copy_rows, fold
from tests.rows import database, spelled

Tampered = Callable[..., str]
ROOT = Path(counterfoil.__file__).parents[1]

PRELUDE = """
import os, signal, sqlite3, sys, warnings
from pathlib import Path
from counterfoil.domain.errors import *
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.turn import Claim, Mark, Settle
from counterfoil.infrastructure.core import Core
from tests.conftest import FreshURL
from tests.copies import copy_rows, fold
from tests.rows import database, spelled
warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)  # where it forks
LIMITS = Limits(max_pending_per_process=10_000, max_routes=10_000, max_pending_per_binding=32)
GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))
def message(event_id, conversation="c1", text="hello"):
    inbound = Inbound(connection="tg", conversation=conversation, actor="ann", event_id=event_id, text=text)
    return AdmitInbound(inbound, GRANT, "agent")
def run(core, command):
    return core.committer.submit(command).result(30)
def say(*words):
    print(*words, flush=True)
"""


class Host:
    """Open journals, and do with them what hosts do. What was opened is closed when the test ends."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.limits = Limits(max_pending_per_process=10_000, max_routes=10_000, max_pending_per_binding=32)
        self.grant = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))
        self._opened: list[Core] = []

    @property
    def path(self) -> Path:
        """The file of the journal, for tests that are about files."""
        return Path(self.url)

    def open(self, url: str | None = None, **options: Any) -> Core:
        """Open a journal, by default the one of the test."""
        options.setdefault("limits", self.limits)
        core = Core(url or self.url, **options)
        self._opened.append(core)
        return core

    def close(self) -> None:
        for core in reversed(self._opened):
            core.close()

    def message(self, event_id: str, conversation: str = "c1", text: str = "hello", grant: Grant | None = None) -> AdmitInbound:
        inbound = Inbound(connection="tg", conversation=conversation, actor="ann", event_id=event_id, text=text)
        return AdmitInbound(inbound, grant or self.grant, "agent")

    def run(self, core: Core, command: Any) -> Any:
        """Run a command and wait for its answer."""
        return core.committer.submit(command).result(30)

    def admit(self, core: Core, event_id: str, conversation: str = "c1", text: str = "hello") -> Admitted:
        answer: Admitted = self.run(core, self.message(event_id, conversation, text))
        assert answer.admission.status == "accepted"
        return answer

    def claim(self, core: Core, admitted: Admitted) -> Claimed:
        assert admitted.route is not None
        claimed: Claimed = self.run(core, Claim(admitted.route, admitted.position))
        return claimed

    def settle(self, core: Core, claimed: Claimed, reply: str | None = "hi") -> Settled:
        assert claimed.operation is not None
        assert claimed.fence is not None
        settled: Settled = self.run(core, Settle(claimed.operation.operation_id, claimed.fence, Answer("succeeded", reply=reply)))
        return settled

    def turn(self, core: Core, event_id: str, conversation: str = "c1", reply: str | None = "hi") -> Operation:
        """Take a message through a whole turn."""
        claimed = self.claim(core, self.admit(core, event_id, conversation))
        settled = self.settle(core, claimed, reply)
        if reply:
            sent = Delivery("delivered", message_id=f"m-{event_id}")
            settled = self.run(core, Mark(settled.operation.operation_id, 1, sent, claimed.fence))
        return settled.operation

    def make_busy(self, core: Core) -> None:
        """Leave turns that are over, one that waits, one that executes and one whose reply is pending."""
        for number in range(20):
            self.turn(core, f"done-{number}", f"c{number % 5}")
        self.admit(core, "waiting", "w")
        self.claim(core, self.admit(core, "executing", "x"))
        self.settle(core, self.claim(core, self.admit(core, "pending", "p")))

    def position(self, core: Core) -> int:
        return core.read(lambda store: store.head().position)

    def types(self, core: Core) -> list[str]:
        """The types of all events, in order of position."""
        return core.read(lambda store: [event.type for event in store.events_after(0, 100_000)])


@pytest.fixture
def host(journal_url: str) -> Iterator[Host]:
    host = Host(journal_url)
    yield host
    host.close()


@pytest.fixture
def core(url: str, host: Host) -> Core:
    """A journal on each kind of store."""
    return host.open(url)


@pytest.fixture
def busy_journal(host: Host) -> str:
    """A closed journal in which much has happened."""
    with closing(Core(host.url, limits=host.limits)) as core:
        host.make_busy(core)
    return host.url


@pytest.fixture
def tampered(fresh_url: FreshURL) -> Tampered:
    """Copy a journal, and work on the copy with a tool of its engine."""

    def tamper(url: str, *statements: str) -> str:
        copy = fresh_url()
        copy_rows(url, copy)
        fold(copy)
        with database(copy) as connection:
            for statement in statements:
                connection.execute(spelled(copy, statement), ())
        return copy

    return tamper


class Processes:
    """Run scripts of Python beside the test, with the names of `PRELUDE`; what still runs in the end is killed."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, body: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(body), *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._environment)
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], *, status: int = 0) -> str:
        """Let a process go on to its end, and return what it printed."""
        out, err = process.communicate(timeout=120)
        assert status == process.returncode, err
        return out

    def run(self, body: str, *arguments: object, status: int = 0) -> str:
        return self.finish(self.start(body, *arguments), status=status)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.end()
