"""Transactions of a host on PostgreSQL: those that the journal runs on connections of its own, and those that it joins."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from counterfoil.domain.errors import Closed

from ..committer import Committer
from ..hosting import Body, Transacted
from ..inside import refuse_inside
from ..tx import Fenced
from .connection import Connection, Session
from .drafting import Drafting
from .faults import fault
from .host_transaction import WITHIN, HostTransaction, Opening
from .pool import Pool
from .transact import BEGIN, Begun, StoreFailed
from .within import AsyncWithin, Joined, Within, check_connection

BODIES: Final = 16
"""Bodies that run for event loops at once."""
DRAFTS: Final = 4
"""Decisions that are made for event loops at once, in other threads: a body may wait for what a joined transaction has locked."""
_PAUSE_S: Final = 0.02
"""How long is waited at most before a body is run again, so that those who are in each other's way part."""


class PostgresHosting:
    """Run and join transactions of hosts, for one opening."""

    def __init__(
        self,
        opening: Opening,
        drafting: Drafting,
        committer: Committer,
        pool: Pool,
        *,
        committed: Callable[[], None],
        landed: Callable[[Session, str], bool],
    ) -> None:
        """
        `committed` is called after each commit of a body that has appended something; `landed` finds out of a session, of which
        nothing is heard any more, whether its transaction of this number was committed.
        """
        self._opening = opening
        self._drafting = drafting
        self._committer = committer
        self._pool = pool
        self._committed = committed
        self._landed = landed
        self._joined = Joined(self._new, opening.check_writable)
        self._bodies = ThreadPoolExecutor(BODIES, thread_name_prefix="counterfoil-transact")
        self._drafts = ThreadPoolExecutor(DRAFTS, thread_name_prefix="counterfoil-draft")
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    def _new(self) -> HostTransaction:
        return HostTransaction(self._opening, self._drafting)

    # Joining.

    def within(self, connection: psycopg.Connection[Any]) -> Within:
        check_connection(connection, psycopg.Connection, psycopg.AsyncConnection)
        return Within(self._joined, connection, self._committer)

    def within_async(self, connection: psycopg.AsyncConnection[Any]) -> AsyncWithin:
        check_connection(connection, psycopg.AsyncConnection, psycopg.Connection)
        return AsyncWithin(self._joined, connection, self._committer, self._drafts)

    # Running.

    def transact(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        with self._open():
            return self._until_it_stands(body, leases, contextvars.copy_context())

    async def transact_async(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        with self._open():
            return await loop.run_in_executor(self._bodies, self._for_loop, body, leases, context)

    def _for_loop(self, body: Body, leases: tuple[Fenced, ...], context: contextvars.Context) -> Transacted:
        try:
            return self._until_it_stands(body, leases, context)
        except StopIteration:  # which no future can hold
            raise RuntimeError("a body raised StopIteration") from None

    def _until_it_stands(self, body: Body, leases: tuple[Fenced, ...], context: contextvars.Context) -> Transacted:
        """Run the body, again and again for as long as what others do at the same time is in its way."""
        until = time.monotonic() + self._opening.limits().duration("busy_wait") / 1e6
        while True:
            try:
                return self._once(body, leases, context)
            except StoreFailed as failed:
                if not _collided(failed.error) or time.monotonic() >= until:
                    raise fault(failed.error, self._opening.name) from None
            except psycopg.Error as error:  # of a statement of the body's, or of what its tables are bound to
                if not _collided(error) or time.monotonic() >= until:
                    raise
            time.sleep(random.uniform(0, _PAUSE_S))

    def _once(self, body: Body, leases: tuple[Fenced, ...], context: contextvars.Context) -> Transacted:
        try:
            connection = self._pool.take(BEGIN)
        except psycopg.Error as error:
            raise StoreFailed(error) from None
        try:
            transaction = self._new()
            done = Begun(connection, transaction, self._committer, self._opening.name).run(body, leases, context)
            self._commit(connection)
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            self._pool.give_back(connection)
        if transaction.appends:
            self._committed()
        return done

    def _commit(self, connection: Connection) -> None:
        """Commit, and find out whether that landed when the answer is lost."""
        try:
            session = connection.session
            ((number,),) = connection.execute(WITHIN.transaction)
        except psycopg.Error as error:
            raise StoreFailed(error) from None
        try:
            connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if connection.closed and (number is None or self._landed(session, number)):
                return
            if connection.closed or (error.diag.message_primary or "").startswith("counterfoil: "):
                raise StoreFailed(error) from None
            raise  # by what the host's tables are bound to

    # The end.

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keep the journal open for as long as a body runs."""
        refuse_inside()
        self._opening.check_writable()
        with self._changed:
            if self._closed:
                raise Closed("the journal is closed; open it again")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._running == 0)
        for threads in (self._bodies, self._drafts):
            threads.shutdown()
        self._pool.close()


def _collided(error: psycopg.Error) -> bool:
    """Tell whether a transaction may come through when it is begun anew: what it met was others at the same time."""
    return error.sqlstate is not None and error.sqlstate.startswith("40")


def _roll_back(connection: Connection) -> None:
    """Undo everything; a connection that is not as it was lent then is lent no more."""
    with suppress(psycopg.Error):
        if not connection.closed:
            connection.execute("ROLLBACK", prepare=False)
    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
        connection.close()
