"""A guard in a host's own transaction: until that has ended the key is nobody else's, and nobody waits who wants it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

import counterfoil
from counterfoil.infrastructure.admitting import admit_command
from counterfoil.infrastructure.commands.holds import ForceRelease, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew, Ticket
from counterfoil.testing import MovableClock
from tests.front.conftest import Pause
from tests.postgres.hosts import GRANT, Shop, inbound, message

T = TypeVar("T")

ROOT = Path(counterfoil.__file__).parents[1]
UNAVAILABLE = "a transaction that is guarded by the lease of this key has not ended yet; try again"


def by_another(call: Callable[[], T]) -> T:
    """Have a key asked for by somebody who does not run inside a block that has it."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result(30)


@pytest.mark.contract("LCK-12")
def test_it_commits_while_the_lease_is_the_current_one(shop: Shop) -> None:
    with shop.journal.lock("orders").hold("k") as lease, shop.connect() as connection:
        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            tx.guard(lease)
        connection.commit()
    assert shop.items == ["tea"]
    assert shop.journal.holders() == []


@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("how", ["released", "revoked", "ttl"])
@pytest.mark.parametrize("again", [False, True], ids=["free", "held by the next"])
def test_a_lease_that_has_ended_guards_nothing(postgres: Any, schema: str, how: str, again: bool) -> None:
    clock = MovableClock()
    with counterfoil.open(postgres.url(schema), clock=clock) as journal, counterfoil.open(postgres.url(schema)) as other:
        shop = Shop(postgres, schema, journal)
        holding = journal.lock("orders").hold("k")
        lease = holding.__enter__()
        if how == "released":
            holding.__exit__(None, None, None)
        elif how == "revoked":
            assert other.lock("orders").force_release("k")
        else:
            clock.advance("31s")
        if again and how != "ttl":
            by_another(other.lock("orders").hold("k").__enter__)
        with shop.connect() as connection:
            shop.order(connection, "tea")

            def block() -> None:
                with journal.within(connection) as tx:
                    tx.append(message("1"))
                    tx.guard(lease)

            with pytest.raises(counterfoil.LeaseLost) as lost:
                block()
            assert lost.value.reason == how
            connection.commit()
        assert shop.events == [], "a block that raises takes back what it appended"


@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("how", ["swallowed", "while the block runs"])
def test_a_block_whose_guard_has_ended_raises_at_its_end(postgres: Any, schema: str, how: str) -> None:
    clock = MovableClock()
    with counterfoil.open(postgres.url(schema), clock=clock) as journal:
        shop = Shop(postgres, schema, journal)
        lease = journal.lock("orders").hold("k").__enter__()

        def block() -> None:
            with journal.within(connection) as tx:
                tx.append(message("1"))
                if how == "swallowed":
                    clock.advance("31s")
                    with pytest.raises(counterfoil.LeaseLost):
                        tx.guard(lease)
                else:
                    tx.guard(lease)
                    clock.advance("31s")

        with shop.connect() as connection:
            with pytest.raises(counterfoil.LeaseLost, match="ttl"):
                block()
            connection.commit()
        assert shop.events == []


@pytest.mark.contract("LCK-12", "LCK-16")
def test_who_would_end_or_take_a_guarded_lease_is_answered_at_once(shop: Shop) -> None:
    """Nobody waits in a queue for the host, neither they nor others; once it has ended they come through."""
    with counterfoil.open(shop.url) as other:
        holding = shop.journal.lock("orders").hold("k")
        lease = holding.__enter__()
        with shop.connect() as connection:
            shop.order(connection, "tea")
            with shop.journal.within(connection) as tx:
                tx.guard(lease)
            for journal in (shop.journal, other):
                with pytest.raises(counterfoil.JournalUnavailable, match=UNAVAILABLE):
                    journal.lock("orders").force_release("k")
                assert journal.admit(inbound("1", str(id(journal))), GRANT).status == "accepted"
                with journal.lock("orders").hold("another"):
                    pass
                assert by_another(journal.lock("orders").try_hold("k").__enter__) is None
            assert [holder.key for holder in shop.journal.holders()] == ["k"]
            connection.commit()
        assert other.lock("orders").force_release("k")
        with pytest.raises(counterfoil.LeaseLost):
            holding.__exit__(None, None, None)
    assert shop.items == ["tea"]


@pytest.mark.contract("LCK-12")
def test_a_guarded_key_costs_its_neighbours_in_a_group_nothing(shop: Shop) -> None:
    """Commands that come together share an append; the one that cannot be done is answered alone."""
    with shop.journal.lock("orders").hold("k") as lease, shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.guard(lease)
        submit = shop.journal.core.committer.submit
        pause = Pause()
        paused = submit(pause)
        assert pause.begun.wait(30)
        neighbours = [submit(admit_command(inbound(f"a {number}", f"a {number}"), GRANT, None)) for number in range(5)]
        forced = submit(ForceRelease(lease.lease_id, "test"))
        released = submit(ReleaseKey(Ticket(lease.lease_id, b"other", lease.fence)))
        neighbours += [submit(admit_command(inbound(f"b {number}", f"b {number}"), GRANT, None)) for number in range(5)]
        pause.go.set()
        paused.result(30)
        assert [done.result(30).admission.status for done in neighbours] == ["accepted"] * 10
        with pytest.raises(counterfoil.JournalUnavailable, match=UNAVAILABLE):
            forced.result(30)
        assert released.result(30) is not None, "it had no lease to end"
        connection.commit()


@pytest.mark.contract("LCK-12")
def test_a_guarded_lease_is_renewed(shop: Shop) -> None:
    with shop.journal.lock("orders").hold("k") as lease:
        held: Any = lease._held
        for level in (None, psycopg.IsolationLevel.SERIALIZABLE):
            with shop.connect() as connection:
                connection.isolation_level = level
                shop.order(connection, f"{level}")
                with shop.journal.within(connection) as tx:
                    tx.guard(lease)
                renewed = shop.journal.core.committer.submit(Renew([held.ticket])).result(30)
                assert renewed.lost == {}
                connection.commit()
    assert len(shop.items) == 2


@pytest.mark.contract("LCK-12")
def test_two_hosts_are_guarded_by_one_lease_at_once(shop: Shop) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with shop.journal.lock("orders").hold("k") as lease, shop.connect() as first, shop.connect() as second:
        for number, connection in enumerate((first, second)):
            shop.order(connection, f"{number}")
            with shop.journal.within(connection) as tx:
                tx.guard(lease)
                tx.append(message(f"{number}", f"{number}"))
        first.commit()
        second.commit()
    assert (shop.items, shop.events) == (["0", "1"], ["0", "0", "1"])


@pytest.mark.contract("LCK-12")
def test_no_other_key_is_held(shop: Shop) -> None:
    lock = shop.journal.lock("orders")
    with lock.hold("k") as lease, shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.guard(lease)
        other = lock.hold("other").__enter__()
        assert lock.force_release("other")
        with pytest.raises(counterfoil.LeaseLost):
            shop.journal.transact(lambda tx: None, guard=other)
        connection.rollback()


@pytest.mark.contract("LCK-12")
def test_a_lease_that_began_after_the_snapshot(shop: Shop) -> None:
    """An old snapshot does not show its row; the host begins anew, as PostgreSQL asks."""
    with shop.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        with shop.journal.lock("orders").hold("k") as lease:

            def block() -> None:
                with shop.journal.within(connection) as tx:
                    tx.guard(lease)

            with pytest.raises(psycopg.errors.SerializationFailure):
                block()
            connection.rollback()
            block()
            connection.commit()


@pytest.mark.parametrize("fence", [0, -1, 1, 2**63, 2**64 + 1, 2**200])
def test_a_number_that_is_no_fence_is_no_guard(shop: Shop, fence: int) -> None:
    class Lease:
        lease_id = "lk-00000000000000000000000000000000"

    setattr(Lease, "fence", fence)  # noqa: B010 - of another value each time
    with shop.connect() as connection:
        for lease_id in (Lease.lease_id, "ä", "\0", ""):
            Lease.lease_id = lease_id

            def block() -> None:
                with shop.journal.within(connection) as tx:
                    tx.guard(Lease())  # type: ignore[arg-type]

            with pytest.raises(counterfoil.InvalidValue, match="lease of another journal"):
                block()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_lease_of_another_opening_is_no_guard(shop: Shop) -> None:
    with counterfoil.open(shop.url) as other, shop.connect() as connection:
        lease = other.lock("orders").hold("k").__enter__()

        def block() -> None:
            with shop.journal.within(connection) as tx:
                tx.guard(lease)

        with pytest.raises(counterfoil.InvalidValue, match="lease of another opening"):
            block()
        assert other.lock("orders").force_release("k"), "its key is not held for that"


@pytest.mark.parametrize("lease", [7, "lease", None, object()])
def test_what_is_no_lease_is_refused_by_name(shop: Shop, lease: Any) -> None:
    with shop.connect() as connection, shop.journal.within(connection) as tx:
        with pytest.raises(counterfoil.InvalidValue, match="a guard must be a lease of this journal, not"):
            tx.guard(lease)


HOST = """
    import sys, time, counterfoil, psycopg
    url, database, schema, how = sys.argv[1:]
    journal = counterfoil.open(url)
    lease = journal.lock("orders").hold("k").__enter__()
    connection = psycopg.connect(database)
    connection.execute(f'INSERT INTO "{schema}".orders VALUES (\\'tea\\')')
    with journal.within(connection) as tx:
        tx.guard(lease)
    if how == "committed":
        connection.commit()
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.contract("LCK-12", "LCK-08")
@pytest.mark.parametrize("how", ["committed", "open"])
def test_a_key_is_free_as_soon_as_its_host_is_killed(shop: Shop, how: str) -> None:
    """With its transaction, whether that was open or not."""
    script = [sys.executable, "-c", "\n".join(line[4:] for line in HOST.splitlines())]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [*script, shop.url, shop.postgres.database_url, shop.schema, how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.send_signal(signal.SIGKILL)
        with shop.journal.lock("orders").hold("k", wait="60s") as lease:
            assert lease.fence
        assert time.monotonic() - began < 25, "that is less than the ttl"
    finally:
        process.kill()
        process.communicate()
    assert shop.items == (["tea"] if how == "committed" else [])
