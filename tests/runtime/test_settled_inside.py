"""An agent that settles its turn in the transaction that writes its rows: both are committed, and then it is sent; or neither."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import psycopg
import pytest

import counterfoil
from counterfoil import AgentAnswer, Settle, Turn
from tests.rows import change, divided, rows

if TYPE_CHECKING:
    from tests.conftest import Site
    from tests.runtime.conftest import Aftermath, Host, Hosts, Workers

    Look: TypeAlias = Callable[[Site], AbstractContextManager[Aftermath]]

Way: TypeAlias = Literal["transact", "within"]
SETTLED = ["operation.admitted", "operation.claimed", "operation.settled", "reply.staged", "reply.delivered"]


class Shop:
    """A host with a table of orders, whose agent writes one and settles its turn in one transaction, in one way or the other."""

    def __init__(self, host: Host, url: str, way: Way) -> None:
        self.host, self.url, self.way = host, url, way

    @asynccontextmanager
    async def joined(self, turn: Turn, item: str = "tea") -> AsyncIterator[tuple[Any, Any]]:
        """A transaction of the host's own in which the order is written; it is committed at the end."""
        database, schema = divided(self.url)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute(f"INSERT INTO \"{schema}\".orders VALUES ('{item}')".encode())
            async with self.host.journal.within(connection) as tx:
                yield connection, tx
            await connection.commit()

    async def settle(self, turn: Turn, answer: Any, *, item: str = "tea") -> None:
        if self.way == "within":
            async with self.joined(turn, item) as (_, tx):
                await tx.append(Settle(turn, answer))
            return

        async def body(tx: counterfoil.AsyncTx) -> None:
            await tx.execute(f"INSERT INTO orders VALUES ('{item}')")
            await tx.append(Settle(turn, answer))

        await self.host.journal.transact(body)

    async def orders(self) -> list[str]:
        return [item for (item,) in await self.host.rows("SELECT item FROM orders ORDER BY item")]


async def make_orders(host: Host) -> None:
    await host.journal.transact(lambda tx: tx.execute("CREATE TABLE orders (item TEXT PRIMARY KEY)"))


@pytest.fixture
async def shop(host: Host, url: str) -> Shop:
    await make_orders(host)
    return Shop(host, url, "transact")


@pytest.mark.contract("RUN-04")
async def test_rows_settlement_and_reply_commit_together_and_then_it_is_sent(shop: Shop) -> None:
    host = shop.host

    async def agent(turn: Turn) -> None:
        await shop.settle(turn, "one tea, at once")
        assert await shop.orders() == ["tea"]
        assert host.sent == [], "nothing is sent before the agent has ended"

    host.on_turn = agent
    operation_id = await host.answer()

    assert [(reply.operation_id, reply.kind, reply.text) for reply in host.sent] == [(operation_id, "final", "one tea, at once")]
    assert await host.types(operation_id) == SETTLED
    numbers = host.journal.diagnostics()
    assert (numbers["completed"], numbers["deliveries"], numbers["truncated"]) == (1, 1, 0)
    assert await host.unresolved() == {}
    assert await host.journal.holders() == [], "the route is given back"
    assert (await host.journal.verify()).agrees


async def test_what_is_rolled_back_settles_nothing(shop: Shop) -> None:
    """What the agent returns counts then, as always."""
    host = shop.host

    async def agent(turn: Turn) -> str:
        def body(tx: counterfoil.Tx) -> None:
            tx.execute("INSERT INTO orders VALUES ('tea')")
            tx.append(Settle(turn, "one tea, at once"))
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            await host.journal.transact(body)
        return "no tea"

    host.on_turn = agent
    operation_id = await host.answer()

    assert [reply.text for reply in host.sent] == ["no tea"]
    assert await shop.orders() == []
    assert await host.types(operation_id) == SETTLED


@pytest.mark.contract("RPL-03", "RUN-11")
@pytest.mark.parametrize("after", ["returns", "raises", "cancels itself"])
async def test_what_was_settled_stands_whatever_the_agent_does_then(shop: Shop, after: str) -> None:
    host = shop.host

    async def agent(turn: Turn) -> str:
        await shop.settle(turn, "one tea")
        if after == "raises":
            raise ArithmeticError
        if after == "cancels itself":
            raise asyncio.CancelledError
        return "no tea"

    host.on_turn = agent
    operation_id = await host.answer()

    assert [(reply.kind, reply.text) for reply in host.sent] == [("final", "one tea")]
    assert await host.types(operation_id) == SETTLED
    assert host.journal.diagnostics()["completed"] == 1
    assert host.journal.diagnostics()["failed"] == 0


@pytest.mark.parametrize("answer", [None, "", AgentAnswer(text="")])
async def test_a_settlement_without_a_reply(shop: Shop, answer: Any) -> None:
    host = shop.host
    host.on_turn = lambda turn: shop.settle(turn, answer)
    operation_id = await host.answer()

    assert host.sent == []
    assert await host.types(operation_id) == SETTLED[:3]
    assert await host.unresolved() == {}
    assert await host.journal.holders() == []


async def test_a_settlement_with_a_leaf(shop: Shop) -> None:
    host = shop.host
    host.on_turn = lambda turn: shop.settle(turn, AgentAnswer(text="one tea", leaf="leaf-1"))
    await host.answer()

    assert [event.leaf for event in await host.states("binding.advanced")] == ["leaf-1"]
    assert [reply.text for reply in host.sent] == ["one tea"]


@pytest.mark.contract("RPL-04")
async def test_a_reply_that_is_too_long_is_cut(hosts: Hosts, url: str) -> None:
    host = await hosts.open(url, max_response_bytes=40)
    await make_orders(host)
    shop = Shop(host, url, "transact")
    host.on_turn = lambda turn: shop.settle(turn, "long " * 20)
    await host.answer()

    assert [reply.text for reply in host.sent] == [("long " * 20)[:28] + "\n[truncated]"]
    assert [event.truncated for event in await host.states("reply.staged")] == [True]
    assert host.journal.diagnostics()["truncated"] == 1


async def test_the_next_entries_of_the_route_follow(shop: Shop) -> None:
    host = shop.host
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    for number in (2, 3):
        await host.accept(f"m{number}")
    host.on_turn = lambda turn: shop.settle(turn, f"re: {turn.event_id}", item=turn.event_id)
    held.go.set()
    await host.drain()

    assert [reply.in_reply_to for reply in host.sent] == ["m1", "m2", "m3"]
    assert await shop.orders() == ["m2", "m3"]


# What is refused.


async def test_a_turn_is_settled_once(shop: Shop) -> None:
    host = shop.host

    async def agent(turn: Turn) -> None:
        await shop.settle(turn, "one tea")
        with pytest.raises(counterfoil.InvalidValue, match="has been settled already"):
            await shop.settle(turn, "two teas", item="milk")

    host.on_turn = agent
    await host.answer()
    assert [reply.text for reply in host.sent] == ["one tea"]
    assert await shop.orders() == ["tea"]


async def test_a_turn_that_does_not_run_here(shop: Shop, hosts: Hosts, url: str) -> None:
    host = shop.host
    turns: list[Turn] = []

    async def agent(turn: Turn) -> str:
        turns.append(turn)
        other = counterfoil.open_async(":memory:")
        async with other:
            with pytest.raises(counterfoil.InvalidValue, match="does not run, or no longer, in the opening"):
                await other.transact(lambda tx: tx.append(Settle(turn, "one tea")))
        return "ended"

    host.on_turn = agent
    await host.answer()
    with pytest.raises(counterfoil.InvalidValue, match="does not run, or no longer, in the opening"):
        await shop.settle(turns[0], "one tea")
    assert [reply.text for reply in host.sent] == ["ended"]
    assert await shop.orders() == []


@pytest.mark.no_engine("nothing is appended yet")
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda turn: Settle("op-1", "text"), "turn must be the Turn that the agent got, not str"),  # type: ignore[arg-type]
        (lambda turn: Settle(turn, 7), "answer must be text, an AgentAnswer or None, not int"),  # type: ignore[arg-type]
        (lambda turn: Settle(turn, b"text"), "answer must be text, an AgentAnswer or None, not bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_settlement_of_something_else_is_refused_by_name(make: Callable[[Turn], object], complaint: str) -> None:
    turn = Turn(
        operation_id="op-1",
        connection="tg",
        conversation="c",
        thread=None,
        actor="ann",
        event_id="1",
        text="secret",
        session_id="s",
        generation=0,
    )
    with pytest.raises(counterfoil.InvalidValue, match=complaint):
        make(turn)
    assert "secret" not in repr(Settle(turn, "secret"))


@pytest.mark.contract("RUN-05", "LCK-12")
async def test_a_worker_that_has_lost_its_route_settles_nothing(hosts: Hosts, journal_url: str) -> None:
    """Neither is its row written; that its result was refused is recorded by its runtime."""
    host, other = await hosts.open(journal_url), await hosts.open(journal_url)
    await make_orders(host)
    shop = Shop(host, journal_url, "transact")
    refused: list[counterfoil.LeaseLost] = []

    async def agent(turn: Turn) -> None:
        try:
            host.core.waiting.of_loop()._kept.clear()  # so that nothing renews it
            hosts.clock.advance("31s")
            await shop.settle(turn, "one tea")
        except counterfoil.LeaseLost as error:
            refused.append(error)
            raise

    host.on_turn = agent
    operation_id = await host.accept()
    await host.drain()

    assert [error.lock for error in refused] == ["counterfoil.route"]
    assert [reply.kind for reply in host.sent] == []
    assert await shop.orders() == []
    assert "operation.late_refused" in await host.types(operation_id)
    assert (await other.operation(operation_id)).phase == "executing"


@pytest.mark.contract("RUN-13")
async def test_a_stop_after_the_settlement_loses_nothing(shop: Shop) -> None:
    host = shop.host
    settled = asyncio.Event()

    async def agent(turn: Turn) -> None:
        await shop.settle(turn, "one tea")
        settled.set()
        await asyncio.Event().wait()

    host.on_turn = agent
    operation_id = await host.accept()
    await settled.wait()
    await host.runtime.stop()

    assert [reply.text for reply in host.sent] == ["one tea"]
    assert await host.types(operation_id) == SETTLED
    assert host.journal.diagnostics()["cancelled"] == 0


async def test_a_turn_that_does_not_end_after_its_settlement(hosts: Hosts, url: str) -> None:
    """Its time passes, and what it has settled is sent all the same; when it ends in the end nothing is refused."""
    host = await hosts.open(url, real_time=True, max_turn="100ms", stop_deadline="100ms")
    await make_orders(host)
    shop = Shop(host, url, "transact")
    held = host.held(stubborn=True)

    async def agent(turn: Turn) -> str:
        await shop.settle(turn, "one tea")
        return await held(turn)

    host.on_turn = agent
    operation_id = await host.accept()
    await host.drain()
    assert [reply.text for reply in host.sent] == ["one tea"]
    held.go.set()
    await held.ended.wait()
    await host.journal.transact(lambda tx: None)
    assert await host.types(operation_id) == SETTLED


# In a transaction of the host's own.


@pytest.mark.postgres_only("it joins a psycopg connection")
@pytest.mark.contract("RUN-04", "RPL-01")
async def test_nothing_is_sent_before_the_commit_of_the_host(host: Host, url: str) -> None:
    await make_orders(host)
    shop = Shop(host, url, "within")
    staged, go = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> None:
        async with shop.joined(turn) as (_, tx):
            await tx.append(Settle(turn, "one tea"))
            staged.set()
            await go.wait()

    host.on_turn = agent
    operation_id = await host.accept()
    await staged.wait()
    assert (await host.operation(operation_id)).phase == "executing"
    assert (await shop.orders(), host.sent) == ([], [])
    assert (await host.admit("m2", "another chat")).status == "accepted"
    go.set()
    await host.drain()

    assert await shop.orders() == ["tea"]
    assert ("one tea", operation_id) in [(reply.text, reply.operation_id) for reply in host.sent]
    assert await host.types(operation_id) == SETTLED
    assert (await host.journal.verify()).agrees


@pytest.mark.postgres_only("it joins a psycopg connection")
@pytest.mark.contract("RUN-05", "LCK-12")
async def test_nobody_takes_the_route_while_the_transaction_is_open(host: Host, hosts: Hosts, url: str) -> None:
    """Reconcile with force would fence the turn out; it comes through before the settlement or not at all."""
    await make_orders(host)
    shop = Shop(host, url, "within")
    other = await hosts.open(url)
    staged, go = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> None:
        async with shop.joined(turn) as (_, tx):
            await tx.append(Settle(turn, "one tea"))
            staged.set()
            await go.wait()

    host.on_turn = agent
    operation_id = await host.accept()
    await staged.wait()
    row = (await other.unresolved())[operation_id]
    answer = await other.desk.reconcile(operation_id, expected_version=row.version, acknowledge_duplicate_risk=True, force=True)
    go.set()
    await host.drain()
    assert answer == counterfoil.Reconciliation("unavailable")
    assert [reply.text for reply in host.sent] == ["one tea"]
    assert (await host.operation(operation_id)).phase == "succeeded"


@pytest.mark.postgres_only("it joins a psycopg connection")
@pytest.mark.contract("RUN-05", "JRN-02")
async def test_a_settlement_gone_stale_fails_the_commit_and_is_done_again(host: Host, url: str) -> None:
    """Another message has come to the conversation meanwhile."""
    await make_orders(host)
    shop = Shop(host, url, "within")
    attempts: list[str] = []

    async def agent(turn: Turn) -> None:
        while True:
            attempts.append(turn.event_id)
            try:
                async with shop.joined(turn, item=turn.event_id) as (_, tx):
                    await tx.append(Settle(turn, f"tea number {len(attempts)}"))
                    if len(attempts) == 1:
                        await host.queue_only("m2")
                return
            except psycopg.errors.SerializationFailure:
                assert await shop.orders() == []

    host.on_turn = agent
    await host.accept("m1")
    await host.drain()
    assert attempts == ["m1", "m1", "m2"]
    assert [(reply.in_reply_to, reply.text) for reply in host.sent] == [("m1", "tea number 2"), ("m2", "tea number 3")]
    assert await shop.orders() == ["m1", "m2"]


# Crashes.


class Crash(NamedTuple):
    """What a kill leaves of a turn that settles itself, and what becomes of it."""

    at: tuple[int, str] | str
    phase: str
    reply: str = "none"
    orders: int = 0
    answers: int = 0
    """That had gone out by the kill."""
    reconciled: int = 0
    """After what is listed was reconciled with the acknowledgment."""


TABLE = [
    Crash("agent", "executing"),
    Crash("inside", "executing"),
    Crash("agent_done", "succeeded", "pending", orders=1, reconciled=1),
    Crash("deliver", "succeeded", "pending", orders=1, reconciled=1),
    Crash("delivered", "succeeded", "pending", orders=1, answers=1, reconciled=2),
]
EVENT = {"connection": "tg", "conversation": "c1", "actor": "ann", "event_id": "m1", "text": "hello"}


@pytest.mark.contract("RUN-02", "RUN-04", "RPL-01", "RPL-03", "JRN-03")
@pytest.mark.parametrize("crash", TABLE, ids=lambda crash: str(crash.at))
def test_the_crash_table(site: Site, workers: Workers, look: Look, crash: Crash) -> None:
    crash_and_come_back(site, workers, look, crash, "settles")


@pytest.mark.postgres_only("it joins a psycopg connection")
@pytest.mark.contract("RUN-02", "RUN-04", "RPL-01", "RPL-03", "JRN-03")
@pytest.mark.parametrize("crash", TABLE, ids=lambda crash: str(crash.at))
def test_the_crash_table_of_a_transaction_of_the_hosts(site: Site, workers: Workers, look: Look, crash: Crash) -> None:
    crash_and_come_back(site, workers, look, crash, "joins")


def crash_and_come_back(site: Site, workers: Workers, look: Look, crash: Crash, kind: str) -> None:
    """The row of the host is there if, and only if, the settlement and its reply are; nothing is run again."""
    counterfoil.open(site.url).close()
    change(site.url, "CREATE TABLE orders (item TEXT PRIMARY KEY)")
    assert workers.run(site, events=[EVENT], kind=kind, die_in=crash.at) == -signal.SIGKILL
    check(site, look, crash, crash.answers)
    for _ in range(2):
        assert workers.run(site, events=[EVENT], kind=kind) == 0
        check(site, look, crash, crash.answers)
    with look(site) as left:
        reconciles = [(row.operation_id, row.version) for row in left.unresolved.values()]
    assert workers.run(site, reconciles=reconciles, kind=kind) == 0
    with look(site) as left:
        assert left.unresolved == {}
        assert len(left.answers) == crash.reconciled
        assert all(line[2] == "re: hello" for line in left.notes("answers"))


@pytest.mark.sqlite_only("there the transaction of a body is an append of the writer")
@pytest.mark.contract("RUN-04", "JRN-03")
@pytest.mark.parametrize(
    "crash",
    [Crash((3, "before"), "executing"), Crash((3, "after"), "succeeded", "pending", orders=1, reconciled=1)],
    ids=lambda crash: str(crash.at),
)
def test_a_kill_around_the_commit_of_a_body(site: Site, workers: Workers, look: Look, crash: Crash) -> None:
    counterfoil.open(site.url).close()
    change(site.url, "CREATE TABLE orders (item TEXT PRIMARY KEY)")
    assert workers.run(site, events=[EVENT], kind="settles", die_at=crash.at) == -signal.SIGKILL
    check(site, look, crash, 0)


def check(site: Site, look: Look, crash: Crash, answers: int) -> None:
    with look(site) as left:
        operation = left.operations()["m1"]
        assert (operation.phase, operation.reply) == (crash.phase, crash.reply)
        assert list(left.unresolved) == [operation.operation_id]
        assert len(left.answers) == answers
        assert left.ran in ([], ["m1"])
        assert left.journal.verify().agrees
    assert len(rows(site.url, "SELECT item FROM orders")) == crash.orders
