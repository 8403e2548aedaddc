"""Locks for asyncio. `locks.py` is made from this file by `scripts/colours.py`; change this one."""

from __future__ import annotations

from datetime import timedelta

from counterfoil.domain.hold import Terms, checked_key, checked_wait
from counterfoil.domain.identity import Identity
from counterfoil.domain.ids import checked_word, lock_id
from counterfoil.domain.lock import checked_fence

from . import reading_locks
from .calls import AsyncCalls
from .commands.holds import ForceRelease
from .commands.leases import Renew
from .core import Core
from .held import HeldLease, LeaseView
from .holding import AsyncHolding
from .pages import Page
from .reading_locks import Holder, KeyEvent, Waiter


class AsyncLease(AsyncCalls, LeaseView):
    """
    A lease, held for the length of its block.

    It lasts its ttl from its last renewal, which comes by itself, and `max_hold` from its grant at the longest.
    """

    def __init__(self, core: Core, held: HeldLease) -> None:
        AsyncCalls.__init__(self, core)
        LeaseView.__init__(self, held)

    async def extend(self) -> None:
        """Renew it now: it lasts its ttl from here on. Raises `LeaseLost` if it has ended."""
        self.check()
        self._held.extended(await self._submit(Renew([self._held.ticket])))

    async def release(self) -> bool:
        """Let it go before the end of its block; tells whether it was held until now."""
        return self._held.released(await self._submit(self._held.let_go()))


class AsyncLock(AsyncCalls):
    """
    A lock by its name: many keys, each held by one at a time, across all processes that share the journal.

    Keys are text, whole numbers or bytes of UTF-8, of 1 to 1,024 bytes; what is written alike is one key, so 7 and "7" are.
    """

    def __init__(self, core: Core, terms: Terms) -> None:
        super().__init__(core)
        self._terms = terms

    @property
    def name(self) -> str:
        return self._terms.lock

    def hold(self, key: str | int | bytes, *, wait: timedelta | str = "10s") -> AsyncHolding[AsyncLease, AsyncLease]:
        """
        Hold a key for the length of an `async with` block, after waiting for it in line for at most `wait`.

        First come, first served, whatever process it came from. Raises `LockHeld` when the wait is over, and `AlreadyHeld` at
        once inside a block that holds the key, and in tasks that were begun there: they inherit it. A block whose lease is lost
        ends in `LeaseLost`.
        """
        return AsyncHolding(self._core, self._terms, checked_key(key), checked_wait(wait), AsyncLease)

    def try_hold(self, key: str | int | bytes) -> AsyncHolding[AsyncLease, AsyncLease | None]:
        """
        Hold a key for the length of an `async with` block, if it is free now: the block gets a lease, or None.

        Raises `AlreadyHeld` and `LeaseLost` as `hold` does.
        """
        return AsyncHolding(self._core, self._terms, checked_key(key), None, AsyncLease)

    async def holders(self) -> list[Holder]:
        """Tell who holds which keys, the oldest grant first."""
        core = self._core
        return await self._read(lambda store: reading_locks.holders(store, core.engine.clocks, self.name))

    async def waiters(self) -> list[Waiter]:
        """Tell who waits for which keys, in the order in which they came."""
        core = self._core
        return await self._read(lambda store: reading_locks.waiters(store, core.is_live, self.name))

    async def history(
        self, key: str | int | bytes, *, limit: int | None = None, after: str | None = None, newest_first: bool = False
    ) -> Page[KeyEvent]:
        """Tell what happened to a key, by pages: `limit` is `max_journal_page` unless given, `after` the `next` of a page."""
        limits, lease_id = self._core.limits, self._lease_id(key)
        return await self._read(
            lambda store: reading_locks.history(store, limits, lease_id, limit=limit, after=after, newest_first=newest_first)
        )

    async def force_release(
        self, key: str | int | bytes, *, reason: str = "operator", operator: Identity | None = None, fence: int | None = None
    ) -> bool:
        """
        Take a key from its holder and fence it out; tells whether it was taken from anybody.

        With `fence`, as `holders()` shows it, only from the lease that has this one: when another has the key meanwhile, nothing
        is done. `reason` is a class word (`[a-z0-9_]{1,64}`). The event names the principal of `operator`, as a pseudonym, and
        nobody without.
        """
        command = ForceRelease(self._lease_id(key), checked_word(reason, name="reason"), operator, checked_fence(fence))
        return await self._submit(command)

    def _lease_id(self, key: str | int | bytes) -> str:
        return lock_id(self._core.engine.journal_key, self.name, checked_key(key))
