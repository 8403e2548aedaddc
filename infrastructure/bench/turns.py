"""Complete turns through the runtime: admitted, claimed, run, settled, staged and delivered."""

from __future__ import annotations

import asyncio
from time import perf_counter

from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound

from ..journal_async import open_async
from ..runtime import Runtime
from . import workload
from .results import Sample


async def _authorize(inbound: Inbound, action: str) -> Grant:
    return workload.GRANT


async def _echo(turn: Turn) -> str:
    return turn.text


async def _resolve(alias: str, identity: Identity, inbound: Inbound) -> object:
    return _echo


def turns(url: str, *, routes: int, turns_per_route: int) -> Sample:
    """Measure the rate from the first admission to the last delivery."""
    todo = [[workload.inbound(workload.ROUTES * turn + route) for turn in range(turns_per_route)] for route in range(routes)]
    count = routes * turns_per_route
    return {"rate": count / asyncio.run(_run(url, todo, count))}


async def _run(url: str, todo: list[list[Inbound]], count: int) -> float:
    delivered = 0

    async def deliver(reply: Reply) -> None:
        nonlocal delivered
        delivered += 1

    async with open_async(url, limits=workload.LIMITS) as journal:
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
