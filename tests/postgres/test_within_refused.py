"""Connections that cannot be joined, and a tx that is used where it is not good: refused with a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil.infrastructure.postgres.naming import quoted
from tests.postgres.hosts import GRANT, Shop, inbound, message
from tests.postgres_server import Postgres, Server


def join(journal: counterfoil.Journal, connection: Any) -> None:
    with journal.within(connection) as tx:
        tx.append(message("1"))


def test_autocommit_outside_of_a_transaction(shop: Shop) -> None:
    with shop.connect(autocommit=True) as connection:
        with pytest.raises(counterfoil.InvalidValue, match=r"in autocommit and in no transaction, .* `with conn"):
            join(shop.journal, connection)
        with connection.transaction():
            join(shop.journal, connection)
    assert shop.events == ["1"]


def test_pipeline_mode(shop: Shop) -> None:
    with shop.connect() as connection:
        with connection.pipeline(), pytest.raises(counterfoil.InvalidValue, match="in pipeline mode"):
            join(shop.journal, connection)
        with shop.journal.within(connection) as tx:
            with connection.pipeline(), pytest.raises(counterfoil.InvalidValue, match="in pipeline mode"):
                tx.append(message("1"))
            tx.append(message("2"))
        connection.commit()
    assert shop.events == ["2"]


def test_a_transaction_that_has_failed(shop: Shop) -> None:
    with shop.connect() as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(counterfoil.InvalidValue, match="the transaction of the connection has failed; roll it back"):
            join(shop.journal, connection)


def test_a_transaction_that_fails_in_the_block(shop: Shop) -> None:
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            with pytest.raises(psycopg.Error):
                connection.execute("SELECT 1 / 0")
            with pytest.raises(counterfoil.InvalidValue, match="has failed"):
                tx.append(message("1"))
            connection.rollback()
            with pytest.raises(counterfoil.InvalidValue, match="has ended inside the block"):
                tx.append(message("1"))
    assert shop.events == []


def test_a_closed_connection(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.close()
        with pytest.raises(counterfoil.InvalidValue, match="the connection is closed"):
            join(shop.journal, connection)


@pytest.mark.parametrize("connection", [None, "postgresql://", object()])
def test_what_is_no_connection(shop: Shop, connection: Any) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=r"connection must be a psycopg.Connection, not"):
        join(shop.journal, connection)


async def test_a_connection_of_the_other_colour(shop: Shop) -> None:
    async with (
        counterfoil.open_async(shop.url) as journal,
        await psycopg.AsyncConnection.connect(shop.postgres.database_url) as connection,
    ):
        with pytest.raises(counterfoil.InvalidValue, match=r"joins a psycopg.Connection, not a psycopg.AsyncConnection"):
            shop.journal.core.hosting.within(connection)  # type: ignore[arg-type]
        with shop.connect() as plain, pytest.raises(counterfoil.InvalidValue, match=r"joins a psycopg.AsyncConnection, not a"):
            journal.within(plain)  # type: ignore[arg-type]


async def test_a_wait_beside_a_running_event_loop(shop: Shop) -> None:
    with shop.connect() as connection:
        with pytest.raises(counterfoil.WrongThread):
            shop.journal.within(connection)


def test_a_journal_on_sqlite(postgres: Postgres) -> None:
    with counterfoil.open(":memory:") as journal, postgres.connect() as connection:
        with pytest.raises(counterfoil.InvalidValue, match=r"this one is on SQLite, where journal.transact\(body\) commits"):
            journal.within(connection)


async def test_a_journal_on_sqlite_in_asyncio(postgres: Postgres) -> None:
    async with counterfoil.open_async(":memory:") as journal:
        async with await psycopg.AsyncConnection.connect(postgres.database_url) as connection:
            with pytest.raises(counterfoil.InvalidValue, match="this one is on SQLite"):
                journal.within(connection)


def test_a_journal_that_is_open_for_reading(shop: Shop) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with counterfoil.open(shop.url, readonly=True) as journal, shop.connect() as connection:
        with pytest.raises(counterfoil.ReadOnly, match="open it without readonly"):
            join(journal, connection)


@pytest.mark.parametrize("how", ["closed before", "closed in the block"])
def test_a_journal_that_is_closed(shop: Shop, how: str) -> None:
    journal = counterfoil.open(shop.url)
    with shop.connect() as connection:
        if how == "closed before":
            journal.close()
            with pytest.raises(counterfoil.Closed):
                join(journal, connection)
        else:
            block = journal.within(connection)
            tx = block.__enter__()
            tx.append(message("1"))
            journal.close()
            with pytest.raises(counterfoil.Closed):
                tx.append(message("2"))
            with pytest.raises(counterfoil.Closed):
                tx.guard(Lease())
            with pytest.raises(counterfoil.Closed):
                block.__exit__(None, None, None)
        connection.commit()
    assert shop.events == []


class Lease:
    lease_id = "lk-00000000000000000000000000000000"
    fence = 1


def test_a_transaction_that_is_read_only(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.read_only = True
        with pytest.raises(counterfoil.ReadOnly, match="the transaction of the connection is read-only"):
            join(shop.journal, connection)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS, "it has not failed"


def test_another_database(shop: Shop) -> None:
    shop.postgres.execute("CREATE DATABASE another")
    try:
        with shop.connect(dbname="another") as connection:
            connection.execute(f"CREATE SCHEMA {quoted(shop.schema)}".encode())
            with pytest.raises(counterfoil.InvalidValue, match="not to the journal's database"):
                join(shop.journal, connection)
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        shop.postgres.execute("DROP DATABASE another")


def test_another_server_with_a_copy_of_the_journal(shop: Shop) -> None:
    """The same names, and the same numbers."""
    other = Server()
    try:
        with counterfoil.open(other.url(shop.schema)) as journal, other.connect(autocommit=False) as connection:
            join(journal, connection)
            connection.commit()
            with pytest.raises(counterfoil.InvalidValue, match="not to the journal's database"):
                join(shop.journal, connection)
    finally:
        other.close()


def test_a_block_for_a_connection_inside_another(shop: Shop) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with shop.connect() as connection, shop.connect() as second:
        with shop.journal.within(connection) as tx:
            with pytest.raises(counterfoil.InvalidValue, match="joined already; use the tx of the block around"):
                join(shop.journal, connection)
            tx.append(message("1"))
            with shop.journal.within(second) as other:
                other.append(message("2", "other"))
            second.commit()
        join(shop.journal, connection)
        connection.commit()
    assert shop.events == ["0", "2", "1"]


def test_a_block_is_entered_once(shop: Shop) -> None:
    with shop.connect() as connection:
        block = shop.journal.within(connection)
        with block, pytest.raises(RuntimeError, match="entered already"):
            block.__enter__()


def test_a_tx_is_good_inside_its_block_alone(shop: Shop) -> None:
    uses: list[Callable[[counterfoil.WithinTx], object]] = [
        lambda tx: tx.append(message("1")),
        lambda tx: tx.guard(Lease()),
    ]
    refused: list[BaseException] = []

    def elsewhere(tx: counterfoil.WithinTx) -> None:
        for use in uses:
            try:
                use(tx)
            except counterfoil.Closed as error:
                refused.append(error)

    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            thread = threading.Thread(target=elsewhere, args=(tx,))
            thread.start()
            thread.join()
        for use in uses:
            with pytest.raises(counterfoil.Closed, match="good inside its block alone, in the thread that runs it"):
                use(tx)
        connection.commit()
    assert len(refused) == 2
    assert shop.events == []


def test_inside_a_body(shop: Shop) -> None:
    with shop.connect() as connection:
        with pytest.raises(counterfoil.InsideTransaction):
            shop.journal.transact(lambda tx: join(shop.journal, connection))
        with shop.journal.within(connection) as joined, pytest.raises(counterfoil.InsideTransaction):
            shop.journal.transact(lambda tx: joined.append(message("1")))


def test_calls_of_the_journal_inside_a_block_are_transactions_of_their_own(shop: Shop) -> None:
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
            assert shop.journal.admit(inbound("2", "other"), GRANT).status == "accepted"
            shop.journal.transact(lambda body: body.append(message("3", "a third")))
        connection.rollback()
    assert shop.events == ["2", "3"]


@pytest.mark.parametrize("command", [None, inbound("1"), "1"])
def test_only_commands_are_appended(shop: Shop, command: Any) -> None:
    with shop.connect() as connection, shop.journal.within(connection) as tx:
        with pytest.raises(counterfoil.InvalidValue, match=r"takes a counterfoil.Admit or Settle, not"):
            tx.append(command)


# Roles.


@pytest.fixture
def role(postgres: Postgres) -> Iterator[str]:
    """A role of a host that may log in, and nothing else."""
    postgres.execute("CREATE ROLE counterfoil_host LOGIN")
    yield "counterfoil_host"
    postgres.execute("DROP OWNED BY counterfoil_host")
    postgres.execute("DROP ROLE counterfoil_host")


def grant(shop: Shop, role: str, *rights: str) -> None:
    for right in rights:
        shop.postgres.execute(f"GRANT {right.format(quoted(shop.schema))} TO {role}")


NOT_ENOUGH: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "the schema": ("USAGE ON SCHEMA {}",),
    "to read": ("USAGE ON SCHEMA {}", "SELECT ON ALL TABLES IN SCHEMA {}"),
    "to stage": ("USAGE ON SCHEMA {}", "SELECT ON ALL TABLES IN SCHEMA {}", "INSERT, DELETE ON TABLE {}.cf_staged"),
    "all but the schema": ("SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {}",),
}


@pytest.mark.parametrize("rights", NOT_ENOUGH)
def test_a_role_that_may_not_append(shop: Shop, role: str, rights: str) -> None:
    grant(shop, role, *NOT_ENOUGH[rights])
    with shop.connect(user=role) as connection:
        with pytest.raises(counterfoil.JournalRefused, match="the role of the connection may not append; grant it"):
            join(shop.journal, connection)
        assert connection.execute("SELECT 1").fetchone() == (1,), "its transaction goes on"


def test_a_role_of_the_hosts_with_what_the_writer_has(shop: Shop, role: str) -> None:
    grant(shop, role, "USAGE ON SCHEMA {}", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {}")
    with shop.journal.lock("orders").hold("k") as lease, shop.connect(user=role) as connection:
        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            tx.guard(lease)
            tx.append(message("1"))
            tx.append(message("2"))
        connection.commit()
    assert (shop.items, shop.events) == (["tea"], ["1", "2"])


FORKED = """
    import os, sys, warnings, counterfoil, psycopg
    from tests.postgres.hosts import message
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
    url, database = sys.argv[1:]
    journal = counterfoil.open(url)
    connection = psycopg.connect(database)
    block = journal.within(connection)
    tx = block.__enter__()
    tx.append(message("1"))
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (
            lambda: journal.within(connection),
            lambda: tx.append(message("2")),
            lambda: block.__exit__(None, None, None),
        ):
            try:
                use()
            except counterfoil.ForkedError:
                refused += 1
        try:
            block.__exit__(ValueError, ValueError(), None)
        except AssertionError:  # it was left before
            refused += 1
        os._exit(4 - refused)
    assert os.waitpid(child, 0)[1] == 0
    tx.append(message("3"))
    block.__exit__(None, None, None)
    connection.commit()
    connection.close()
    journal.close()
"""


@pytest.mark.contract("JRN-15")
def test_a_block_that_crosses_a_fork(shop: Shop) -> None:
    """It is the parent's, with its connection."""
    script = textwrap.dedent(FORKED)
    root = Path(counterfoil.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", script, shop.url, shop.postgres.database_url]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shop.events == ["1", "3"]


def test_a_session_in_which_no_trigger_fires(shop: Shop) -> None:
    """What it stages would be committed and never appended."""
    with shop.connect(options="-c session_replication_role=replica") as connection:
        with pytest.raises(counterfoil.InvalidValue, match="session_replication_role is replica nothing is appended"):
            join(shop.journal, connection)
