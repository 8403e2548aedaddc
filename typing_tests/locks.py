"""Hosts that hold keys of locks, in both colours."""

from datetime import timedelta
from typing import assert_type

import counterfoil
from counterfoil import AsyncLease, AsyncLock, Holder, KeyEvent, Lease, Lock, Page, Waiter


async def summarise(journal: counterfoil.AsyncJournal, chat: int) -> str | None:
    lock = journal.lock("summaries", ttl="30s", max_hold=timedelta(minutes=10), lock_delay="1s")
    assert_type(lock, AsyncLock)
    async with lock.try_hold(chat) as lease:
        assert_type(lease, AsyncLease | None)
        if lease is None:
            return None
        lease.check()
        assert_type(lease.fence, int)
        assert_type(lease.remaining, timedelta)
        await lease.extend()
        assert_type(await lease.release(), bool)
    async with lock.hold(b"chat", wait="1m") as held:
        assert_type(held, AsyncLease)
        return held.fence_text


def look(journal: counterfoil.Journal) -> None:
    lock = journal.lock("summaries")
    assert_type(lock, Lock)
    with lock.hold("chat") as lease:
        assert_type(lease, Lease)
        lease.extend()
    with lock.try_hold("chat") as perhaps:
        assert_type(perhaps, Lease | None)
    assert_type(lock.holders(), list[Holder])
    assert_type(lock.waiters(), list[Waiter])
    assert_type(lock.history("chat", limit=10, newest_first=True), Page[KeyEvent])
    try:
        assert_type(lock.force_release("chat", reason="stuck"), bool)
    except counterfoil.LeaseLost as lost:
        assert_type(lost.reason, str)
    except counterfoil.LockError as error:
        assert_type(error.key, str | None)
