"""Complete turns through the runtime: admitted, claimed, run, settled, staged and delivered."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from time import perf_counter

from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound

from ..journal_async import open_async
from ..runtime import Runtime
from . import workload
from .raw import SQL
from .results import Sample


async def _authorize(inbound: Inbound, action: str) -> Grant:
    return workload.GRANT


async def _echo(turn: Turn) -> str:
    return turn.text


async def _resolve(alias: str, identity: Identity, inbound: Inbound) -> object:
    return _echo


def turns(folder: Path, *, routes: int, turns_per_route: int) -> Sample:
    """Measure the rate from the first admission to the last delivery, and the size of the closed journal."""
    path = folder / "turns.sqlite"
    todo = [[workload.inbound(workload.ROUTES * turn + route) for turn in range(turns_per_route)] for route in range(routes)]
    count = routes * turns_per_route
    took = asyncio.run(_run(path, todo, count))
    return {"rate": count / took, "bytes": (os.stat(path).st_size - _payload_bytes(path)) / count}


async def _run(path: Path, todo: list[list[Inbound]], count: int) -> float:
    delivered = 0

    async def deliver(reply: Reply) -> None:
        nonlocal delivered
        delivered += 1

    async with open_async(path, limits=workload.LIMITS) as journal:
        async with Runtime(journal, authorize=_authorize, resolve_agent=_resolve, deliver=deliver) as runtime:  # type: ignore[arg-type]

            async def feed(inbounds: list[Inbound]) -> None:
                for inbound in inbounds:
                    answer = await runtime.admit(inbound)
                    assert answer.status == "accepted", answer

            began = perf_counter()
            await asyncio.gather(*(feed(inbounds) for inbounds in todo))
            await runtime.drain()
            took = perf_counter() - began
    assert delivered == count, f"{delivered} of {count} turns were delivered"
    return took


def _payload_bytes(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(SQL.payload_bytes).fetchone()[0])
    finally:
        connection.close()
