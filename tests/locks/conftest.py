"""Journals whose locks are tried, on a clock that a test moves or on the machine's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar

import pytest

import counterfoil
from counterfoil.testing import MovableClock

PATIENCE = 30.0
"""Seconds after which a test fails that waits for what should have come at once."""


class Journals:
    """Openings of one journal; all are closed when the test ends."""

    def __init__(self, path: Path, stack: AsyncExitStack) -> None:
        self.path = path
        self.clock = MovableClock()
        self._stack = stack

    async def open(self, *, real_time: bool = False, memory: bool = False, **limits: Any) -> counterfoil.AsyncJournal:
        journal = counterfoil.open_async(
            ":memory:" if memory else self.path,
            limits=counterfoil.Limits(**limits),
            clock=None if real_time else self.clock,
        )
        return await self._stack.enter_async_context(journal)


@pytest.fixture
async def journals(tmp_path: Path) -> AsyncIterator[Journals]:
    async with AsyncExitStack() as stack:
        yield Journals(tmp_path / "journal.sqlite", stack)


@pytest.fixture(params=["file", "memory"])
async def journal(request: pytest.FixtureRequest, journals: Journals) -> counterfoil.AsyncJournal:
    return await journals.open(memory=request.param == "memory")


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
