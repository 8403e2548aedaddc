"""A guard: a transaction commits only while its leases are the current ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import counterfoil
from counterfoil.domain.event import Event
from counterfoil.domain.lock import LockExpired, LockReleased, LockRevoked
from counterfoil.infrastructure.commands.leases import Renew, Ticket
from counterfoil.testing import MovableClock

if TYPE_CHECKING:
    from tests.front.conftest import Begin, HoldKey, Lease, OneGroup

Body = Callable[[counterfoil.Tx], Any]

IN_A_GROUP = pytest.mark.sqlite_only("bodies are part of a group of commands on SQLite alone")


@pytest.fixture
def shop(url: str, clock: MovableClock) -> Iterator[counterfoil.Journal]:
    """A journal on a clock that is moved, with a table of the host's."""
    with counterfoil.open(url, clock=clock) as journal:
        journal.transact(lambda tx: tx.execute("CREATE TABLE orders (item TEXT)"))
        yield journal
        assert journal.verify().agrees


def order(tx: counterfoil.Tx) -> None:
    tx.execute("INSERT INTO orders VALUES ('tea')")


def count(journal: counterfoil.Journal) -> int:
    number: int = journal.transact(lambda tx: tx.execute("SELECT count(*) FROM orders")).rows[0][0]
    return number


def end(journal: counterfoil.Journal, lease: Lease, event: Event) -> None:
    journal.core.committer.submit(lease.ending(event)).result(30)


def given(lease: Lease) -> tuple[Body, Lease]:
    return order, lease


def guarded_inside(lease: Lease) -> tuple[Body, None]:
    def body(tx: counterfoil.Tx) -> None:
        order(tx)
        tx.guard(lease)

    return body, None


@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("way", [given, guarded_inside])
def test_it_commits_while_the_lease_is_the_current_one(shop: counterfoil.Journal, hold: HoldKey, way: Any) -> None:
    body, guard = way(hold(shop))

    shop.transact(body, guard=guard)

    assert 1 == count(shop)


@pytest.mark.parametrize("way", [given, guarded_inside])
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (LockReleased(), "released"),
        (LockRevoked(reason="operator"), "revoked"),
        (LockExpired(cause="max_hold"), "max_hold"),
        (LockExpired(cause="opening_ended"), "opening_ended"),
        (LockExpired(cause="ttl"), "ttl"),
    ],
)
@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("again", [False, True], ids=["free", "held by the next"])
def test_a_lease_that_has_ended_guards_nothing(
    shop: counterfoil.Journal, hold: HoldKey, way: Any, event: Event, reason: str, again: bool
) -> None:
    lease = hold(shop)
    end(shop, lease, event)
    if again:
        hold(shop)
    body, guard = way(lease)

    with pytest.raises(counterfoil.LeaseLost) as lost:
        shop.transact(body, guard=guard)

    assert (reason, "orders", None) == (lost.value.reason, lost.value.lock, lost.value.key)
    assert f"lock orders, key #{lease.lease_id[3:11]}: the lease is lost ({reason}); take the key again" == str(lost.value)
    assert 0 == count(shop)


@IN_A_GROUP
@pytest.mark.contract("LCK-12")
def test_a_lease_that_ended_in_the_same_group_guards_nothing(
    shop: counterfoil.Journal, hold: HoldKey, one_group: OneGroup, begin: Begin
) -> None:
    lease = hold(shop)
    with one_group(shop):
        shop.core.committer.submit(lease.ending(LockRevoked(reason="operator")))
        failing = begin(shop, order, lease)
        hold_again = shop.core.committer.submit(lease.command)
        still = begin(shop, order, lease)
    for future in (failing, still):
        with pytest.raises(counterfoil.LeaseLost) as lost:
            future.result(30)
        assert "revoked" == lost.value.reason
    shop.transact(order, guard=hold_again.result(30))
    assert 1 == count(shop)


@pytest.mark.contract("LCK-12")
def test_a_lease_that_ran_out_before_the_body_never_runs_it(
    shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock
) -> None:
    lease = hold(shop, ttl_s=30)
    clock.advance("30s")
    calls: list[object] = []

    with pytest.raises(counterfoil.LeaseLost) as lost:
        shop.transact(calls.append, guard=lease)

    assert ("ttl", []) == (lost.value.reason, calls)


@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("inside", [False, True])
def test_a_lease_that_runs_out_during_the_body_rolls_it_back(
    shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock, inside: bool
) -> None:
    lease = hold(shop, ttl_s=30)

    def body(tx: counterfoil.Tx) -> None:
        if inside:
            tx.guard(lease)
        order(tx)
        clock.advance("30s")

    with pytest.raises(counterfoil.LeaseLost) as lost:
        shop.transact(body, guard=None if inside else lease)

    assert "ttl" == lost.value.reason
    assert 0 == count(shop)


@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("ended", ["before", "meanwhile"])
def test_a_body_that_swallows_the_refusal_of_a_guard_does_not_commit(
    shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock, ended: str
) -> None:
    """Whether the lease had ended before the transaction or ends while it runs."""
    lease = hold(shop, ttl_s=30)
    if ended == "before":
        end(shop, lease, LockRevoked(reason="operator"))
    swallowed: list[counterfoil.LeaseLost] = []

    def body(tx: counterfoil.Tx) -> None:
        order(tx)
        if ended == "meanwhile":
            clock.advance("30s")
        try:
            tx.guard(lease)
        except counterfoil.LeaseLost as lost:
            swallowed.append(lost)

    with pytest.raises(counterfoil.LeaseLost) as lost:
        shop.transact(body)

    reason = "revoked" if ended == "before" else "ttl"
    assert [reason, reason] == [lost.value.reason, *(each.reason for each in swallowed)]
    assert 0 == count(shop)


@IN_A_GROUP
@pytest.mark.contract("LCK-12")
@pytest.mark.parametrize("way", [given, guarded_inside])
def test_a_lease_that_runs_out_while_a_neighbour_takes_its_time_guards_nothing(
    shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock, one_group: OneGroup, begin: Begin, way: Any
) -> None:
    """The whole group commits later than the body has ended; whoever has nothing to do with the lease is taken again."""
    lease, lasting = hold(shop, ttl_s=30), hold(shop, "other", ttl_s=90)
    body, guard = way(lease)
    calls: list[str] = []

    def guarded(tx: counterfoil.Tx) -> None:
        calls.append("guarded")
        body(tx)

    def slow(tx: counterfoil.Tx) -> None:
        calls.append("slow")
        if len(calls) == 2:
            clock.advance("30s")
        order(tx)

    with one_group(shop):
        failing = begin(shop, guarded, *(() if guard is None else (guard,)))
        neighbour = begin(shop, slow, lasting)
    with pytest.raises(counterfoil.LeaseLost) as lost:
        failing.result(30)
    neighbour.result(30)

    assert "ttl" == lost.value.reason
    assert ["guarded", "slow"] == calls[:2]
    assert 1 == count(shop), "that of the neighbour, once"


@IN_A_GROUP
@pytest.mark.contract("LCK-12")
def test_a_guarded_body_commits_with_the_release_that_follows_it(
    shop: counterfoil.Journal, hold: HoldKey, one_group: OneGroup, begin: Begin
) -> None:
    """In one group: what it did comes before the end of the lease."""
    lease = hold(shop)
    with one_group(shop):
        good = begin(shop, order, lease)
        ended = shop.core.committer.submit(lease.ending(LockReleased()))
    good.result(30)
    ended.result(30)
    assert 1 == count(shop)


def test_what_the_body_raises_goes_before_a_lost_lease(shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock) -> None:
    lease = hold(shop, ttl_s=30)

    def body(tx: counterfoil.Tx) -> None:
        clock.advance("30s")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shop.transact(body, guard=lease)


@IN_A_GROUP
def test_a_clock_that_fails_after_the_body_rolls_it_back(
    shop: counterfoil.Journal, hold: HoldKey, one_group: OneGroup, begin: Begin, clock: MovableClock
) -> None:
    """Whatever fails in the command after the body, the commit of its neighbours does not carry its rows."""

    lease = hold(shop, "other")

    def fails() -> int:
        raise ArithmeticError

    def body(tx: counterfoil.Tx) -> None:
        order(tx)
        clock.boot = fails  # type: ignore[method-assign]

    with one_group(shop):
        failing = begin(shop, body)
        neighbour = shop.core.committer.submit(lease.command)
    with pytest.raises(ArithmeticError):
        failing.result(30)
    neighbour.result(30)
    del clock.boot
    assert 0 == count(shop)


@pytest.mark.contract("LCK-12")
def test_every_one_of_several_leases_has_to_stand(shop: counterfoil.Journal, hold: HoldKey) -> None:
    first, second = hold(shop, "a"), hold(shop, "b")
    shop.transact(order, guard=[first, second])
    end(shop, second, LockReleased())

    with pytest.raises(counterfoil.LeaseLost):
        shop.transact(order, guard=(first, second))
    assert 1 == count(shop)


@IN_A_GROUP
@pytest.mark.contract("LCK-12")
def test_a_body_that_takes_long_revives_no_lease_of_its_neighbours(
    shop: counterfoil.Journal, hold: HoldKey, clock: MovableClock, one_group: OneGroup, begin: Begin
) -> None:
    """What comes after it in the group is decided at its own time."""
    lease = hold(shop, ttl_s=30)
    with one_group(shop):
        begin(shop, lambda tx: clock.advance("30s"))
        renewed = shop.core.committer.submit(Renew([Ticket(lease.lease_id, lease.token, lease.fence)]))
    assert {lease.token: "ttl"} == renewed.result(30).lost


@pytest.mark.parametrize("way", [given, guarded_inside])
def test_a_lease_of_another_journal_is_no_guard(shop: counterfoil.Journal, hold: HoldKey, way: Any) -> None:
    hold(shop)
    with counterfoil.open(":memory:") as other:
        lease = hold(other)
    body, guard = way(lease)

    with pytest.raises(counterfoil.InvalidValue, match="lease of another journal"):
        shop.transact(body, guard=guard)
    assert 0 == count(shop)


@pytest.mark.parametrize("fence", [0, -1, 1, 2**63, 2**64 + 1, 2**200])
def test_a_number_that_is_no_fence_is_no_guard(shop: counterfoil.Journal, hold: HoldKey, fence: int) -> None:
    lease = hold(shop)
    lease.fence = fence

    with pytest.raises(counterfoil.InvalidValue, match="lease of another journal"):
        shop.transact(order, guard=lease)


@pytest.mark.contract("LCK-12")
def test_a_fence_of_another_epoch_is_no_guard(shop: counterfoil.Journal, hold: HoldKey) -> None:
    lease = hold(shop)
    lease.fence += 1 << 64

    with pytest.raises(counterfoil.InvalidValue, match="lease of another journal"):
        shop.transact(order, guard=lease)


@pytest.mark.parametrize("released", [False, True])
def test_a_lease_of_another_opening_is_no_guard(journal_url: str, hold: HoldKey, released: bool) -> None:
    with counterfoil.open(journal_url) as shop, counterfoil.open(journal_url) as other:
        shop.transact(lambda tx: tx.execute("CREATE TABLE orders (item TEXT)"))
        lease = hold(other)
        if released:
            end(other, lease, LockReleased())

        with pytest.raises(counterfoil.InvalidValue, match="lease of another opening"):
            shop.transact(order, guard=lease)
        assert 0 == count(shop)


@pytest.mark.parametrize("guard", [7, "lease", [None], object()])
def test_what_is_no_lease_is_refused_by_name(shop: counterfoil.Journal, guard: Any) -> None:
    with pytest.raises(counterfoil.InvalidValue, match="a guard must be a lease of this journal, not"):
        shop.transact(order, guard=guard)
    with pytest.raises(counterfoil.InvalidValue, match="a guard must be a lease of this journal, not"):
        shop.transact(lambda tx: tx.guard(guard))


# The locks of hosts.


@pytest.mark.contract("LCK-12")
def test_a_lease_of_a_lock_guards_while_it_is_held(shop: counterfoil.Journal) -> None:
    lock = shop.lock("orders")
    with lock.hold("k") as lease:
        shop.transact(order, guard=lease)
    assert 1 == count(shop)

    with pytest.raises(counterfoil.LeaseLost) as lost:
        shop.transact(order, guard=lease)

    assert ("released", "orders", "k") == (lost.value.reason, lost.value.lock, lost.value.key)
    assert 1 == count(shop)


@pytest.mark.contract("LCK-11")
@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "swallowed"])
def test_a_key_is_not_asked_for_inside_a_transaction(shop: counterfoil.Journal, swallow: bool) -> None:
    lock = shop.lock("orders")

    def body(tx: counterfoil.Tx) -> None:
        order(tx)
        for holding in (lock.hold("k"), lock.try_hold("k")):
            try:
                with holding:
                    pass
            except counterfoil.InsideTransaction:
                if not swallow:
                    raise

    with pytest.raises(counterfoil.InsideTransaction):
        shop.transact(body)

    assert 0 == count(shop)
    assert [] == shop.waiters()
    with lock.hold("k", wait="1s") as lease:
        assert lease.fence


@pytest.mark.contract("LCK-11")
async def test_a_key_is_not_asked_for_inside_a_coroutine_either(url: str) -> None:
    async with counterfoil.open_async(url) as journal:
        lock = journal.lock("orders")

        async def body(tx: counterfoil.AsyncTx) -> None:
            async with lock.hold("k"):
                pass

        with pytest.raises(counterfoil.InsideTransaction):
            await journal.transact(body)
        async with lock.hold("k") as lease:
            await journal.transact(lambda tx: tx.guard(lease), guard=lease)
