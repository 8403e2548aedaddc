"""
The outbox of a host that keeps its business rows in the database of the journal.

An agent writes the order and a row of the outbox and settles its turn with the reply, in one transaction of the host's own; only
then is anything sent. The row holds ids that correlate, never a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import counterfoil
from counterfoil import Grant, Identity, Inbound, Reply, Settle, Turn
from counterfoil.infrastructure.postgres.naming import quoted
from tests.postgres_server import Postgres

QUESTION = "one tea, please"
ANSWER = "your tea is on its way"


class Refused(Exception):
    """The business says no."""


class TeaHouse:
    """A host: its tables, its agent, its channel."""

    def __init__(self, postgres: Postgres, schema: str, journal: counterfoil.AsyncJournal) -> None:
        self.postgres, self.journal = postgres, journal
        self.orders, self.outbox = f"{quoted(schema)}.orders", f"{quoted(schema)}.outbox"
        postgres.execute(f"CREATE TABLE {self.orders} (operation_id text PRIMARY KEY, item text)")
        postgres.execute(
            f"CREATE TABLE {self.outbox} (tenant text, message_id text, payload jsonb, sent boolean DEFAULT false,"
            " PRIMARY KEY (tenant, message_id))"
        )
        self.sent: list[str] = []
        self.before_commit = asyncio.Event()
        self.may_commit = asyncio.Event()
        self.fails: Exception | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self.postgres.database_url, autocommit=True) as connection:
            yield connection

    async def grant_for(self, inbound: Inbound, action: str) -> Grant:
        return Grant(
            identity=Identity(tenant="acme", user=inbound.actor, principal=inbound.actor, verified=True), aliases=["tea"]
        )

    async def agent_for(self, alias: str, identity: Identity, inbound: Inbound) -> Any:
        async def agent(turn: Turn) -> None:
            async with self.connect() as connection:
                while True:
                    try:
                        async with connection.transaction():
                            await self.order(connection, identity.tenant, turn)
                        return
                    except psycopg.errors.SerializationFailure:
                        continue  # somebody has written to this chat meanwhile: all of it again, as PostgreSQL asks

        return agent

    async def order(self, connection: psycopg.AsyncConnection[Any], tenant: str, turn: Turn) -> None:
        await connection.execute(f"INSERT INTO {self.orders} VALUES (%s, 'tea')".encode(), (turn.operation_id,))
        await self.enqueue(connection, tenant, turn.operation_id, turn.connection, turn.event_id, "final")
        async with self.journal.within(connection) as tx:
            await tx.append(Settle(turn, ANSWER))
        self.before_commit.set()
        await self.may_commit.wait()
        if self.fails is not None:
            raise self.fails

    async def enqueue(self, connection: psycopg.AsyncConnection[Any], tenant: str, *ids: str) -> None:
        """Add a row, once, however often it is delivered."""
        operation_id, name, event_id, kind = ids
        payload = Jsonb({"connection": name, "event_id": event_id, "kind": kind})
        await connection.execute(
            f"INSERT INTO {self.outbox} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING".encode(), (tenant, operation_id, payload)
        )

    async def deliver(self, reply: Reply) -> None:
        self.sent.append(reply.text)  # to the platform
        async with self.connect() as connection:
            await connection.execute(
                f"UPDATE {self.outbox} SET sent = true WHERE message_id = %s".encode(), (reply.operation_id,)
            )

    def rows(self, table: str) -> list[Any]:
        return self.postgres.execute(f"SELECT * FROM {table} ORDER BY 1, 2")


@asynccontextmanager
async def open_house(postgres: Postgres, schema: str) -> AsyncIterator[tuple[TeaHouse, counterfoil.Runtime]]:
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        house = await asyncio.to_thread(TeaHouse, postgres, schema, journal)
        runtime = counterfoil.Runtime(journal, authorize=house.grant_for, resolve_agent=house.agent_for, deliver=house.deliver)
        async with runtime:
            yield house, runtime
        assert (await journal.verify()).agrees


def event(event_id: str = "4711") -> dict[str, str]:
    return {"connection": "tg", "conversation": "chat-1", "actor": "ann", "event_id": event_id, "text": QUESTION}


@pytest.mark.contract("OBX-01", "RUN-04", "RPL-01")
async def test_the_order_and_the_reply_commit_together_and_then_it_is_sent(postgres: Postgres, schema: str) -> None:
    async with open_house(postgres, schema) as (house, runtime):
        admission = await runtime.admit(event())
        await house.before_commit.wait()
        assert (house.rows(house.orders), house.rows(house.outbox), house.sent) == ([], [], [])
        others = [await runtime.journal.admit(other(number), GRANT) for number in range(10)]
        assert [each.status for each in others] == ["accepted"] * 10, "nobody waits for the host"
        house.may_commit.set()
        assert await runtime.drain("30s")

        operation_id = admission.operation_id
        payload = {"connection": "tg", "event_id": "4711", "kind": "final"}
        assert house.rows(house.orders) == [(operation_id, "tea")]
        assert house.rows(house.outbox) == [("acme", operation_id, payload, True)]
        assert house.sent == [ANSWER]
        for text in (QUESTION, ANSWER):
            assert text not in repr(house.rows(house.outbox))


async def test_what_the_business_refuses_is_neither_ordered_nor_answered(postgres: Postgres, schema: str) -> None:
    async with open_house(postgres, schema) as (house, runtime):
        house.fails = Refused("sold out")
        house.may_commit.set()
        await runtime.admit(event())
        assert await runtime.drain("30s")
        assert (house.rows(house.orders), house.rows(house.outbox)) == ([], [])
        assert ANSWER not in house.sent, "it is told that it could not be answered"


async def test_a_message_that_comes_meanwhile_makes_all_of_it_be_done_again(postgres: Postgres, schema: str) -> None:
    async with open_house(postgres, schema) as (house, runtime):
        await runtime.admit(event())
        await house.before_commit.wait()
        await runtime.admit(event("4712"))
        house.may_commit.set()
        assert await runtime.drain("30s")
        assert len(house.rows(house.orders)) == len(house.rows(house.outbox)) == 2
        assert house.sent == [ANSWER, ANSWER]


GRANT = Grant(identity=Identity(tenant="acme", principal="bob", user="bob", verified=True), aliases=["tea"])


def other(number: int) -> Inbound:
    return Inbound(connection="tg", conversation=f"other {number}", actor="bob", event_id=f"other {number}", text="hello")


async def test_what_is_delivered_joins_rows_and_events_of_another_chat(postgres: Postgres, schema: str) -> None:
    """`deliver` enqueues, and tells the kitchen by an event of its chat, in one transaction; then it sends."""
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        house = await asyncio.to_thread(TeaHouse, postgres, schema, journal)
        kitchen = Grant(identity=Identity(tenant="acme", principal="kitchen", verified=True), aliases=["kitchen"])

        async def agent_for(alias: str, identity: Identity, inbound: Inbound) -> Any:
            return lambda turn: ANSWER

        async def deliver(reply: Reply) -> None:
            async with house.connect() as connection, connection.transaction():
                await house.enqueue(connection, "acme", reply.operation_id, reply.connection, reply.in_reply_to, reply.kind)
                async with journal.within(connection) as tx:
                    told = Inbound(
                        connection="kitchen", conversation="orders", actor="house", event_id=reply.operation_id, text="one tea"
                    )
                    admission = await tx.append(counterfoil.Admit(told, kitchen))
                    assert not admission.duplicate
            house.sent.append(reply.text)

        runtime = counterfoil.Runtime(journal, authorize=house.grant_for, resolve_agent=agent_for, deliver=deliver)
        async with runtime:
            answered = await runtime.admit(event())
            assert await runtime.drain("30s")
        assert house.sent == [ANSWER]
        assert [row[1] for row in house.rows(house.outbox)] == [answered.operation_id]
        operator = Identity(tenant="acme", principal="kitchen", verified=True)
        waiting = (await journal.acting_as(operator).unresolved()).rows
        assert [(row.connection, row.state) for row in waiting] == [("kitchen", "accepted")]
        assert (await journal.verify()).agrees


@pytest.mark.contract("RPL-02", "OBX-01")
async def test_what_became_of_a_sending_does_not_wait_for_a_transaction_of_the_turn(postgres: Postgres, schema: str) -> None:
    """One that was left open behind the turn keeps the route's lease; that the reply was delivered is on record meanwhile."""
    grant = Grant(
        identity=Identity(tenant="acme", principal="ann", verified=True, permissions=frozenset({"journal:operate"})),
        aliases=("a",),
    )
    sent: list[str] = []
    left: list[psycopg.AsyncConnection[Any]] = []

    async def agent(turn: Turn) -> str:
        connection = await psycopg.AsyncConnection.connect(postgres.database_url)
        left.append(connection)
        async with journal.within(connection) as tx:
            await tx.append(Settle(turn, "by the transaction"))
        return "by the agent"

    async def authorize(inbound: Inbound, action: str) -> Grant:
        return grant

    async def resolve(alias: str, identity: Identity, inbound: Inbound) -> Any:
        return agent

    async def deliver(reply: Reply) -> None:
        sent.append(reply.text)

    async with counterfoil.open_async(postgres.url(schema)) as journal:
        async with counterfoil.Runtime(journal, authorize=authorize, resolve_agent=resolve, deliver=deliver) as runtime:
            await runtime.admit(Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello"))
            async with asyncio.timeout(20):
                while not sent or (await journal.acting_as(grant.identity).unresolved()).rows:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            with pytest.raises(psycopg.errors.SerializationFailure):
                await left[0].commit()
            await left[0].close()
            await runtime.drain()
        assert ["by the agent"] == sent
        assert (await journal.verify()).agrees
