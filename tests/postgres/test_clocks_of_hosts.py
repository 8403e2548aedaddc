"""Leases of hosts whose clocks have nothing in common, under a server whose clock is set."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from random import Random

import pytest

import counterfoil
from counterfoil import LeaseLost
from tests.clocks import HostClock
from tests.postgres_server import Postgres

PATIENCE = 30.0
SET = (
    'CREATE OR REPLACE FUNCTION "{schema}".cf_clock() RETURNS bigint LANGUAGE sql AS '
    "'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + ({seconds})::bigint * 1000000'"
)


def hosts() -> list[HostClock]:
    return [HostClock(seconds) for seconds in (-60, 0, 7, 60)]


def set_server(postgres: Postgres, schema: str, seconds: int) -> None:
    """Set the clock of the server."""
    postgres.execute(SET.format(schema=schema, seconds=seconds))


@pytest.mark.contract("LCK-01", "LCK-02", "LCK-09")
async def test_hosts_whose_clocks_differ_never_hold_one_key_together(postgres: Postgres, schema: str) -> None:
    chance, inside, fences = Random(11), 0, list[int]()
    async with AsyncExitStack() as stack:
        journals = [
            await stack.enter_async_context(counterfoil.open_async(postgres.url(schema), clock=clock)) for clock in hosts()
        ]

        async def work(journal: counterfoil.AsyncJournal) -> None:
            nonlocal inside
            for _ in range(6):
                async with journal.lock("jobs", ttl="1s").hold("k", wait="30s") as lease:
                    inside += 1
                    assert 1 == inside
                    fences.append(lease.fence)
                    await asyncio.sleep(chance.uniform(0, 0.02))  # how long each has it is what is random here
                    inside -= 1

        async with asyncio.timeout(2 * PATIENCE):
            await asyncio.gather(*(work(journal) for journal in journals for _ in range(3)))

    assert 72 == len(fences)
    assert sorted(set(fences)) == fences


@pytest.mark.slow
@pytest.mark.contract("LCK-09", "JRN-06")
@pytest.mark.parametrize("seconds", [3_600, -3_600])
async def test_a_step_of_the_server_s_clock_takes_no_key_from_its_holder(postgres: Postgres, schema: str, seconds: int) -> None:
    """The holder is in health and renews; others ask all the time, for longer than its ttl."""
    here, there = hosts()[:2]
    url = postgres.url(schema)
    async with counterfoil.open_async(url, clock=here) as journal, counterfoil.open_async(url, clock=there) as other:
        asked = asyncio.Event()

        async def ask() -> None:
            await asked.wait()
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                async with other.lock("jobs", ttl="1s").try_hold("k") as taken:
                    assert taken is None
                await asyncio.sleep(0.05)  # how long it is asked for is what is tested here

        asking = asyncio.create_task(ask())
        async with journal.lock("jobs", ttl="1s").hold("k") as lease:
            set_server(postgres, schema, seconds)
            asked.set()
            await asking
            lease.check()
        assert (await journal.verify()).agrees


@pytest.mark.slow
@pytest.mark.contract("LCK-05", "LCK-09")
async def test_a_holder_that_renews_no_longer_is_taken_over_from_another_host(postgres: Postgres, schema: str) -> None:
    """Though its session lives: its event loop hangs. Not before its renewal number has stood still for half of its ttl."""
    here, there = hosts()[:2]
    url = postgres.url(schema)
    began = 0.0
    reasons: list[str] = []

    async def hang() -> None:
        nonlocal began
        async with counterfoil.open_async(url, clock=here) as journal:
            try:
                async with journal.lock("jobs", ttl="2s").hold("k"):
                    began = time.monotonic()
                    await asyncio.sleep(0.01)
                    time.sleep(4.5)  # noqa: ASYNC251 - it hangs
                    await asyncio.sleep(PATIENCE)
            except LeaseLost as error:
                reasons.append(error.reason)

    async with counterfoil.open_async(url, clock=there) as other:
        holder = asyncio.create_task(asyncio.to_thread(asyncio.run, hang()))
        while not began:  # noqa: ASYNC110 - it happens in another thread's event loop
            await asyncio.sleep(0.01)
        async with other.lock("jobs", ttl="2s").hold("k", wait="20s"):
            assert time.monotonic() - began >= 1
        await asyncio.wait_for(holder, PATIENCE)

    assert ["ttl"] == reasons
