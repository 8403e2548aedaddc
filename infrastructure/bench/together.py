"""The admissions of one process, made by several together in one journal."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

from .parties import ADMISSIONS, Party, party
from .results import Sample


def admit(url: str, *, processes: int, callers: int, count: int) -> Sample:
    """Measure the rate from the first begin to the last end; callers and messages are parted among the processes."""
    spans = asyncio.run(_admit(url, processes, callers, count))
    took = (max(ended for _, ended in spans) - min(began for began, _ in spans)) / 1e9
    return {"rate": count // processes * processes / took}


async def _admit(url: str, processes: int, callers: int, count: int) -> list[tuple[int, int]]:
    with ExitStack() as stack:
        parties = [stack.enter_context(party(url, ADMISSIONS)) for _ in range(processes)]
        for each in parties:
            await each.hear()
        for number, each in enumerate(parties):
            each.tell(f"{number} {processes} {count // processes} {callers // processes}")
        return [await _span(each) for each in parties]


async def _span(each: Party) -> tuple[int, int]:
    began, ended = json.loads(await each.hear())
    return began, ended
