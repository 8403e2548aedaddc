"""Journals through the public face, as a plain program has them."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

import counterfoil
from counterfoil.domain.decision import Step
from counterfoil.domain.event import Event, Header
from counterfoil.domain.ids import lock_id
from counterfoil.domain.lock import LockGranted
from counterfoil.infrastructure.sqlite.engine import SQLiteEngine
from counterfoil.infrastructure.sqlite.transact import Transact
from counterfoil.infrastructure.unit import Unit
from tests.engines import Engine
from tests.rows import spelled

Spell = Callable[[str], str]
OpenJournal = Callable[..., counterfoil.Journal]
OneGroup = Callable[[counterfoil.Journal | counterfoil.AsyncJournal], AbstractContextManager[None]]
ROOT = Path(counterfoil.__file__).parents[1]


@pytest.fixture
def journal(url: str) -> Iterator[counterfoil.Journal]:
    with counterfoil.open(url) as opened:
        yield opened


@pytest.fixture
def spell(journal_url: str) -> Spell:
    """Mark the values of a statement, `?` and `:name`, as the engine's driver wants it."""
    return partial(spelled, journal_url)


@pytest.fixture
def driver(engine: Engine) -> Any:
    """The module whose errors those of a host's statements are."""
    return psycopg if engine == "postgres" else sqlite3


class Pause:
    """A command that holds the writer until it is let go, so that what is queued meanwhile becomes one group."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def run(self, unit: Unit) -> None:
        self.begun.set()
        assert self.go.wait(30)


@pytest.fixture
def one_group() -> OneGroup:
    """What is submitted inside is taken in one group, when it ends."""

    @contextmanager
    def held(journal: counterfoil.Journal | counterfoil.AsyncJournal) -> Iterator[None]:
        pause = Pause()
        done = journal.core.committer.submit(pause)
        assert pause.begun.wait(30)
        try:
            yield
        finally:
            pause.go.set()
        done.result(30)

    return held


class Begin(Protocol):
    def __call__(self, journal: counterfoil.Journal, body: Callable[[counterfoil.Tx], Any], *leases: Any) -> Future[Any]: ...


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begin a transaction and do not wait for it: on SQLite as a command, which is part of a group."""
    threads = ThreadPoolExecutor(8)

    def begun(journal: counterfoil.Journal, body: Callable[[counterfoil.Tx], Any], *leases: Any) -> Future[Any]:
        core = journal.core
        if isinstance(core.engine, SQLiteEngine):
            return core.committer.submit(Transact[Any](body, leases))
        return threads.submit(lambda: core.hosting.transact(body, leases).result)

    yield begun
    threads.shutdown()


class Lease:
    """What the handle of a lock shows of a lease."""

    def __init__(self, lease_id: str, fence: int, token: bytes, command: Hold) -> None:
        self.lease_id = lease_id
        self.fence = fence
        self.token = token
        self.command = command
        """What gives the key anew."""

    def ending(self, event: Event) -> End:
        """Return a command that ends it with this event."""
        return End(self.lease_id, event)


class Hold:
    """Give a key of a lock to this opening."""

    def __init__(self, key: str, ttl_s: int) -> None:
        self.key = key
        self.ttl = ttl_s * 1_000_000

    def run(self, unit: Unit) -> Lease:
        lease_id = lock_id(unit.head.journal_key, "orders", self.key)
        unit.append((Step(lease_id, LockGranted(lock="orders", ttl=self.ttl)),), Header())
        lease, deadline = unit.lease(lease_id), unit.deadline(lease_id)
        assert lease is not None
        assert deadline is not None
        return Lease(lease_id, lease.fence, deadline.token, self)


class End:
    """Append an event to a key of a lock."""

    def __init__(self, lease_id: str, event: Event) -> None:
        self.step = Step(lease_id, event)

    def run(self, unit: Unit) -> None:
        unit.append((self.step,), Header())


class HoldKey(Protocol):
    def __call__(self, journal: counterfoil.Journal | counterfoil.AsyncJournal, key: str = "k", *, ttl_s: int = 30) -> Lease: ...


@pytest.fixture
def hold() -> HoldKey:
    """Take a lease of a key of the lock `orders`."""

    def held(journal: counterfoil.Journal | counterfoil.AsyncJournal, key: str = "k", *, ttl_s: int = 30) -> Lease:
        return journal.core.committer.submit(Hold(key, ttl_s)).result(30)

    return held


class Processes:
    """Run scripts of Python beside the test; what still runs in the end is killed."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, script: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self._environment)
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], *, status: int = 0) -> str:
        """Let a process go on to its end, and return what it printed."""
        out, err = process.communicate(timeout=240)
        assert status == process.returncode, err
        return out

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.end()
