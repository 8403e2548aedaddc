"""A host that commits its own rows with the journal's, typed as in a repository of its own. Never run; see host.py."""

from __future__ import annotations

from typing import assert_type

import counterfoil
from counterfoil import Admission, Admit, AsyncTx, Grant, Identity, Inbound, InsideTransaction, LeaseLost, Result, Tx

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
