"""Locks of the journal, taken and let go by tasks of one process: each grant is synced before its caller has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..journal_async import open_async
from . import takes, workload
from .results import Sample


def alone(url: str, *, count: int) -> Sample:
    """Measure one take and release after the other."""
    return _measure(url, lambda lock: takes.alone(lock, count))


def at_once(url: str, *, tasks: int, each: int) -> Sample:
    """Measure the rate at which so many tasks take and release, each a key of its own."""
    return _measure(url, lambda lock: takes.at_once(lock, tasks, each))


def _measure(url: str, work: Callable[[takes.Lock], Awaitable[Sample]]) -> Sample:
    async def run() -> Sample:
        async with open_async(url, limits=workload.LIMITS) as journal:
            return await work(journal.lock(takes.NAME, ttl=takes.TTL))

    return asyncio.run(run())
