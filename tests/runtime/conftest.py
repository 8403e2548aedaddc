"""Hosts to try: each is a journal with a runtime and callbacks that do as the test says, and remember what they were asked."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import counterfoil
from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.leases import Renew, Ticket
from counterfoil.infrastructure.committer import Request
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.journal import Journal
from counterfoil.infrastructure.journal import open as open_journal
from counterfoil.infrastructure.journal_async import AsyncDesk, AsyncJournal, open_async
from counterfoil.infrastructure.reading import UnresolvedOperation
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.runtime import Resumed, Runtime
from counterfoil.infrastructure.store import Store
from counterfoil.testing import MovableClock
from tests.clocks import JournalClock
from tests.conftest import Site
from tests.rows import Row, rows_in

ROOT = Path(counterfoil.__file__).parents[1]

PATIENCE = 20.0
"""Seconds after which something that was waited for is missed."""

OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)
PERSON = Identity(tenant="acme", principal="ann", verified=True)


def granted(identity: Identity = PERSON, *aliases: str) -> Grant:
    return Grant(identity=identity, aliases=aliases or ("agent",))


class Held:
    """An agent that is at work until it is let go; told to end, it ends, unless it is stubborn."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.turns: list[Turn] = []
        self.started = asyncio.Event()
        self.aborted = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = asyncio.Event()
        self._stubborn = stubborn

    async def __call__(self, turn: Turn) -> str:
        self.turns.append(turn)
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.aborted.set()
            if not self._stubborn:
                raise
            await self.go.wait()
        finally:
            self.ended.set()
        return f"re: {turn.text}"


class Host:
    """One opening with its runtime. What a callback does is an attribute, plain or async."""

    def __init__(self, url: str, clock: MovableClock | None, options: dict[str, Any]) -> None:
        keep_inbound = options.pop("keep_inbound", None)
        runtime = {name: options.pop(name) for name in ("deliver_timeout",) if name in options}
        self.clock = clock
        self.journal: AsyncJournal = open_async(url, limits=Limits(**options), clock=clock, keep_inbound=keep_inbound)
        self.on_authorize: Callable[[Inbound, str], Any] = lambda inbound, action: granted()
        self.on_resolve: Callable[[str, Identity, Inbound], Any] = lambda alias, identity, inbound: self.on_turn
        self.on_turn: Callable[[Turn], Any] = self._echo
        self.on_deliver: Callable[[Reply], Any] = lambda reply: None
        self.asked: list[tuple[Inbound, str]] = []
        self.resolved: list[tuple[str, Identity, Inbound]] = []
        self.turns: list[Turn] = []
        self.sent: list[Reply] = []
        self._runtime_options = runtime
        self._committed = asyncio.Event()

    async def open(self) -> Host:
        await self.journal.__aenter__()
        self.runtime = Runtime(
            self.journal,
            authorize=self._authorize,
            resolve_agent=self._resolve,
            deliver=self._deliver,
            **self._runtime_options,
        )
        loop, event = asyncio.get_running_loop(), self._committed

        def committed() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        self.core.engine.on_commit.append(committed)
        return self

    async def close(self) -> None:
        await self.runtime.stop(keep_queued=True)
        await self.journal.close()

    def die(self) -> None:
        """End as a killed process does: nothing more is written, and the sign of life is gone."""
        self.core.committer.close()
        self.core.engine.close()

    async def _authorize(self, inbound: Inbound, action: str) -> Any:
        self.asked.append((inbound, action))
        answer = self.on_authorize(inbound, action)
        return await answer if inspect.isawaitable(answer) else answer

    async def _resolve(self, alias: str, identity: Identity, inbound: Inbound) -> Any:
        self.resolved.append((alias, identity, inbound))
        answer = self.on_resolve(alias, identity, inbound)
        return await answer if inspect.isawaitable(answer) else answer

    async def _deliver(self, reply: Reply) -> Any:
        self.sent.append(reply)
        answer = self.on_deliver(reply)
        return await answer if inspect.isawaitable(answer) else answer

    async def _echo(self, turn: Turn) -> str:
        self.turns.append(turn)
        return f"re: {turn.text}"

    def held(self, *, stubborn: bool = False) -> Held:
        """Make the agent one that works until it is let go."""
        self.on_turn = held = Held(stubborn=stubborn)
        return held

    # What a test does with it.

    @property
    def core(self) -> Core:
        return self.journal.core

    def inbound(self, event_id: str = "m1", conversation: str = "c1", text: str = "hello", **more: Any) -> dict[str, Any]:
        return {
            "connection": "tg",
            "conversation": conversation,
            "actor": "ann",
            "event_id": event_id,
            "text": text,
            **more,
        }

    async def admit(self, event_id: str = "m1", conversation: str = "c1", text: str = "hello", **more: Any) -> Admission:
        async with asyncio.timeout(PATIENCE):
            return await self.runtime.admit(self.inbound(event_id, conversation, text, **more))

    async def accept(self, event_id: str = "m1", conversation: str = "c1", text: str = "hello", **more: Any) -> str:
        """Admit, and return the operation id."""
        admission = await self.admit(event_id, conversation, text, **more)
        assert "accepted" == admission.status, admission
        assert admission.operation_id is not None
        return admission.operation_id

    async def queue_only(self, event_id: str = "m1", conversation: str = "c1", text: str = "hello") -> str:
        """Admit without running: what a process does that is killed right after."""
        inbound = Inbound(**self.inbound(event_id, conversation, text))
        answer = (await self.journal._submit(AdmitInbound(inbound, granted(), "agent"))).admission
        assert "accepted" == answer.status
        assert answer.operation_id is not None
        return str(answer.operation_id)

    async def drain(self) -> None:
        assert await self.runtime.drain(f"{PATIENCE:.0f}s")

    async def answer(self, event_id: str = "m1", conversation: str = "c1", text: str = "hello") -> str:
        """Take a message through its turn; return the operation id."""
        operation_id = await self.accept(event_id, conversation, text)
        await self.drain()
        return operation_id

    async def resume(self) -> Resumed:
        return await self.runtime.resume(OPERATOR, tenant=EVERY_TENANT)

    @property
    def desk(self) -> AsyncDesk:
        return self.journal.acting_as(OPERATOR, tenant=EVERY_TENANT)

    async def unresolved(self) -> dict[str, UnresolvedOperation]:
        page = await self.desk.unresolved(limit=500)
        assert page.next is None
        return {row.operation_id: row for row in page.rows}

    async def events(self) -> list[EventRow]:
        return await self.core.read_async(lambda store: store.events_after(0, 1_000_000))

    async def types(self, operation_id: str | None = None) -> list[str]:
        """The types of all events, or of those of one operation."""
        return [row.type for row in await self.events() if operation_id in (None, row.originator_id)]

    async def states(self, of_type: str) -> list[Any]:
        """The decoded events of one type."""
        return [row.recorded.event for row in await self.events() if row.type == of_type]

    async def operation(self, operation_id: str) -> Operation:
        operation = await self.core.read_async(lambda store: store.operation(operation_id))
        assert operation is not None
        return operation

    async def rows(self, sql: str) -> list[Row]:
        """The rows of a query."""
        return await asyncio.to_thread(rows_in, self.core, sql)

    async def count(self, table: str) -> int:
        ((number,),) = await self.rows(f"SELECT count(*) FROM {table}")
        return int(number)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until something holds; it is looked at again after each commit of this host."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._committed.clear()
                if await condition():
                    return
                await self._committed.wait()

    async def until_event(self, of_type: str, times: int = 1) -> None:
        async def there() -> bool:
            return (await self.types()).count(of_type) >= times

        await self.until(there)

    async def renew(self) -> None:
        """Renew the leases of this host's routes now."""
        kept = self.core.waiting.of_loop()._kept.values()
        await self.core.committer.submit_async(Renew([Ticket(lease.lease_id, lease.token, lease.fence) for lease in kept]))

    @contextmanager
    def failing(
        self, *commands: type, error: Callable[[], Exception] = lambda: JournalUnavailable("the store is away")
    ) -> Iterator[asyncio.Event]:
        """Let the store fail for these commands; the event is set when it has."""
        committer, loop, failed = self.core.committer, asyncio.get_running_loop(), asyncio.Event()
        run_group = committer._run_group

        def fail(group: list[Request[Any]]) -> None:
            for request in group:
                if isinstance(request.command, commands):
                    request.error = error()
                    loop.call_soon_threadsafe(failed.set)
            if others := [request for request in group if not isinstance(request.command, commands)]:
                run_group(others)

        committer._run_group = fail
        try:
            yield failed
        finally:
            committer._run_group = run_group

    def hold(self, command: type) -> tuple[asyncio.Event, threading.Event]:
        """Let the writer wait with such a command in hand: the first event tells that it has one, the second lets it go on."""
        committer, loop = self.core.committer, asyncio.get_running_loop()
        run_group, taken, go = committer._run_group, asyncio.Event(), threading.Event()

        def wait(group: list[Request[Any]]) -> None:
            if any(isinstance(request.command, command) for request in group):
                loop.call_soon_threadsafe(taken.set)
                assert go.wait(PATIENCE)
            run_group(group)

        committer._run_group = wait
        return taken, go


def route_tasks() -> set[asyncio.Task[Any]]:
    """The tasks at work on routes."""
    return {task for task in asyncio.all_tasks() if task.get_name() == "counterfoil-route"}


class Hosts:
    """Open hosts; what was opened is closed when the test ends."""

    def __init__(self, url: str, clock: JournalClock) -> None:
        self.url = url
        self.clock = clock
        self._opened: list[Host] = []

    async def open(self, url: str | None = None, *, real_time: bool = False, **options: Any) -> Host:
        """
        Open the journal of the test, on the clock that all hosts of the test share. Options are limits, and those of journal and
        runtime.
        """
        host = Host(url or self.url, None if real_time else self.clock, options)
        self._opened.append(await host.open())
        return host

    async def close(self) -> None:
        for host in self._opened:
            await host.close()


@pytest.fixture
async def hosts(journal_url: str, clock: JournalClock) -> AsyncIterator[Hosts]:
    hosts = Hosts(journal_url, clock)
    yield hosts
    await hosts.close()


@pytest.fixture
async def host(url: str, hosts: Hosts) -> Host:
    """One host on each kind of store."""
    return await hosts.open(url)


@pytest.fixture
def operator() -> Identity:
    return OPERATOR


@pytest.fixture
def person() -> Identity:
    return PERSON


class Workers:
    """Hosts in processes of their own, made to be killed; see worker.py."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", str(Path(__file__).with_name("worker.py"))]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        pipe = subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def _ask(self, **request: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, site: Site, **job: Any) -> int:
        """Start a worker; return its process id."""
        return self._ask(start={"folder": str(site.folder), "url": site.url, **job})

    def wait(self, pid: int) -> int:
        """Wait for a worker's end: its exit status, or minus the signal that ended it."""
        return self._ask(wait=pid)

    def kill(self, pid: int) -> int:
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def run(self, site: Site, **job: Any) -> int:
        return self.wait(self.start(site, **job))

    def close(self) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


class Aftermath:
    """What is left where workers ran: the journal as they left it, and what they noted."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self.journal = journal

    def notes(self, name: str) -> list[list[str]]:
        """The lines of a file that workers synced; a last one that was cut off was never written."""
        path = self.folder / name
        return [line.split("\t") for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    @property
    def answers(self) -> list[str]:
        """The events that were answered, in order."""
        return [line[0] for line in self.notes("answers")]

    @property
    def ran(self) -> list[str]:
        """The events that an agent was at work on."""
        return [line[0] for line in self.notes("ran")]

    @property
    def acknowledged(self) -> list[str]:
        return [line[0] for line in self.notes("acknowledged")]

    @property
    def unresolved(self) -> dict[str, UnresolvedOperation]:
        desk = self.journal.acting_as(OPERATOR, tenant=EVERY_TENANT)
        rows: dict[str, UnresolvedOperation] = {}
        after = None
        while True:
            page = desk.unresolved(limit=500, after=after)
            rows |= {row.operation_id: row for row in page.rows}
            after = page.next
            if after is None:
                return rows

    def operations(self) -> dict[str, Operation]:
        """Every operation by the platform's event id, in order of admission."""

        admitted = rows_in(
            self.journal.core,
            "SELECT external_id, originator_id FROM cf_external_id JOIN cf_event USING (position)"
            " WHERE type = 'operation.admitted' ORDER BY position",
        )

        def read(store: Store) -> dict[str, Operation]:
            found = {event_id: store.operation(operation_id) for event_id, operation_id in admitted}
            return {event_id: operation for event_id, operation in found.items() if operation is not None}

        return self.journal._read(read)

    def claims(self) -> list[tuple[str, str]]:
        """Route and operation id of every claim, in order."""

        def read(store: Store) -> list[tuple[str, str]]:
            claimed = [row.originator_id for row in store.events_after(0, 1_000_000) if row.type == "operation.claimed"]
            found = [store.operation(operation_id) for operation_id in claimed]
            return [(operation.route, operation.operation_id) for operation in found if operation is not None]

        return self.journal._read(read)


@contextmanager
def aftermath(site: Site) -> Iterator[Aftermath]:
    with open_journal(site.url, readonly=True) as journal:
        yield Aftermath(site.folder, journal)


@pytest.fixture
def look() -> Callable[[Site], AbstractContextManager[Aftermath]]:
    """Look at what workers left, without changing it."""
    return aftermath
