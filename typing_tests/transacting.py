"""A host that commits its own rows with the journal's, typed as in a repository of its own. Never run; see host.py."""

from __future__ import annotations

from typing import Any, assert_type

import psycopg

import counterfoil
from counterfoil import (
    Admission,
    Admit,
    AgentAnswer,
    AsyncTx,
    AsyncWithinTx,
    Grant,
    Identity,
    Inbound,
    InsideTransaction,
    LeaseLost,
    Result,
    Settle,
    Turn,
    Tx,
    WithinTx,
)

GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=["helper"])


class Lease:
    lease_id = "lk-0"
    fence = 1


def order(tx: Tx) -> int | None:
    done: Result = tx.execute("INSERT INTO orders (item) VALUES (:item)", {"item": "tea"})
    return done.lastrowid


async def pay(tx: AsyncTx) -> Admission:
    await tx.execute("UPDATE orders SET paid = ? WHERE id = ?", (True, 1))
    await tx.guard(Lease())
    inbound = Inbound(connection="shop", conversation="1", actor="ann", event_id="paid-1", text="paid")
    return await tx.append(Admit(inbound, GRANT, command_id="paid-1"))


def settle(tx: Tx, turn: Turn) -> None:
    assert_type(tx.append(Settle(turn, "done")), None)
    tx.append(Settle(turn, AgentAnswer(text="done", leaf="leaf-1")))
    tx.append(Settle(turn, None))
    tx.append(Settle("op-1", "done"))  # type: ignore[arg-type]
    tx.append("done")  # type: ignore[call-overload]


def join(journal: counterfoil.Journal, connection: psycopg.Connection[dict[str, Any]], inbound: Inbound, turn: Turn) -> None:
    with journal.within(connection) as tx:
        assert_type(tx, WithinTx)
        tx.guard(Lease())
        assert_type(tx.append(Admit(inbound, GRANT)), Admission)
        assert_type(tx.append(Settle(turn, "done")), None)
        tx.execute("SELECT 1")  # type: ignore[attr-defined]


async def join_async(journal: counterfoil.AsyncJournal, connection: psycopg.AsyncConnection[Any], inbound: Inbound) -> None:
    async with journal.within(connection) as tx:
        assert_type(tx, AsyncWithinTx)
        await tx.guard(Lease())
        assert_type(await tx.append(Admit(inbound, GRANT)), Admission)
    with counterfoil.open("support.sqlite") as other:
        other.within(connection)  # type: ignore[arg-type]


def main() -> None:
    with counterfoil.open("support.sqlite") as journal:
        assert_type(journal.transact(order), int | None)
        assert_type(journal.transact(lambda tx: tx.execute("SELECT 1").rowcount), int)
        journal.transact(order, guard=[Lease(), Lease()])
        journal.transact(pay)  # type: ignore[arg-type, unused-coroutine]
        journal.transact(order, guard=7)  # type: ignore[arg-type]


async def main_async() -> None:
    async with counterfoil.open_async("support.sqlite") as journal:
        assert_type(await journal.transact(pay), Admission)
        assert_type(await journal.transact(order, guard=Lease()), int | None)
        try:
            assert_type(await journal.transact(lambda tx: tx.execute("SELECT 1").rowcount), int)
        except LeaseLost as error:
            print(error.reason, error.lock, error.key)
        except InsideTransaction:
            pass
