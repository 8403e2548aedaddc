"""Journals whose locks are tried, on a clock that a test moves or on the machine's."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from contextvars import Context
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

import counterfoil
from counterfoil.infrastructure.committer import Request
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.unit import Unit
from tests.clocks import JournalClock
from tests.rows import is_postgres, sessions

ROOT = Path(counterfoil.__file__).parents[1]
PATIENCE = 30.0
"""Seconds after which a test fails that waits for what should have come at once."""


class Journals:
    """Openings of one journal; all are closed when the test ends."""

    def __init__(self, url: str, clock: JournalClock, stack: AsyncExitStack) -> None:
        self.url = url
        self.clock = clock
        self._stack = stack

    async def open(self, url: str | None = None, *, real_time: bool = False, **limits: Any) -> counterfoil.AsyncJournal:
        journal = counterfoil.open_async(
            url or self.url, limits=counterfoil.Limits(**limits), clock=None if real_time else self.clock
        )
        return await self._stack.enter_async_context(journal)


@pytest.fixture
async def journals(journal_url: str, clock: JournalClock) -> AsyncIterator[Journals]:
    async with AsyncExitStack() as stack:
        yield Journals(journal_url, clock, stack)


@pytest.fixture
async def journal(url: str, journals: Journals) -> counterfoil.AsyncJournal:
    """A journal that is opened once, on each store."""
    return await journals.open(url)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something that another task or process does is so."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - it may be another process that does it
            await asyncio.sleep(0.005)


async def waiting(lock: counterfoil.AsyncLock, count: int) -> None:
    """Wait until so many stand in line."""

    async def stand() -> bool:
        return count == len(await lock.waiters())

    await until(stand)


async def happened(lock: counterfoil.AsyncLock, key: str | int) -> list[str]:
    """Return what happened to a key, with the reasons, in order."""
    page = await lock.history(key)
    return [event.happened + (f" {event.reason}" if event.reason else "") for event in page.rows]


T = TypeVar("T")


def apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a task that has nothing of the blocks around: what it asks for it asks for itself."""
    return asyncio.create_task(work, context=Context())


async def is_free(lock: counterfoil.AsyncLock, key: str | int) -> bool:
    """Tell whether somebody else gets a key now."""

    async def ask() -> bool:
        async with lock.try_hold(key) as lease:
            return lease is not None

    return await apart(ask())


async def held(lock: counterfoil.AsyncLock, key: str) -> bool:
    """Tell whether anybody holds a key."""
    return key in [holder.key for holder in await lock.holders()]


# The writer.


class HeldWriter:
    """The writer of an opening with a command in hand."""

    def __init__(self) -> None:
        self.taken = threading.Event()
        self._go = threading.Event()

    def let_go(self) -> None:
        self._go.set()

    def wait(self) -> None:
        self.taken.set()
        assert self._go.wait(PATIENCE)


@contextmanager
def writer_held(core: Core, command: type, *, after: type | None = None) -> Iterator[HeldWriter]:
    """
    Let the writer wait, before it decides, whenever it has such a command in hand, until it is let go or the block ends.

    It begins to after a command of another type: who waits looks at its key now and then, also before that has come free.
    """
    committer, held = core.committer, HeldWriter()
    run_group, begins = committer._run_group, after is None

    def run(group: list[Request[Any]]) -> None:
        nonlocal begins
        if after is not None and not begins:
            first = [number for number, request in enumerate(group, 1) if isinstance(request.command, after)][:1]
            if not first:
                run_group(group)
                return
            run_group(group[: first[0]])
            committer._complete(group[: first[0]])  # who waits for that may be who lets the writer go
            group, begins = group[first[0] :], True
        if any(isinstance(request.command, command) for request in group):
            held.wait()
        if group:
            run_group(group)

    committer._run_group = run
    try:
        yield held
    finally:
        held.let_go()
        committer._run_group = run_group


@contextmanager
def failing(core: Core, *commands: type) -> Iterator[threading.Event]:
    """Let the store fail for these commands; the event is set when it has."""
    committer, failed = core.committer, threading.Event()
    run_group = committer._run_group

    def run(group: list[Request[Any]]) -> None:
        for request in group:
            if isinstance(request.command, commands):
                request.error = counterfoil.JournalUnavailable("the store is away")
        if others := [request for request in group if request.error is None]:
            run_group(others)
        if len(others) < len(group):
            failed.set()

    committer._run_group = run
    try:
        yield failed
    finally:
        committer._run_group = run_group


# Threads.


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait, in a thread, until something that another thread or process does is so."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def in_thread(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work in a thread that has nothing of the blocks around; what is returned waits for what it answers or raises."""
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((Context().run(work), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True).start()

    def answer() -> T:
        value, error = answers.get(timeout=2 * PATIENCE)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    return answer


def free(lock: counterfoil.Lock, key: str | int) -> bool:
    """Tell whether somebody else gets a key now."""

    def ask() -> bool:
        with lock.try_hold(key) as lease:
            return lease is not None

    return Context().run(ask)


def events(lock: counterfoil.Lock, key: str | int) -> list[str]:
    """Return what happened to a key, with the reasons, in order."""
    return [event.happened + (f" {event.reason}" if event.reason else "") for event in lock.history(key).rows]


# Processes.

PRELUDE = """
import asyncio, multiprocessing, os, signal, subprocess, sys, threading, time, warnings
from contextvars import Context
from itertools import count
from pathlib import Path
import counterfoil
from counterfoil import *
warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)  # where it forks
def say(*words):
    print(*words, flush=True)
def hear():
    return sys.stdin.readline().strip()
"""


_children = count(1)


class Nothing:
    """A command that has the writer at work."""

    def run(self, unit: Unit) -> None:
        pass


def can_commit(url: str) -> bool:
    """Tell whether nobody keeps all writers from a journal."""
    with closing(Core(url, limits=counterfoil.Limits(busy_wait="500ms"))) as core:
        try:
            core.committer.submit(Nothing()).result(PATIENCE)
        except counterfoil.JournalUnavailable:
            return False
        return True


class Child:
    """A process beside the test, which talks with it by lines."""

    def __init__(self, body: str, arguments: tuple[object, ...]) -> None:
        self._url = str(arguments[0]) if arguments else None
        name = f"child-{os.getpid()}-{next(_children)}"
        self._sessions = [(each, name) for each in arguments if isinstance(each, str) and is_postgres(each)]
        arguments = tuple(f"{each}&application_name={name}" if (each, name) in self._sessions else each for each in arguments)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(body), *map(str, arguments)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def hear(self) -> str:
        """The next line that it says."""
        return self._lines.get(timeout=2 * PATIENCE)

    async def heard(self) -> str:
        """The next line that it says, for a test in an event loop."""
        return await asyncio.to_thread(self.hear)

    def say(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        """Stop it, and not inside of a commit, where it would stop every writer of an SQLite file (LCK-16)."""
        while True:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
            if self._url is None or can_commit(self._url):
                return
            self.wake()
            time.sleep(0.05)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it; others can see it then, on PostgreSQL because the server has seen the end of its connections."""
        self._process.kill()
        self._process.wait(PATIENCE)
        for url, name in self._sessions:
            wait_until(lambda url=url, name=name: not sessions(url, name))  # type: ignore[misc]

    def ended(self) -> None:
        """Wait for its end, which is to be a good one."""
        assert self._process.wait(2 * PATIENCE) == 0

    def clear_away(self) -> None:
        """End it with all that it has begun."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Children:
    """Start processes that have the names of `PRELUDE`; all are ended with the test."""

    def __init__(self) -> None:
        self._started: list[Child] = []

    def __call__(self, body: str, *arguments: object) -> Child:
        child = Child(body, arguments)
        self._started.append(child)
        return child

    def end(self) -> None:
        for child in self._started:
            child.clear_away()


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.end()
