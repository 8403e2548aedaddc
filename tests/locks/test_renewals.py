"""What may wait for the next sync and what may not, and renewals that the store does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

import counterfoil
from counterfoil import JournalUnavailable
from counterfoil.domain.hold import checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.domain.lock import LossReason
from counterfoil.infrastructure.commands.holds import Advance, Hold, ReleaseKey
from counterfoil.infrastructure.commands.leases import Renew
from counterfoil.infrastructure.committer import Request
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.keeper import Keeper
from tests.locks.conftest import in_thread, wait_until
from tests.sqlite import sqlite_engine

NORMAL, FULL = 1, 2
"""What `PRAGMA synchronous` answers: a commit is written, or written and synced."""


class Syncs:
    """Which commands were committed together, and how."""

    def __init__(self) -> None:
        self.groups: list[tuple[set[type], int]] = []

    def of(self, *commands: type) -> set[int]:
        """Tell how groups with any of these commands were committed."""
        return {how for types, how in self.groups if types.intersection(commands)}

    def of_nothing_but(self, *commands: type) -> set[int]:
        return {how for types, how in self.groups if types.issubset(commands)}


@contextmanager
def watched(core: Core) -> Iterator[Syncs]:
    """See how groups are committed, inside the transaction of each."""
    engine, syncs = sqlite_engine(core), Syncs()
    decide, commit = engine._decide_and_commit, engine._commit
    running: list[set[type]] = []

    def decide_and_commit(group: list[Request[Any]]) -> None:
        running.append({type(request.command) for request in group})
        decide(group)

    def commit_and_look(unit: Any) -> bool:
        syncs.groups.append((running[-1], engine._writer.execute("PRAGMA synchronous").fetchone()[0]))
        return commit(unit)

    engine._decide_and_commit, engine._commit = decide_and_commit, commit_and_look  # type: ignore[method-assign]
    try:
        yield syncs
    finally:
        engine._decide_and_commit, engine._commit = decide, commit  # type: ignore[method-assign]


@pytest.mark.sqlite_only("a pragma of the connection tells how it commits")
def test_a_grant_is_synced_before_it_is_given(journal_url: str) -> None:
    """To who asks and to who waited; a release or a renewal that has a group to itself may be lost with the machine."""
    with counterfoil.open(journal_url) as journal, watched(journal.core) as syncs:
        lock = journal.lock("jobs", ttl="1h")
        for _ in range(2):
            with lock.hold("k") as lease:
                waiter = in_thread(lambda: lock.hold("k", wait="10m").__enter__().release())
                wait_until(lambda: bool(lock.waiters()))
                lease.extend()
            assert waiter()
        with lock.hold("k") as lease:
            terms, lease_id = checked_terms("jobs", "1h", None, None), lock_id(journal.core.engine.journal_key, "jobs", "j")
            asking: Request[Any] = Request(Hold(terms, lease_id, "j", b"j" * 16, False), Future(), None)
            journal.core.engine.run_group([Request(ReleaseKey(lease._held.ticket), Future(), None), asking])
            assert asking.error is None
        assert {FULL} == syncs.of(Hold)
        assert {FULL} == syncs.of(Advance)
        assert {NORMAL} == syncs.of_nothing_but(Renew)
        assert {NORMAL} == syncs.of_nothing_but(ReleaseKey)
        assert ({ReleaseKey, Hold}, FULL) in syncs.groups


class Lease:
    """A lease as its keeper sees it, which does not run out."""

    lease_id, token, fence, ttl, at, due = "lk-0", b"t" * 16, 1, 9_000_000, 1 << 62, 0.0

    def renewed(self, at: int) -> None:
        raise AssertionError

    def passed(self) -> None:
        raise AssertionError

    def lost(self, reason: LossReason) -> None:
        raise AssertionError


class Unheard(Keeper):
    """A keeper whose renewals the store does not take, and whose timer a test is."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.delays: list[float] = []
        self.tries = 0

    def _arm(self, delay: float) -> None:
        self.delays.append(delay)

    def _submit(self, command: Renew, done: Callable[[Any], None]) -> None:
        self.tries += 1
        failed: Future[Any] = Future()
        failed.set_exception(JournalUnavailable("the store is away"))
        done(failed)


@pytest.mark.contract("LCK-06")
def test_a_renewal_that_the_store_does_not_take_is_tried_more_often(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the ttl at first, and then several times in that."""
    now = 1_000.0
    monkeypatch.setattr("counterfoil.infrastructure.keeper.time.monotonic", lambda: now)
    with counterfoil.open(url) as journal:
        keeper, lease = Unheard(journal.core), Lease()
        keeper.keep(lease)
        assert [pytest.approx(3.0)] == keeper.delays
        for tries in range(1, 4):
            now = lease.due
            keeper.tick()
            assert tries == keeper.tries
            assert 0 < keeper.delays[-1] <= 1.5
        assert now - 1_000 < 6, "three tries before two thirds of the ttl have passed"
        keeper.leave(lease)
