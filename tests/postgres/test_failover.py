"""A server dies, and its standby is promoted: the journal goes on there by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import counterfoil
from tests.postgres.hosts import GRANT, ROOM, inbound
from tests.postgres_server import Server, Standby

PATIENCE = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[Server, Standby]]:
    """A primary whose commits wait for a standby."""
    primary = Server()
    try:
        standby = Standby(primary)
        try:
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            yield primary, standby
        finally:
            standby.close()
    finally:
        primary.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads and on servers
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.contract("ADM-02", "ADM-07", "JRN-03", "LCK-03")
async def test_a_journal_goes_on_with_the_standby(pair: tuple[Server, Standby]) -> None:
    """What was accepted is there, once; what was answered `unavailable` can be repeated; fences go up."""
    primary, standby = pair
    url = (
        f"postgresql://counterfoil@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/counterfoil?target_session_attrs=read-write"
    )
    async with counterfoil.open_async(url, limits=ROOM) as journal:
        answers: dict[str, str | None] = {}
        stopped = False

        async def send(caller: int) -> None:
            number = 0
            while not stopped:
                number += 1
                name = f"{caller}-{number}"
                answers[name] = (await journal.admit(inbound(name, name), GRANT)).operation_id
                await asyncio.sleep(0.005)

        async with journal.lock("jobs").hold("k") as lease:
            before = lease.fence
        tasks = [asyncio.create_task(send(caller)) for caller in range(4)]
        await until(lambda: len(answers) > 200)
        await asyncio.to_thread(primary.stop, immediate=True)
        await until(lambda: None in answers.values())
        await asyncio.to_thread(standby.promote)
        many = sum(answer is not None for answer in answers.values())
        await until(lambda: sum(answer is not None for answer in answers.values()) > many + 100)
        stopped = True
        await asyncio.gather(*tasks)

        for name, operation_id in answers.items():
            again = await journal.admit(inbound(name, name), GRANT)
            assert "accepted" == again.status
            assert operation_id in (None, again.operation_id)
            assert again.duplicate or operation_id is None
        async with journal.lock("jobs").hold("k") as lease:
            assert lease.fence > before
        assert (await journal.verify()).agrees
