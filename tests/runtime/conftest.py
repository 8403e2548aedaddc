"""Hosts to try: each is a journal with a runtime and callbacks that do as the test says, and remember what they were asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.committer import Request
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.journal_async import AsyncDesk, AsyncJournal, open_async
from counterfoil.infrastructure.reading import UnresolvedOperation
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.runtime import Resumed, Runtime
from counterfoil.testing import MovableClock

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

    def __init__(self, url: Path | str, clock: MovableClock | None, options: dict[str, Any]) -> None:
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
        answer = (await self.runtime.submit(AdmitInbound(inbound, granted(), "agent"))).admission
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

    async def count(self, table: str) -> int:
        sql = f"SELECT count(*) FROM {table}"
        return int(await self.core.read_async(lambda store: store.connection.execute(sql).fetchone()[0]))

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

    @contextmanager
    def failing(self, *commands: type) -> Iterator[asyncio.Event]:
        """Let the store fail for groups with one of these commands; the event is set when it has."""
        committer, loop, failed = self.core.committer, asyncio.get_running_loop(), asyncio.Event()
        run_group = committer._run_group

        def fail(group: list[Request[Any]]) -> None:
            if any(isinstance(request.command, commands) for request in group):
                loop.call_soon_threadsafe(failed.set)
                raise JournalUnavailable("the store is away")
            run_group(group)

        committer._run_group = fail
        try:
            yield failed
        finally:
            committer._run_group = run_group


class Hosts:
    """Open hosts; what was opened is closed when the test ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = MovableClock()
        self._opened: list[Host] = []

    async def open(self, url: Path | str | None = None, *, real_time: bool = False, **options: Any) -> Host:
        """
        Open the journal at `path`, on the clock that all hosts of the test share. Options are limits, and those of journal and
        runtime.
        """
        host = Host(url or self.path, None if real_time else self.clock, options)
        self._opened.append(await host.open())
        return host

    async def close(self) -> None:
        for host in self._opened:
            await host.close()


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    hosts = Hosts(tmp_path / "journal.sqlite")
    yield hosts
    await hosts.close()


@pytest.fixture(params=["file", "memory"])
async def host(request: pytest.FixtureRequest, hosts: Hosts) -> Host:
    """One host on each kind of store."""
    return await hosts.open(":memory:" if request.param == "memory" else None)


@pytest.fixture
def operator() -> Identity:
    return OPERATOR


@pytest.fixture
def person() -> Identity:
    return PERSON
