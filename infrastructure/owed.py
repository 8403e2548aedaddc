"""A command that must not be lost, and what has become of it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from .committer import Command, Committer

T = TypeVar("T")


class Owed(Generic[T]):
    """
    What the journal has to be told.

    A caller that is cancelled leaves the command under way, and the next one waits for the same answer. It is submitted again
    only after it has failed, so never while it may still land.
    """

    def __init__(self, committer: Committer, command: Command[T]) -> None:
        self.command = command
        self._committer = committer
        self._under_way: asyncio.Future[T] | None = None

    def submit(self) -> asyncio.Future[T]:
        """Submit the command, unless it is under way or has landed."""
        if self._under_way is None:
            self._under_way = self._committer.submit_async(self.command)
            self._under_way.add_done_callback(_seen)
        return self._under_way

    async def answer(self) -> T:
        """Return what the command answers; after what it raises it can be asked again."""
        under_way = self.submit()
        await asyncio.wait({under_way})
        if under_way is self._under_way and (under_way.cancelled() or under_way.exception() is not None):
            self._under_way = None
        return under_way.result()


def _seen(future: asyncio.Future[T]) -> None:
    """What it raised is told to whoever asks; that nobody did is no news of the event loop's."""
    if not future.cancelled():
        future.exception()
