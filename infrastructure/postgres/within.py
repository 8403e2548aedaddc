"""Joining the transaction of a psycopg connection of the host's, for the length of a block."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import Closed, InvalidValue

from ..calls import refuse_in_event_loop
from ..committer import Committer
from ..inside import refuse_inside
from ..tx import Admit, AsyncWithinTx, Fenced, Settle, WithinTx
from .asking import answer, answer_async
from .host_transaction import NOTHING, HostTransaction, Staged, Steps

T = TypeVar("T")

_OVER: Final = "a tx is good inside its block alone, in the thread that runs it; join the transaction again"


class Joined:
    """The transactions of the host's connections, each with what is known of it, and whether a block has joined it."""

    def __init__(self, new: Callable[[], HostTransaction], check_open: Callable[[], None]) -> None:
        """`check_open` raises `Closed`, `ForkedError` and `ReadOnly`."""
        self._new = new
        self.check_open = check_open
        self._guard = threading.RLock()
        self._known: WeakKeyDictionary[Any, HostTransaction] = WeakKeyDictionary()
        self._inside: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def enter(self, connection: Any) -> HostTransaction:
        """Begin a block; raises `InvalidValue` inside another for the same connection."""
        with self._guard:
            if self._inside.get(connection):
                raise InvalidValue("the transaction of this connection is joined already; use the tx of the block around")
            transaction = self._known.setdefault(connection, self._new())
            self._inside[connection] = True
        transaction.leases.clear()
        return transaction

    def leave(self, connection: Any) -> None:
        """End a block."""
        with self._guard:
            self._inside.pop(connection, None)


class Block:
    """What the blocks of both colours share."""

    def __init__(self, joined: Joined, connection: Any) -> None:
        self._joined = joined
        self._connection = connection
        self._transaction: HostTransaction | None = None
        self._thread = 0
        self._pid = os.getpid()
        self._before: Staged = NOTHING

    def _enter(self) -> HostTransaction:
        refuse_inside()
        if self._transaction is not None:
            raise RuntimeError("the block is entered already; call within for each")
        self._joined.check_open()
        check_joinable(self._connection)
        transaction = self._joined.enter(self._connection)
        self._transaction = transaction
        self._thread = threading.get_ident()
        return transaction

    def _leave(self) -> None:
        self._transaction = None
        self._joined.leave(self._connection)

    def _running(self) -> HostTransaction:
        refuse_inside()
        if self._transaction is None or threading.get_ident() != self._thread:
            raise Closed(_OVER)
        self._transaction.check_open()
        check_joinable(self._connection)
        if self._connection.info.transaction_status == TransactionStatus.IDLE:
            raise InvalidValue("the transaction has ended inside the block; join the next one")
        return self._transaction

    def _may_restore(self) -> bool:
        """
        Tell whether the connection still takes statements; where it does not, its transaction commits nothing either. In a forked
        child it is the parent's.
        """
        if os.getpid() != self._pid or self._connection.closed:
            return False
        return bool(self._connection.info.transaction_status == TransactionStatus.INTRANS)

    @staticmethod
    def _begin(transaction: HostTransaction) -> Steps[Staged]:
        yield from transaction.look()
        _, before = yield from transaction.staged()
        return before


class Within(Block):
    """A `with` block."""

    def __init__(self, joined: Joined, connection: psycopg.Connection[Any], committer: Committer) -> None:
        super().__init__(joined, connection)
        self._committer = committer

    def _answer(self, steps: Steps[T]) -> T:
        return answer(steps, self._connection, lambda command: self._committer.submit(command).result())

    def __enter__(self) -> WithinTx:
        refuse_in_event_loop()
        transaction = self._enter()
        try:
            self._before = self._answer(self._begin(transaction))
        except BaseException:
            self._leave()
            raise
        return WithinTx(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        transaction = self._transaction
        assert transaction is not None
        try:
            if error is None:
                try:
                    self._answer(transaction.check())
                except BaseException:
                    self._restore(transaction)
                    raise
            else:
                self._restore(transaction)
        finally:
            self._leave()

    def _restore(self, transaction: HostTransaction) -> None:
        with suppress(psycopg.Error):  # then nothing of the transaction is committed
            if self._may_restore():
                self._answer(transaction.restore(self._before))

    def guard(self, lease: Fenced) -> None:
        self._answer(self._running().guard(lease))

    def append(self, command: Admit | Settle) -> Admission | None:
        return self._answer(self._running().append(command))


class AsyncWithin(Block):
    """An `async with` block."""

    def __init__(self, joined: Joined, connection: psycopg.AsyncConnection[Any], committer: Committer, threads: Executor) -> None:
        super().__init__(joined, connection)
        self._committer = committer
        self._threads = threads

    async def _answer(self, steps: Steps[T]) -> T:
        return await answer_async(steps, self._connection, self._committer, self._threads)

    async def __aenter__(self) -> AsyncWithinTx:
        transaction = self._enter()
        try:
            self._before = await self._answer(self._begin(transaction))
        except BaseException:
            self._leave()
            raise
        return AsyncWithinTx(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        try:
            if error is None:
                try:
                    await self._answer(transaction.check())
                except BaseException:
                    await self._restore(transaction)
                    raise
            else:
                await self._restore(transaction)
        finally:
            self._leave()

    async def _restore(self, transaction: HostTransaction) -> None:
        with suppress(psycopg.Error):  # then nothing of the transaction is committed
            if self._may_restore():
                await self._answer(transaction.restore(self._before))

    async def guard(self, lease: Fenced) -> None:
        await self._answer(self._running().guard(lease))

    async def append(self, command: Admit | Settle) -> Admission | None:
        return await self._answer(self._running().append(command))


def check_connection(connection: object, kind: type, other: type) -> None:
    """Raise `InvalidValue` unless this is a connection of the colour of the journal."""
    if isinstance(connection, kind):
        return
    if isinstance(connection, other):
        raise InvalidValue(
            f"this journal joins a psycopg.{kind.__name__}, not a psycopg.{other.__name__}; open the journal in the colour of the"
            " connection, with counterfoil.open or counterfoil.open_async"
        )
    raise InvalidValue(f"connection must be a psycopg.{kind.__name__}, not {type(connection).__name__}")


def check_joinable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Raise `InvalidValue` unless a statement that is executed on a connection now is part of a transaction."""
    if connection.closed:
        raise InvalidValue("the connection is closed; open another one")
    if connection.info.pipeline_status != PipelineStatus.OFF:
        raise InvalidValue("the connection is in pipeline mode, in which nothing is answered at once; join outside of it")
    match connection.info.transaction_status:
        case TransactionStatus.INTRANS:
            return
        case TransactionStatus.IDLE if not connection.autocommit:
            return
        case TransactionStatus.IDLE:
            raise InvalidValue(
                "the connection is in autocommit and in no transaction, so there is nothing to join; begin one with "
                "`with connection.transaction():`"
            )
        case TransactionStatus.INERROR:
            raise InvalidValue("the transaction of the connection has failed; roll it back, and begin anew")
        case _:
            raise InvalidValue("the connection is executing something else; join when that is done")
