"""How the two colours of a journal call what they share: one awaits, the other waits. Everything above is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from counterfoil.domain.errors import Closed, WrongThread

from .committer import Command
from .core import Core
from .sqlite.store import SQLiteStore

T = TypeVar("T")


class AsyncCalls:
    """Await what the writer and the readers do."""

    def __init__(self, opener: Callable[[], Core]) -> None:
        self._opener = opener
        self._opened: Core | None = None

    @property
    def _core(self) -> Core:
        if self._opened is None:
            raise Closed("the journal is not open yet; write `async with counterfoil.open_async(…) as journal:`")
        return self._opened

    async def _open(self) -> None:
        if self._opened is None:
            self._opened = await asyncio.to_thread(self._opener)

    async def _submit(self, command: Command[T]) -> T:
        return await self._core.committer.submit_async(command)

    async def _read(self, function: Callable[[SQLiteStore], T]) -> T:
        return await self._core.read_async(function)

    async def _close(self) -> None:
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)


class Calls:
    """Wait for what the writer and the readers do, in a thread without a running event loop."""

    def __init__(self, opener: Callable[[], Core]) -> None:
        self._core = opener()

    def _open(self) -> None:
        """It was opened when it was made."""

    def _submit(self, command: Command[T]) -> T:
        refuse_in_event_loop()
        return self._core.committer.submit(command).result()

    def _read(self, function: Callable[[SQLiteStore], T]) -> T:
        return self._core.read(function)

    def _close(self) -> None:
        self._core.close()


def refuse_in_event_loop() -> None:
    """Raise `WrongThread` where a wait would block a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongThread("this call would block the event loop that runs in this thread; use counterfoil.open_async here")
