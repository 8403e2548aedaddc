"""SIGTERM and Ctrl-C end a run in order; a second Ctrl-C ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType
from typing import Self

import click

from .programs import kill_all

INTERRUPTED = 130


class Stop:
    """Listens, as a context manager, to the signals that stop a run."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: int | None = None
        self._loop = asyncio.get_running_loop()
        self._installed: list[int] = []

    @property
    def asked(self) -> bool:
        return self.event.is_set()

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._loop.add_signal_handler(number, self._on_signal, number)
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # not the main thread: whoever runs this there stops it otherwise
            self._installed.append(number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number in self._installed:
            self._loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        if self.signal == number == signal.SIGINT:
            kill_all()
            os._exit(INTERRUPTED)
        if self.signal is None or number == signal.SIGINT:
            self.signal = number
        if not self.event.is_set():
            self.event.set()
            how = "; once more stops at once" if number == signal.SIGINT else ""
            click.echo(f"Stopping; what waits stays for the next run{how}.", err=True)

    async def within(self, seconds: float) -> bool:
        """Wait so long, or until a stop is asked for; tells whether it is."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            return False
        return True
