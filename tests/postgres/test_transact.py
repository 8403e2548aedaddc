"""Transactions of a host that the journal runs on PostgreSQL: beside each other, and again where they collide."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil.infrastructure.postgres.hosting import BODIES
from tests.postgres.hosts import GRANT, ROOM, Shop, inbound, message
from tests.postgres_server import Postgres
from tests.proxy import Proxy


def order(tx: counterfoil.Tx, item: str) -> None:
    tx.execute("INSERT INTO orders VALUES (%s)", (item,))


# Beside each other.


@pytest.mark.contract("LCK-16")
def test_bodies_run_beside_each_other_and_nobody_waits_for_them(shop: Shop) -> None:
    both = threading.Barrier(3)
    shop.journal.admit(inbound("0"), GRANT)

    def body(tx: counterfoil.Tx, name: str) -> None:
        order(tx, name)
        tx.append(message(name, name))
        both.wait(30)
        both.wait(30)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(shop.journal.transact, lambda tx, name=name: body(tx, name)) for name in "ab"]
        both.wait(30)
        assert shop.journal.admit(inbound("meanwhile", "c"), GRANT).status == "accepted"
        assert shop.items == []
        both.wait(30)
        for each in done:
            each.result(30)
    assert (shop.items, sorted(shop.events)) == (["a", "b"], ["0", "a", "b", "meanwhile"])


def test_more_bodies_at_once_than_connections_are_kept(shop: Shop) -> None:
    together = threading.Barrier(20)

    def body(tx: counterfoil.Tx) -> None:
        together.wait(30)
        order(tx, str(threading.get_ident()))

    threads = [threading.Thread(target=shop.journal.transact, args=(body,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shop.items) == 20


# Again, where they collide.


@pytest.mark.contract("JRN-02")
def test_a_body_is_run_again_when_its_decision_has_gone_stale(shop: Shop) -> None:
    calls: list[bool] = []

    def body(tx: counterfoil.Tx) -> counterfoil.Admission:
        order(tx, "tea")
        admission = tx.append(message("1"))
        if not calls:
            shop_admits()
        calls.append(admission.duplicate)
        return admission

    with counterfoil.open(shop.url) as other:

        def shop_admits() -> None:
            with ThreadPoolExecutor(1) as thread:  # a body calls no journal itself
                thread.submit(other.admit, inbound("1"), GRANT).result(30)

        admission = shop.journal.transact(body)
    assert calls == [False, True]
    assert admission.duplicate
    assert (shop.items, shop.events) == (["tea"], ["1"])
    assert shop.journal.diagnostics()["admitted"] == 1


def test_a_body_that_never_stands_is_unavailable_in_the_end(postgres: Postgres, schema: str) -> None:
    with counterfoil.open(postgres.url(schema), limits=counterfoil.Limits(busy_wait="300ms")) as journal:
        shop = Shop(postgres, schema, journal)
        calls: list[int] = []
        with counterfoil.open(shop.url, limits=ROOM) as other, ThreadPoolExecutor(1) as thread:

            def body(tx: counterfoil.Tx) -> None:
                calls.append(1)
                order(tx, "tea")
                tx.append(message("1"))
                thread.submit(other.admit, inbound(f"{len(calls)}", "c"), GRANT).result(30)

            with pytest.raises(counterfoil.JournalUnavailable, match="collided with another transaction; try again"):
                journal.transact(body)
        assert len(calls) > 1
        assert shop.items == []


def test_bodies_that_lock_in_opposite_order_all_come_through(shop: Shop) -> None:
    for item in ("tea", "milk"):
        shop.postgres.execute(f"INSERT INTO {shop.orders} VALUES ('{item}')")
    both = threading.Barrier(2)
    calls: list[str] = []

    def body(tx: counterfoil.Tx, first: str, second: str) -> None:
        calls.append(first)
        tx.execute("SELECT FROM orders WHERE item = %s FOR UPDATE", (first,))
        if len(calls) <= 2:
            both.wait(30)
        tx.execute("SELECT FROM orders WHERE item = %s FOR UPDATE", (second,))
        tx.append(message(first, first))

    shop.journal.admit(inbound("0"), GRANT)
    with ThreadPoolExecutor(2) as threads:
        done = [
            threads.submit(shop.journal.transact, lambda tx, names=names: body(tx, *names))
            for names in (("tea", "milk"), ("milk", "tea"))
        ]
        for each in done:
            each.result(30)
    assert len(calls) == 3
    assert sorted(shop.events) == ["0", "milk", "tea"]


def test_a_deadlock_that_goes_on_is_the_drivers_error(postgres: Postgres, schema: str) -> None:
    with counterfoil.open(postgres.url(schema), limits=counterfoil.Limits(busy_wait="200ms")) as journal:

        def body(tx: counterfoil.Tx) -> None:
            time.sleep(0.05)
            tx.execute("DO $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = '40P01'; END $$")

        with pytest.raises(psycopg.errors.DeadlockDetected, match="mine") as raised:
            journal.transact(body)
        assert raised.value.__cause__ is None


def test_what_the_hosts_tables_are_bound_to_at_the_end_is_the_hosts(shop: Shop) -> None:
    shop.postgres.execute(
        f'CREATE TABLE "{shop.schema}".lines (item text REFERENCES {shop.orders} DEFERRABLE INITIALLY DEFERRED)'
    )
    calls: list[int] = []

    def body(tx: counterfoil.Tx) -> None:
        calls.append(1)
        tx.execute("INSERT INTO lines VALUES ('coffee')")
        tx.append(message("1"))

    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        shop.journal.transact(body)
    assert len(calls) == 1
    assert shop.events == []


# What is lost.


@pytest.mark.contract("ADM-07")
@pytest.mark.parametrize("landed", [False, True], ids=["before it came to the server", "after it was done"])
def test_the_answer_to_a_commit_is_lost(postgres: Postgres, schema: str, proxy: Proxy, landed: bool) -> None:
    """The journal finds out whether it landed, and the body is run again only if it did not."""
    with counterfoil.open(proxy.url(schema)) as journal:
        shop = Shop(postgres, schema, journal)
        hosting: Any = journal.core.hosting
        commit, calls = hosting._commit, []

        def losing(connection: Any) -> None:
            execute = connection.execute

            def cut(sql: Any, *arguments: Any, **words: Any) -> Any:
                if sql != "COMMIT":
                    return execute(sql, *arguments, **words)
                if landed:
                    execute(sql, *arguments, **words)
                proxy.drop()
                hosting._commit = commit
                return execute("SELECT 1", **words)

            connection.execute = cut
            commit(connection)

        hosting._commit = losing

        def body(tx: counterfoil.Tx) -> None:
            calls.append(1)
            order(tx, "tea")
            assert not tx.append(message("1")).duplicate

        if landed:
            journal.transact(body)
        else:
            with pytest.raises(counterfoil.JournalUnavailable):
                journal.transact(body)
        assert len(calls) == 1
        assert (shop.items, shop.events) == ((["tea"], ["1"]) if landed else ([], []))


def test_a_connection_that_is_lost_in_a_body(shop: Shop) -> None:
    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        shop.postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        with pytest.raises(psycopg.OperationalError):
            order(tx, "milk")
        with pytest.raises(counterfoil.Closed, match="the transaction has ended with the error before"):
            tx.append(message("1"))

    with pytest.raises(counterfoil.JournalUnavailable):
        shop.journal.transact(body)
    assert shop.items == []
    shop.journal.transact(lambda tx: order(tx, "tea"))
    assert shop.items == ["tea"]


def test_a_store_that_fails_in_an_append(shop: Shop) -> None:
    """Whatever the body makes of it nothing is committed."""

    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        tx.execute(f"""DO $$ BEGIN EXECUTE 'ALTER TABLE "{shop.schema}".' || 'c' || 'f_staged RENAME TO away'; END $$""")
        with pytest.raises(counterfoil.JournalRefused):
            tx.append(message("1"))
        with pytest.raises(counterfoil.Closed, match="the transaction has ended"):
            order(tx, "milk")

    with pytest.raises(counterfoil.JournalRefused):
        shop.journal.transact(body)
    assert shop.items == []


# The end, and callers that leave.


def test_closing_waits_for_the_bodies_that_run(shop: Shop) -> None:
    journal = counterfoil.open(shop.url)
    begun, go = threading.Event(), threading.Event()

    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        begun.set()
        assert go.wait(30)
        tx.append(message("1"))

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(journal.transact, body)
        assert begun.wait(30)
        closing = threads.submit(journal.close)
        time.sleep(0.05)
        assert not closing.done()
        with pytest.raises(counterfoil.Closed):
            journal.transact(body)
        go.set()
        running.result(30)
        closing.result(30)
    assert (shop.items, shop.events) == (["tea"], ["1"])


@pytest.mark.contract("JRN-04")
async def test_a_caller_that_leaves_before_the_body_was_begun_has_withdrawn_it(postgres: Postgres, schema: str) -> None:
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        await journal.transact(lambda tx: tx.execute("CREATE TABLE orders (item text)"))
        loop, busy, go = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

        def waits(tx: counterfoil.Tx) -> None:
            loop.call_soon_threadsafe(busy.release)
            assert go.wait(30)

        running = [asyncio.create_task(journal.transact(waits)) for _ in range(BODIES)]
        for _ in range(BODIES):
            await busy.acquire()
        left = asyncio.create_task(journal.transact(lambda tx: order(tx, "tea")))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        go.set()
        await asyncio.gather(*running)
        result = await journal.transact(lambda tx: tx.execute("SELECT * FROM orders"))
        assert result.rows == []


@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration()])
async def test_a_body_that_raises_what_no_future_can_hold(postgres: Postgres, schema: str, error: Exception) -> None:
    def body(tx: counterfoil.Tx) -> None:
        raise error

    async with counterfoil.open_async(postgres.url(schema)) as journal:
        with pytest.raises((RuntimeError, StopAsyncIteration)):
            await journal.transact(body)


# What is kept, and what is not.


def test_a_connection_is_given_back_as_it_was(shop: Shop) -> None:
    def fails(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        tx.execute("SET LOCAL search_path TO nowhere")
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        shop.journal.transact(fails)
    sessions: set[int] = set()
    for number in range(5):

        def body(tx: counterfoil.Tx, number: int = number) -> None:
            sessions.add(tx.execute("SELECT pg_backend_pid()").rows[0][0])
            tx.execute("SET LOCAL statement_timeout TO '1min'")
            order(tx, f"{number}")

        shop.journal.transact(body)
    assert len(sessions) == 1
    assert len(shop.items) == 5


@pytest.mark.contract("LCK-12")
def test_a_guard_keeps_the_key_until_the_commit(shop: Shop) -> None:
    """Nobody else gets it, and nobody waits for that."""
    begun, go = threading.Event(), threading.Event()

    def body(tx: counterfoil.Tx) -> None:
        order(tx, "tea")
        begun.set()
        assert go.wait(30)

    with counterfoil.open(shop.url) as other, ThreadPoolExecutor(1) as thread:
        lease = shop.journal.lock("orders").hold("k").__enter__()
        running = thread.submit(lambda: shop.journal.transact(body, guard=lease))
        assert begun.wait(30)
        with pytest.raises(counterfoil.JournalUnavailable, match="guarded by the lease of this key"):
            other.lock("orders").force_release("k")
        assert other.admit(inbound("1"), GRANT).status == "accepted"
        go.set()
        running.result(30)
        assert other.lock("orders").force_release("k")
    with pytest.raises(counterfoil.LeaseLost, match="revoked"):
        shop.journal.transact(lambda tx: order(tx, "milk"), guard=lease)
    assert shop.items == ["tea"]
