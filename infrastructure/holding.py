"""
Holding a key for the length of a block: how the two colours enter and leave one.

A block of an event loop is cancelled when its lease is lost; a block of a thread learns of it by `lease.check()` and at its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitIsOver
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Generic, TypeVar

from counterfoil.domain.duration import in_words
from counterfoil.domain.errors import AlreadyHeld, Closed, JournalUnavailable, LockHeld
from counterfoil.domain.hold import Terms
from counterfoil.domain.ids import lock_id

from .calls import refuse_in_event_loop
from .commands.holds import Asked, Granted, Hold, InLine
from .core import Core
from .held import HeldLease, LeaseView
from .inside import refuse_inside
from .keeper import Keeper
from .tokens import new_token
from .waiting import Seat

log = logging.getLogger(__name__)

L = TypeVar("L", bound=LeaseView)
R = TypeVar("R")

_MINE: Final[ContextVar[tuple[HeldLease, ...]]] = ContextVar("counterfoil_leases", default=())
"""The leases of the blocks around: whoever asks for the key of one would wait for itself. Tasks begun in a block inherit them."""


class Asking(Generic[L]):
    """One asking for a key, until it is answered."""

    def __init__(self, core: Core, terms: Terms, key: str, wait: int | None, show: Callable[[Core, HeldLease], L]) -> None:
        """Ask for nothing yet. `wait` is in microseconds; None asks whether the key is free, and takes it then."""
        self._core = core
        self._terms = terms
        self._key = key
        self._wait = wait
        self._show = show
        self._entered = False
        self._held: HeldLease | None = None
        self._lease_id = lock_id(core.engine.journal_key, terms.lock, key)

    def _ask(self) -> Hold:
        refuse_inside()
        if self._entered:
            raise RuntimeError("the block is entered already; call hold or try_hold for each")
        self._core.refuse_in_child()  # where no lock that another thread had at the fork may be asked for
        if any(lease.lease_id == self._lease_id and lease.is_in_the_way for lease in _MINE.get()):
            raise AlreadyHeld(
                "the caller has it already, and would wait for itself; use the lease that it has",
                lock=self._terms.lock,
                lease_id=self._lease_id,
                key=self._key,
            )
        self._entered = True
        return Hold(self._terms, self._lease_id, self._key, new_token(), bool(self._wait))

    def _answered(self, seat: Seat, answer: Asked, keeper: Keeper) -> HeldLease | None:
        """Return the lease that was given, from now on renewed; None when the key is not free and that was the question."""
        waiting = self._core.waiting
        waiting.stand(seat)
        if not isinstance(answer, Granted):
            if self._wait is not None:
                raise self._held_by_another()
            self._entered = False
            return None
        waiting.listener.open(answer.opening_id)
        held = HeldLease(self._core, self._terms, self._key, answer)
        keeper.keep(held)
        try:
            held.check()  # it may have run out, or the journal may be closed, before its caller came to it
        except BaseException:
            keeper.leave(held)
            raise
        _MINE.set((*(each for each in _MINE.get() if each.is_in_the_way), held))
        self._held = held
        return held

    def _given_up(self, seat: Seat) -> None:
        """The asking came to nothing: what it got, if anything, is given back."""
        self._entered = False
        self._core.waiting.leave(seat)

    def _left(self) -> HeldLease | None:
        held, self._held = self._held, None
        self._entered = False
        if held is not None:
            self._core.refuse_in_child()
            _MINE.set(tuple(each for each in _MINE.get() if each is not held))
        return held

    def _not_released(self, held: HeldLease, failure: BaseException) -> None:
        """
        Nobody knows whether the journal was told that the lease is let go. With its opening it has ended; otherwise it is told
        again, and what is no matter of the journal's, such as a cancel, goes on.
        """
        if isinstance(failure, Closed):
            held.lost("opening_ended")
            return
        self._core.waiting.give_up(held.lease_id, held.token)
        held.released(None)
        if not isinstance(failure, JournalUnavailable):
            raise failure
        log.warning("a lease could not be released: %s; it is tried again", type(failure).__name__)

    def _end(self, held: HeldLease, error: BaseException | None) -> None:
        """Raise `LeaseLost` at the end of a block whose lease did not last that long."""
        if held.reason == "released":
            return
        if held.reason == "ttl":  # by the own clock; a renewal may have landed without its answer, and the key is not needed
            self._core.waiting.give_up(held.lease_id, held.token)
        raise held.loss() from error

    def _held_by_another(self) -> LockHeld:
        what = (
            "somebody else has it" if not self._wait else f"somebody else has it, and the wait of {in_words(self._wait)} is over"
        )
        return LockHeld(what, lock=self._terms.lock, lease_id=self._lease_id, key=self._key)


class AsyncHolding(Asking[L], Generic[L, R]):
    """Hold a key for the length of an `async with` block."""

    async def __aenter__(self) -> R:
        command, core = self._ask(), self._core
        began = time.monotonic()
        try:
            seat = core.waiting.sit(command.lease_id, command.token, asyncio.get_running_loop())
        except BaseException:
            self._entered = False
            raise
        try:
            answer = await core.committer.submit_async(command)
            if isinstance(answer, InLine):
                core.waiting.listener.open(answer.opening_id)
                core.waiting.wait_behind(seat, answer.in_the_way)
                granted = asyncio.wrap_future(seat.granted)
                assert self._wait is not None
                await asyncio.wait({granted}, timeout=max(0.0, self._wait / 1e6 - (time.monotonic() - began)))
                if not granted.done():
                    raise self._held_by_another()
                answer = granted.result()
            self._keeper = core.waiting.of_loop()
            held = self._answered(seat, answer, self._keeper)
        except BaseException:
            self._given_up(seat)
            raise
        if held is None:
            return None  # type: ignore[return-value]
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._told = False
        held.on_loss = self._cancel  # not before: a task is not cancelled while it runs, which would outlast the block
        return self._show(core, held)  # type: ignore[return-value]

    def _cancel(self) -> None:
        assert self._task is not None
        self._told = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        held = self._left()
        if held is None:
            return
        held.on_loss = None
        self._keeper.leave(held)
        task, self._task = self._task, None
        if self._told and task is not None:
            cancelled_too = task.uncancel() > self._cancelling
            if cancelled_too and isinstance(error, asyncio.CancelledError):
                return  # by somebody else
        if held.reason is None:
            try:
                held.released(await self._core.committer.submit_async(held.let_go()))
            except BaseException as failure:
                self._not_released(held, failure)
        self._end(held, error)


class Holding(Asking[L], Generic[L, R]):
    """Hold a key for the length of a `with` block."""

    def __enter__(self) -> R:
        refuse_in_event_loop()
        command, core = self._ask(), self._core
        began = time.monotonic()
        try:
            seat = core.waiting.sit(command.lease_id, command.token)
        except BaseException:
            self._entered = False
            raise
        try:
            answer = core.committer.submit(command).result()
            if isinstance(answer, InLine):
                core.waiting.listener.open(answer.opening_id)
                core.waiting.wait_behind(seat, answer.in_the_way)
                assert self._wait is not None
                try:
                    answer = seat.granted.result(max(0.0, self._wait / 1e6 - (time.monotonic() - began)))
                except WaitIsOver:
                    raise self._held_by_another() from None
            held = self._answered(seat, answer, core.waiting.listener.threads)
        except BaseException:
            self._given_up(seat)
            raise
        return None if held is None else self._show(core, held)  # type: ignore[return-value]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        held = self._left()
        if held is None:
            return
        self._core.waiting.listener.threads.leave(held)
        if held.reason is None:
            try:
                held.released(self._core.committer.submit(held.let_go()).result())
            except BaseException as failure:
                self._not_released(held, failure)
        self._end(held, error)
