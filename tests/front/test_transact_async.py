"""Transactions of a host on an event loop: coroutine functions, which await nothing but their tx, and cancelled callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import counterfoil
from counterfoil.domain.lock import LockReleased

if TYPE_CHECKING:
    from tests.front.conftest import HoldKey, OneGroup

PERSON = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])
HELLO = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")


@asynccontextmanager
async def shop_at(url: str) -> AsyncIterator[counterfoil.AsyncJournal]:
    """A journal with a table of the host's."""
    async with counterfoil.open_async(url) as journal:
        await journal.transact(lambda tx: tx.execute("CREATE TABLE orders (item TEXT UNIQUE)"))
        yield journal
        assert (await journal.verify()).agrees


async def order(tx: counterfoil.AsyncTx, item: str = "tea") -> int:
    return (await tx.execute(f"INSERT INTO orders VALUES ('{item}')")).rowcount


async def orders(journal: counterfoil.AsyncJournal) -> list[str]:
    async def body(tx: counterfoil.AsyncTx) -> list[str]:
        return [item for (item,) in (await tx.execute("SELECT item FROM orders ORDER BY item")).rows]

    return await journal.transact(body)


class Called:
    async def __call__(self, tx: counterfoil.AsyncTx) -> int:
        return await order(tx)


async def several_at_once(tx: counterfoil.AsyncTx) -> int:
    """What awaits only tx may be made of functions of its own."""

    async def one(item: str) -> int:
        return await order(tx, item)

    return await one("tea") + await one("milk")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (order, 1),
        (Called(), 1),
        (several_at_once, 2),
        (lambda tx: tx.execute("INSERT INTO orders VALUES ('tea')").rowcount, 1),
    ],
    ids=["coroutine function", "object", "coroutines inside", "plain function"],
)
async def test_bodies_of_both_kinds_run(url: str, body: Any, answer: int) -> None:
    async with shop_at(url) as shop:
        assert answer == await shop.transact(body)
        assert answer == len(await orders(shop))


async def test_rows_of_the_host_and_events_commit_together(url: str, hold: HoldKey) -> None:
    async with shop_at(url) as shop:
        lease = hold(shop)

        async def body(tx: counterfoil.AsyncTx, *, fail: bool) -> counterfoil.Admission:
            await order(tx)
            await tx.guard(lease)
            admission = await tx.append(counterfoil.Admit(HELLO, GRANT))
            if fail:
                raise ValueError("no")
            return admission

        before = await shop.position()
        with pytest.raises(ValueError, match="no"):
            await shop.transact(partial(body, fail=True), guard=lease)
        assert (before, []) == (await shop.position(), await orders(shop))
        assert 0 == shop.diagnostics()["admitted"]

        good = partial(body, fail=False)
        assert "accepted" == (await shop.transact(good, guard=[lease])).status
        assert 1 == shop.diagnostics()["admitted"]
        assert ["tea"] == await orders(shop)
        await asyncio.wrap_future(shop.core.committer.submit(lease.ending(LockReleased())))
        with pytest.raises(counterfoil.LeaseLost):
            await shop.transact(good, guard=lease)


async def test_an_error_of_the_hosts_statement_is_the_hosts(url: str, driver: Any) -> None:
    async def twice(tx: counterfoil.AsyncTx) -> None:
        await order(tx)
        await order(tx)

    async with shop_at(url) as shop:
        with pytest.raises(driver.IntegrityError, match=r"(?i)unique"):
            await shop.transact(twice)
        assert [] == await orders(shop)


class Foreign:
    """Something to await that yields."""

    def __await__(self) -> Any:
        yield self


async def sleeps(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.sleep(1)


async def yields_once(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.sleep(0)


async def awaits_something(journal: counterfoil.AsyncJournal) -> None:
    await Foreign()


async def some_work() -> None:
    """A coroutine to give away."""


async def waits_for(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.wait_for(Foreign(), 1)


async def waits_for_an_event(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.Event().wait()


async def gathers(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.gather(some_work())


async def ensures_a_future(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.ensure_future(some_work())


async def creates_a_task(journal: counterfoil.AsyncJournal) -> None:
    asyncio.create_task(some_work())  # noqa: RUF006 - it is none


async def groups_tasks(journal: counterfoil.AsyncJournal) -> None:
    """It makes an exception group of what is raised in it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(some_work())


async def has_a_timeout(journal: counterfoil.AsyncJournal) -> None:
    async with asyncio.timeout(1):
        await Foreign()


async def goes_to_a_thread(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.to_thread(int)


async def makes_a_future(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.Future()


async def takes_from_a_queue(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.Queue().get()


async def waits_for_a_future_of_a_loop(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.wrap_future(concurrent.futures.Future())


async def asks_the_loop_for_the_time(journal: counterfoil.AsyncJournal) -> None:
    asyncio.get_running_loop().time()


async def connects(journal: counterfoil.AsyncJournal) -> None:
    await asyncio.open_connection("localhost", 1)


YIELDS = (yields_once, awaits_something)
"""These do not ask the loop for anything, so nothing is raised in them: the body ends where it yields."""
REFUSED = (
    sleeps,
    waits_for,
    waits_for_an_event,
    gathers,
    ensures_a_future,
    creates_a_task,
    has_a_timeout,
    goes_to_a_thread,
    makes_a_future,
    takes_from_a_queue,
    waits_for_a_future_of_a_loop,
    asks_the_loop_for_the_time,
    connects,
)


@pytest.mark.parametrize("wait", [*YIELDS, *REFUSED])
async def test_nothing_but_tx_is_awaited(url: str, wait: Any) -> None:
    async with shop_at(url) as shop:
        closed = []

        async def body(tx: counterfoil.AsyncTx) -> None:
            await order(tx)
            try:
                await wait(shop)
            finally:
                closed.append(True)

        with pytest.raises(counterfoil.InsideTransaction, match="only tx is awaited"):
            await shop.transact(body)
        assert [True] == closed
        assert [] == await orders(shop)
    gc.collect()  # a coroutine that was never awaited would warn here


@pytest.mark.parametrize("wait", [*REFUSED, groups_tasks])
async def test_a_body_that_swallows_the_refusal_is_rolled_back(url: str, wait: Any) -> None:
    async with shop_at(url) as shop:
        raised: list[type] = []

        async def body(tx: counterfoil.AsyncTx) -> None:
            await order(tx)
            try:
                await wait(shop)
            except BaseException as error:
                raised.append(type(error))

        with pytest.raises(counterfoil.InsideTransaction, match="only tx is awaited"):
            await shop.transact(body)
        assert 1 == len(raised)
        assert [] == await orders(shop)
    gc.collect()


async def test_a_body_may_log_and_ask_for_its_task(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Records show the names of tasks, so to log is to ask; no loop is left on the writer's thread either."""

    async def body(tx: counterfoil.AsyncTx) -> str:
        task = asyncio.current_task()
        assert task is not None
        logging.getLogger("host").error("something, in %s", task.get_name())
        await order(tx)
        return task.get_name()

    async with shop_at(url) as shop:
        name = await shop.transact(body)
        assert [f"something, in {name}"] == [record.message for record in caplog.records if record.name == "host"]
        assert ["tea"] == await orders(shop)
        with pytest.raises(RuntimeError, match="no running event loop"):
            await shop.transact(lambda tx: asyncio.get_running_loop())


@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "swallowed"])
async def test_the_other_colour_is_not_called_inside_either(url: str, swallow: bool) -> None:
    """There is no event loop that it would block."""
    other = await asyncio.to_thread(counterfoil.open, ":memory:")
    try:
        async with shop_at(url) as shop:
            for call in (
                lambda: other.admit(HELLO, GRANT),
                lambda: other.position(),
                lambda: other.transact(lambda tx: None),
                lambda: other.lock("l").try_hold("k").__enter__(),
                lambda: other.lock("l").force_release("k"),
                lambda: other.close(),
                lambda: counterfoil.open(":memory:"),
            ):

                async def body(tx: counterfoil.AsyncTx, call: Callable[[], object] = call) -> None:
                    await order(tx)
                    try:
                        call()
                    except counterfoil.InsideTransaction:
                        if not swallow:
                            raise

                with pytest.raises(counterfoil.InsideTransaction, match="not called inside a transaction"):
                    await shop.transact(body)
            assert [] == await orders(shop)
    finally:
        await asyncio.to_thread(other.close)


async def test_a_body_that_raises_while_it_is_closed_changes_nothing(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body(tx: counterfoil.AsyncTx) -> None:
        try:
            await Foreign()
        finally:
            await order(tx)
            raise ValueError("secret")

    async with shop_at(url) as shop:
        with caplog.at_level(logging.ERROR), pytest.raises(counterfoil.InsideTransaction, match="only tx is awaited"):
            await shop.transact(body)
        assert [] == await orders(shop)
    assert ["ValueError" in message and "secret" not in message for message in caplog.messages] == [True]


CALLS: dict[str, Callable[[counterfoil.AsyncJournal], Coroutine[Any, Any, object]]] = {
    "admit": lambda journal: journal.admit(HELLO, GRANT),
    "position": lambda journal: journal.position(),
    "timeline": lambda journal: journal.acting_as(PERSON).timeline(),
    "transact": lambda journal: journal.transact(order),
    "close": lambda journal: journal.close(),
    "open": lambda journal: counterfoil.open_async(":memory:").__aenter__(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "swallowed"])
async def test_no_journal_is_called_inside(url: str, call: str, swallow: bool) -> None:
    async with shop_at(url) as shop, counterfoil.open_async(":memory:") as other:
        for journal in (shop, other):

            async def body(tx: counterfoil.AsyncTx, journal: counterfoil.AsyncJournal = journal) -> None:
                await order(tx)
                try:
                    await CALLS[call](journal)
                except counterfoil.InsideTransaction:
                    if not swallow:
                        raise

            with pytest.raises(counterfoil.InsideTransaction, match="not called inside a transaction"):
                await shop.transact(body)
        assert [] == await orders(shop)
        assert "accepted" == (await shop.admit(HELLO, GRANT)).status


async def test_a_coroutine_that_a_plain_function_returns_is_refused(url: str) -> None:
    async with shop_at(url) as shop:
        with pytest.raises(counterfoil.InvalidValue, match="the body returned a coroutine, of which nothing has run"):
            await shop.transact(lambda tx: order(tx))
        assert [] == await orders(shop)
    gc.collect()  # a coroutine that was never awaited would warn here


@pytest.mark.sqlite_only("on PostgreSQL a body begins at once, unless all of its threads are busy")
@pytest.mark.contract("JRN-04")
async def test_a_caller_that_leaves_before_the_body_was_begun_has_withdrawn_it(url: str, one_group: OneGroup) -> None:
    async with shop_at(url) as shop:
        with one_group(shop):
            task = asyncio.ensure_future(shop.transact(order))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert [] == await orders(shop)


@pytest.mark.contract("JRN-04")
async def test_a_body_that_was_begun_completes_without_its_caller(url: str) -> None:
    async with shop_at(url) as shop:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        go = threading.Event()

        async def body(tx: counterfoil.AsyncTx) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert go.wait(30)
            await order(tx)

        task = asyncio.ensure_future(shop.transact(body))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        async with asyncio.timeout(30):
            while not (left := await orders(shop)):  # on PostgreSQL it runs beside whoever asks
                pass
        assert ["tea"] == left


async def test_it_is_refused_where_all_commands_are(journal_url: str) -> None:
    async with shop_at(journal_url) as shop:
        pass
    with pytest.raises(counterfoil.Closed):
        await shop.transact(order)
    with pytest.raises(counterfoil.Closed, match="not open yet"):
        await counterfoil.open_async(journal_url).transact(order)
    async with counterfoil.open_async(journal_url, readonly=True) as reader:
        with pytest.raises(counterfoil.ReadOnly):
            await reader.transact(order)
