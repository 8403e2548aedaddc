"""How the two colours of a journal call what they share: one awaits, the other waits. Everything above is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from counterfoil.domain.errors import Closed, WrongThread

from .committer import Command
from .core import Core
from .inside import refuse_inside
from .store import Store

T = TypeVar("T")


class AsyncCalls:
    """Await what the writer and the readers of an open journal do."""

    def __init__(self, core: Core) -> None:
        self._opened: Core | None = core

    @property
    def _core(self) -> Core:
        if self._opened is None:
            raise Closed("the journal is not open yet; write `async with counterfoil.open_async(…) as journal:`")
        self._opened.refuse_in_child()
        return self._opened

    async def _submit(self, command: Command[T]) -> T:
        return await self._core.committer.submit_async(command)

    async def _read(self, function: Callable[[Store], T]) -> T:
        return await self._core.read_async(function)


class AsyncOpener(AsyncCalls):
    """Open beside the event loop before the first call, and close."""

    def __init__(self, opener: Callable[[], Core]) -> None:
        self._opener = opener
        self._opened = None

    async def _open(self) -> None:
        refuse_inside()
        if self._opened is not None:
            return
        thread = ThreadPoolExecutor(1, thread_name_prefix="counterfoil-opener")
        opening = thread.submit(self._opener)
        thread.shutdown(wait=False)
        try:
            self._opened = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_late)
            raise

    async def _close(self) -> None:
        refuse_inside()
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)


def _close_late(opening: Future[Core]) -> None:
    """Close what was opened for somebody who no longer waits for it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class Calls:
    """Wait for what the writer and the readers do, in a thread without a running event loop."""

    def __init__(self, core: Core) -> None:
        self._opened = core

    @property
    def _core(self) -> Core:
        self._opened.refuse_in_child()
        return self._opened

    def _submit(self, command: Command[T]) -> T:
        refuse_in_event_loop()
        return self._core.committer.submit(command).result()

    def _read(self, function: Callable[[Store], T]) -> T:
        return self._core.read(function)


class Opener(Calls):
    """Open at once, and close."""

    def __init__(self, opener: Callable[[], Core]) -> None:
        super().__init__(opener())

    def _open(self) -> None:
        """It was opened when it was made."""

    def _close(self) -> None:
        self._core.close()


def refuse_in_event_loop() -> None:
    """Raise `WrongThread` where a wait would block a running event loop; in the body of a transaction there is none to block."""
    refuse_inside()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongThread("this call would block the event loop that runs in this thread; use counterfoil.open_async here")
