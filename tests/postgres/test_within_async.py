"""Joining the transaction of a connection of asyncio, and of the connections of pools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import counterfoil
from tests.postgres.hosts import GRANT, ROOM, STALE, Shop, inbound, message
from tests.postgres_server import Postgres


@pytest.fixture
async def journal(postgres: Postgres, schema: str) -> AsyncIterator[counterfoil.AsyncJournal]:
    async with counterfoil.open_async(postgres.url(schema), limits=ROOM) as journal:
        yield journal
        assert (await journal.verify()).agrees


@pytest.fixture
async def market(postgres: Postgres, schema: str, journal: counterfoil.AsyncJournal) -> Shop:
    """The tables of a host beside a journal of asyncio."""
    await journal.admit(inbound("0"), GRANT)
    return await asyncio.to_thread(Shop, postgres, schema)


@asynccontextmanager
async def connect(market: Shop, **options: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(market.postgres.database_url, **options) as connection:
        yield connection
        if not connection.closed:
            await connection.rollback()


async def order(market: Shop, connection: psycopg.AsyncConnection[Any], item: str) -> None:
    await connection.execute(f"INSERT INTO {market.orders} VALUES ('{item}')".encode())


async def test_rows_of_the_host_and_events_commit_together(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with connect(market) as connection:
        await order(market, connection, "tea")
        async with journal.lock("orders").hold("k") as lease:
            async with journal.within(connection) as tx:
                await tx.guard(lease)
                admission = await tx.append(message("1"))
                assert (await tx.append(message("1"))).duplicate
            assert (market.items, market.events) == ([], ["0"])
            await connection.commit()
    assert (market.items, market.events) == (["tea"], ["0", "1"])
    assert admission.position is None
    assert (await journal.admit(inbound("1"), GRANT)).operation_id == admission.operation_id


async def test_what_is_rolled_back_leaves_nothing(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with connect(market, autocommit=True, row_factory=dict_row, prepare_threshold=0) as connection:
        async with connection.transaction(force_rollback=True):
            async with journal.within(connection) as tx:
                await tx.append(message("1"))
        async with connection.transaction():
            async with connection.transaction(force_rollback=True):
                async with journal.within(connection) as tx:
                    await tx.append(message("2"))
            async with journal.within(connection) as tx:
                await tx.append(message("3"))
    assert market.events == ["0", "3"]


async def test_a_block_that_raises_or_is_cancelled_takes_back_what_it_appended(
    journal: counterfoil.AsyncJournal, market: Shop
) -> None:
    async with connect(market) as connection:

        async def block(then: asyncio.Event | None) -> None:
            async with journal.within(connection) as tx:
                await tx.append(message("1"))
                if then is None:
                    raise ArithmeticError
                then.set()
                await asyncio.sleep(60)

        with pytest.raises(ArithmeticError):
            await block(None)
        begun = asyncio.Event()
        task = asyncio.create_task(block(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await connection.commit()
        async with journal.within(connection) as tx:
            assert not (await tx.append(message("1"))).duplicate
    assert market.events == ["0"]


@pytest.mark.contract("JRN-02")
async def test_a_decision_gone_stale_fails_the_commit(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with connect(market) as connection:
        async with journal.within(connection) as tx:
            await tx.append(message("1"))
        await journal.admit(inbound("2"), GRANT)
        with pytest.raises(psycopg.errors.SerializationFailure, match=STALE):
            await connection.commit()
    assert market.events == ["0", "2"]


@pytest.mark.contract("LCK-12")
async def test_a_guard_whose_lease_has_ended(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with connect(market) as connection:
        async with journal.lock("orders").hold("k") as lease:
            pass

        async def block() -> None:
            async with journal.within(connection) as tx:
                await tx.guard(lease)

        with pytest.raises(counterfoil.LeaseLost, match="released"):
            await block()


async def test_the_event_loop_goes_on_meanwhile(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    """What an append has to read is read in a thread, and what it has to wait for is awaited."""
    engine: Any = journal.core.engine
    loop, reading, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    snapshot = engine._readers.snapshot

    def slow() -> Any:
        loop.call_soon_threadsafe(reading.set)
        assert go.wait(30)
        return snapshot()

    engine._readers.snapshot = slow
    async with connect(market) as connection, journal.within(connection) as tx:
        appended = asyncio.create_task(tx.append(message("1")))
        await reading.wait()
        assert not appended.done()
        go.set()
        assert (await appended).status == "accepted"
    del engine._readers.snapshot


async def test_a_tx_is_good_inside_its_block_alone(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with connect(market) as connection:
        async with journal.within(connection) as tx:
            with pytest.raises(counterfoil.InvalidValue, match="joined already"):
                async with journal.within(connection):
                    pass
        with pytest.raises(counterfoil.Closed):
            await tx.append(message("1"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"autocommit": True}, "in autocommit and in no transaction"), ({}, "has failed")],
)
async def test_connections_that_cannot_be_joined(
    journal: counterfoil.AsyncJournal, market: Shop, options: dict[str, Any], complaint: str
) -> None:
    async with connect(market, **options) as connection:
        if not options:
            with pytest.raises(psycopg.Error):
                await connection.execute("SELECT 1 / 0")
        with pytest.raises(counterfoil.InvalidValue, match=complaint):
            await journal.within(connection).__aenter__()
        await connection.rollback()
        async with connection.pipeline():
            with pytest.raises(counterfoil.InvalidValue, match="in pipeline mode"):
                await journal.within(connection).__aenter__()
        await connection.close()
        with pytest.raises(counterfoil.InvalidValue, match="is closed"):
            await journal.within(connection).__aenter__()


# Pools.


async def test_a_pool_of_asyncio(journal: counterfoil.AsyncJournal, market: Shop) -> None:
    async with AsyncConnectionPool(market.postgres.database_url, min_size=2, max_size=4, open=False) as pool:

        async def deliver(number: int) -> None:
            async with pool.connection() as connection:
                await order(market, connection, f"{number}")
                async with journal.within(connection) as tx:
                    await tx.append(message(f"{number}", f"chat {number}"))
                if number % 5 == 0:
                    await connection.rollback()

        await asyncio.gather(*[deliver(number) for number in range(1, 31)])
    kept = sorted(str(number) for number in range(1, 31) if number % 5)
    assert (market.items, sorted(market.events[1:])) == (kept, kept)


def test_a_pool_of_threads(shop: Shop) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with ConnectionPool(shop.postgres.database_url, min_size=2, max_size=4, open=True) as pool:

        def deliver(number: int) -> None:
            with pool.connection() as connection:
                shop.order(connection, f"{number}")
                with shop.journal.within(connection) as tx:
                    tx.append(message(f"{number}", f"chat {number}"))
                if number % 5 == 0:
                    connection.rollback()

        threads = [threading.Thread(target=deliver, args=(number,)) for number in range(1, 31)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    kept = sorted(str(number) for number in range(1, 31) if number % 5)
    assert (shop.items, sorted(shop.events[1:])) == (kept, kept)
