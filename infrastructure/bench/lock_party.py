"""
A process that stands in line for keys of locks: `python -m counterfoil.infrastructure.bench.lock_party`.

The first line of its standard input names the journal. It does what the others say, and when there are no more it waits until its
blocks have ended:

- `wait KEY PLACE`: wait for the key, enter the block and leave it; at the end of all a line of JSON tells of each;
- `hold KEY`: hold the key until there are no more lines; a line tells that it is held;
- `measure SECONDS`: a line tells which share of a processor's core the process used for so long.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import NamedTuple

from ..journal_async import open_async
from ..locks_async import AsyncLock
from . import takes, workload


class Block(NamedTuple):
    """A block that held the key. All processes of a machine have one steady clock."""

    fence: int
    place: int
    entered: int
    """Nanoseconds of the steady clock."""
    left: int


async def wait(lock: AsyncLock, key: str, place: int) -> Block:
    """Wait in line, and leave the block at once."""
    async with lock.hold(key, wait="10m") as lease:
        entered = time.monotonic_ns()
        left = time.monotonic_ns()
    return Block(lease.fence, place, entered, left)


async def hold(lock: AsyncLock, key: str, ended: asyncio.Event) -> None:
    """Hold a key until then."""
    async with lock.hold(key):
        print("held", flush=True)
        await ended.wait()


async def measure(seconds: float) -> None:
    """Tell which share of a core the process, all threads of it, uses while it does nothing else."""
    used, began = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    print((time.process_time() - used) / (time.monotonic() - began), flush=True)


async def main() -> None:
    loop, ended, blocks = asyncio.get_running_loop(), asyncio.Event(), []
    async with open_async(sys.stdin.readline().rstrip("\n"), limits=workload.LIMITS) as journal, asyncio.TaskGroup() as tasks:
        lock = journal.lock(takes.NAME, ttl=takes.TTL)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            match line.split():
                case ["wait", key, place]:
                    blocks.append(tasks.create_task(wait(lock, key, int(place))))
                case ["hold", key]:
                    tasks.create_task(hold(lock, key, ended))
                case ["measure", seconds]:
                    await measure(float(seconds))
        ended.set()
    print(json.dumps([block.result() for block in blocks]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who has started this ends it
    asyncio.run(main())
