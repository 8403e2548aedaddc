"""Locks between processes: a line of waiters, the death of a holder, and what a process costs that only waits."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from statistics import median
from time import monotonic_ns, perf_counter
from typing import IO, Final, NamedTuple

from ..journal_async import open_async
from ..locks_async import AsyncLock
from . import takes, workload
from .lock_party import Block
from .results import Sample, percentile

LOCKS: Final = "lock_party"
ADMISSIONS: Final = "admission_party"
"""Programs that parties run."""
KEY: Final = "key"
PATIENCE: Final = 60.0
"""Seconds for what takes moments."""


class NotInOrder(Exception):
    """A line was not served as is promised."""


class Party(NamedTuple):
    """A process that works on the same journal."""

    process: subprocess.Popen[str]
    told: IO[str]
    says: IO[str]

    def tell(self, words: str) -> None:
        self.told.write(words + "\n")
        self.told.flush()

    async def hear(self) -> str:
        """Return the next line that it says."""
        line = await asyncio.wait_for(asyncio.to_thread(self.says.readline), PATIENCE)
        assert line, "a process that was measured has ended"
        return line

    async def blocks(self) -> list[Block]:
        """Tell it that there is no more, and return the blocks that it was in."""
        self.told.close()
        return [Block(*each) for each in json.loads(await self.hear())]


@contextmanager
def party(url: str, program: str) -> Iterator[Party]:
    """Start a process, and see that it is gone afterwards. Which journal is not seen by who lists processes."""
    pipe = subprocess.PIPE
    command = (sys.executable, "-m", f"{__package__}.{program}")
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        started = Party(process, process.stdin, process.stdout)
        try:
            started.tell(url)
            yield started
        finally:
            process.kill()


def handover(url: str, *, processes: int, waiters: int, passes: int) -> Sample:
    """
    Measure how long a key takes from the end of each block to the next block, which is in another process.

    Raises `NotInOrder` unless the key was given to one at a time, strictly in the order in which they came.
    """
    blocks = asyncio.run(_handover(url, processes, waiters, passes + 1))
    times = sorted(hand_overs(blocks)[waiters + 1 :])  # the first pass warms up
    return {"median": median(times), "p99": percentile(times, 99)}


def hand_overs(blocks: Sequence[Block]) -> list[float]:
    """Return the milliseconds between blocks, which come in the order of their fences; raises `NotInOrder`."""
    if [block.place for block in blocks] != list(range(len(blocks))):
        raise NotInOrder("somebody was overtaken in the line, or served twice, or not at all")
    times = [(after.entered - before.left) / 1e6 for before, after in pairwise(blocks)]
    if min(times) <= 0:
        raise NotInOrder("two had the key at the same time")
    return times


async def _handover(url: str, processes: int, waiters: int, passes: int) -> list[Block]:
    """Return the blocks in the order of their fences; this process holds the key before each pass."""
    blocks: list[Block] = []
    async with open_async(url, limits=workload.LIMITS) as journal:
        lock = journal.lock(takes.NAME, ttl=takes.TTL)
        with ExitStack() as stack:
            parties = [stack.enter_context(party(url, LOCKS)) for _ in range(processes)]
            for first in range(0, passes * (waiters + 1), waiters + 1):
                async with lock.hold(KEY, wait="10m") as lease:
                    entered = monotonic_ns()
                    for number in range(1, waiters + 1):
                        parties[number % processes].tell(f"wait {KEY} {first + number}")
                        await _in_line(lock, number)
                    left = monotonic_ns()
                blocks.append(Block(lease.fence, first, entered, left))
            for each in parties:
                blocks += await each.blocks()
    return sorted(blocks)


def kill(url: str, *, count: int) -> Sample:
    """Measure how long after its holder was killed a key is given to who waits for it, in another process."""
    return {"median": median(asyncio.run(_kill(url, count))) * 1e3}


async def _kill(url: str, count: int) -> list[float]:
    times = []
    async with open_async(url, limits=workload.LIMITS) as journal:
        lock = journal.lock(takes.NAME, ttl=takes.TTL)
        for _ in range(count):
            with party(url, LOCKS) as holder:
                holder.tell(f"hold {KEY}")
                await holder.hear()
                waiter = asyncio.create_task(_granted(lock))
                await _in_line(lock, 1)
                began = perf_counter()
                holder.process.kill()
                times.append(await waiter - began)
    return times


async def _granted(lock: AsyncLock) -> float:
    """Return when the key was had."""
    async with lock.hold(KEY, wait="1m"):
        return perf_counter()


def idle(url: str, *, seconds: float) -> Sample:
    """Measure which share of a core a process uses that has a journal open and waits for a key."""
    return {"share": asyncio.run(_idle(url, seconds)) * 100}


async def _idle(url: str, seconds: float) -> float:
    async with open_async(url, limits=workload.LIMITS) as journal:
        lock = journal.lock(takes.NAME, ttl=takes.TTL)
        with party(url, LOCKS) as waiter:
            async with lock.hold(KEY):
                waiter.tell(f"wait {KEY} 0")
                await _in_line(lock, 1)
                waiter.tell(f"measure {seconds}")
                share = float(await waiter.hear())
            await waiter.blocks()
    return share


async def _in_line(lock: AsyncLock, count: int) -> None:
    """Wait until so many stand in line."""
    async with asyncio.timeout(PATIENCE):
        while len(await lock.waiters()) < count:  # noqa: ASYNC110 - it is another process that comes
            await asyncio.sleep(0.001)
