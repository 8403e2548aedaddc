"""
Keys taken and let go, timed: the same lines for the journal's locks and for TinyStore's.

Run as a program it measures TinyStore, with the Python of an environment that has it; so nothing of ours is imported here.
"""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from statistics import median
from time import perf_counter
from typing import Final, Protocol

NAME: Final = "bench"
TTL: Final = "30s"
WARM_UP: Final = 50
"""Takes that are not measured."""


class Lease(Protocol):
    """What both give."""

    @property
    def fence(self) -> int: ...


class Lock(Protocol):
    """What both offer, in the same words."""

    def hold(self, key: str, *, wait: str = ...) -> AbstractAsyncContextManager[Lease]: ...


async def alone(lock: Lock, count: int) -> dict[str, float]:
    """Measure one take and release after the other."""
    await _take(lock, "key", WARM_UP)
    return {"median": median(await _take(lock, "key", count)) * 1e6}


async def at_once(lock: Lock, tasks: int, each: int) -> dict[str, float]:
    """Measure the rate at which so many tasks take and release, each a key of its own."""
    await _take(lock, "key", WARM_UP)
    began = perf_counter()
    await asyncio.gather(*(_take(lock, f"key-{number}", each) for number in range(tasks)))
    return {"rate": tasks * each / (perf_counter() - began)}


async def _take(lock: Lock, key: str, count: int) -> list[float]:
    times, fence = [], 0
    for _ in range(count):
        began = perf_counter()
        async with lock.hold(key, wait="30s") as lease:
            assert lease.fence > fence
            fence = lease.fence
        times.append(perf_counter() - began)
    return times


async def _tinystore(mode: str, folder: str, work: list[str]) -> dict[str, float]:
    """Measure TinyStore: `embedded` in this process, `private` with a server of its own."""
    async with await import_module("tinystore").open(folder, **{mode: True}) as store:
        lock: Lock = store.lock(NAME, ttl=TTL)
        match work:
            case ["alone", count]:
                return await alone(lock, int(count))
            case ["at once", tasks, each]:
                return await at_once(lock, int(tasks), int(each))
        raise ValueError(work)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [mode, folder, *work]:
            print(json.dumps(asyncio.run(_tinystore(mode, folder, work))))
        case _:
            import_module("tinystore")
            print(f"{version('tinyshed-tinystore')} on Python {platform.python_version()}")
