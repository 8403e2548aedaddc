"""Opening a journal for asyncio: in a thread, of which nothing is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

import counterfoil
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.journal_async import AsyncJournal

OLGA = counterfoil.Identity(tenant="acme", principal="olga", verified=True)


class SlowOpener:
    """Opens when it is let, and tells when what it opened was closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.begun, self.let, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> Core:
        self.begun.set()
        assert self.let.wait(30)
        core = Core(self._url)
        close = core.close

        def closing() -> None:
            close()
            self.closed.set()

        core.close = closing  # type: ignore[method-assign]
        return core


async def test_what_is_opened_for_a_caller_that_was_cancelled_is_closed(url: str) -> None:
    opener = SlowOpener(url)
    entering = asyncio.create_task(AsyncJournal(opener).__aenter__())
    assert await asyncio.to_thread(opener.begun.wait, 30)

    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    opener.let.set()

    assert await asyncio.to_thread(opener.closed.wait, 30)


async def test_what_was_opened_just_before_the_cancellation_is_closed(url: str) -> None:
    """The thread is done, and the loop has not yet told the caller so."""
    opener = SlowOpener(url)
    opener.let.set()
    entering = asyncio.create_task(AsyncJournal(opener).__aenter__())
    await asyncio.sleep(0)
    for thread in threading.enumerate():
        if thread.name.startswith("counterfoil-opener"):
            thread.join(30)

    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering

    assert opener.closed.is_set()


@pytest.mark.sqlite_only("a folder does not exist")
async def test_a_refused_opening_reaches_the_caller() -> None:
    with pytest.raises(counterfoil.JournalRefused):
        async with counterfoil.open_async("/nowhere/at/all.sqlite"):
            pass


async def test_a_desk_needs_an_open_journal(url: str) -> None:
    journal = counterfoil.open_async(url)
    with pytest.raises(counterfoil.Closed, match="not open yet"):
        journal.acting_as(OLGA)


async def test_a_desk_asks_no_thread_for_what_is_open(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with counterfoil.open_async(url) as journal:

        async def to_thread(*_: object) -> None:
            raise AssertionError("nothing has to be opened")

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "to_thread", to_thread)
            assert () == (await journal.acting_as(OLGA).timeline()).rows
