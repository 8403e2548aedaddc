"""SIGTERM and Ctrl-C end a run in order; a second Ctrl-C ends it at once."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Self

import click

from .programs import kill_all
from .signals import ONCE_MORE, STOPPING, Signals, of_process


class Stop:
    """Listens, as a context manager, to the signals that stop a run, and to one that came before."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._signals = of_process() or Signals()

    @property
    def asked(self) -> bool:
        return self.event.is_set()

    @property
    def signal(self) -> int | None:
        return self._signals.number

    def __enter__(self) -> Self:
        self._signals.take_along = kill_all
        self._signals.told = self._on_signal
        self._signals.listen()
        if self.signal is not None:
            self._ask()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._signals.said = True
        self._signals.told = None
        if self._signals is not of_process():
            self._signals.restore()

    def _on_signal(self) -> None:
        self._loop.call_soon_threadsafe(self._ask)  # wakes the loop, whatever it waits for

    def _ask(self) -> None:
        self.event.set()
        if not self._signals.said:
            self._signals.said = True
            click.echo(f"{STOPPING}{ONCE_MORE if self.signal == signal.SIGINT else ''}.", err=True)

    async def within(self, seconds: float) -> bool:
        """Wait so long, or until a stop is asked for; tells whether it is."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            return False
        return True
