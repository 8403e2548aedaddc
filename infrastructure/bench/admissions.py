"""Durable admissions through the public journal: of many tasks at once, and of one alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from statistics import median
from time import perf_counter

from counterfoil.domain.inbound import Inbound

from ..journal_async import AsyncJournal, open_async
from . import workload
from .results import Sample, percentile


def concurrent(url: str, *, callers: int, count: int) -> Sample:
    """Measure rate and latencies while so many tasks admit, each its next event when the one before was answered."""
    return beside(url, nullcontext(), callers=callers, count=count, before=0)


def beside(url: str, other: AbstractContextManager[object], *, callers: int, count: int, before: int) -> Sample:
    """Measure the same in a journal that has admitted so many `before`, while something else is done with it."""
    todo = iter([workload.inbound(number) for number in range(before + count)])

    async def run() -> tuple[float, list[float]]:
        async with open_async(url, limits=workload.LIMITS) as journal:
            await admit_at_once(journal, islice(todo, before), callers)
            with other:
                began = perf_counter()
                times = await admit_at_once(journal, todo, callers)
                return perf_counter() - began, sorted(times)

    took, times = asyncio.run(run())
    return {
        "rate": count / took,
        "p50": percentile(times, 50) * 1e3,
        "p95": percentile(times, 95) * 1e3,
        "p99": percentile(times, 99) * 1e3,
        "longest": times[-1] * 1e3,
    }


async def admit_at_once(journal: AsyncJournal, todo: Iterator[Inbound], callers: int) -> list[float]:
    """Admit all of them, so many at a time, and return how long each took, in seconds."""
    times = await asyncio.gather(*(_admit_all(journal, todo) for _ in range(callers)))
    return [time for each in times for time in each]


def alone(url: str, *, count: int) -> Sample:
    """Measure one admission after the other."""
    todo = iter([workload.inbound(number) for number in range(count)])

    async def run() -> list[float]:
        async with open_async(url, limits=workload.LIMITS) as journal:
            return await _admit_all(journal, todo)

    return {"median": median(asyncio.run(run())) * 1e6}


async def _admit_all(journal: AsyncJournal, todo: Iterator[Inbound]) -> list[float]:
    times = []
    for inbound in todo:
        began = perf_counter()
        answer = await journal.admit(inbound, workload.GRANT)
        times.append(perf_counter() - began)
        assert answer.status == "accepted" and not answer.duplicate, answer
    return times
