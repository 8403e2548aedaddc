"""
Transactions of a host on an open journal, in both colours: those that the journal runs, and those of a connection of the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from counterfoil.domain.errors import InvalidValue

from .callbacks import is_async
from .calls import AsyncOpener, Opener, refuse_in_event_loop
from .core import Core
from .hosting import Transacted
from .tx import AsyncTx, AsyncWithinTx, Fenced, Tx, WithinTx, checked_lease

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

Guard: TypeAlias = Fenced | Sequence[Fenced]


class AsyncTransactions(AsyncOpener):
    """Run or join a host's transactions, and await that."""

    @overload
    async def transact(self, body: Callable[[AsyncTx], Coroutine[Any, Any, T]], *, guard: Guard | None = None) -> T: ...
    @overload
    async def transact(self, body: Callable[[Tx], T], *, guard: Guard | None = None) -> T: ...
    async def transact(self, body: Callable[[Any], Any], *, guard: Guard | None = None) -> Any:
        """
        Commit what a body does to the host's own tables and appends to the journal together, or nothing of it; return what the
        body returns.

        `body` is a function of a `Tx`, or a coroutine function of an `AsyncTx`, which may await nothing but that: anything else
        that it awaits raises `InsideTransaction`. It may be called more than once, when its transaction cannot be kept: let it
        have no effects but through its `tx`. What it raises is raised here as it is, and undoes all that it did.

        On SQLite it runs on the thread of the journal's writer, on which everybody else waits meanwhile, so let it be short. Its
        statements run on the journal's connection, as SQLite's defaults have it: a foreign key is checked by nobody, because
        `PRAGMA foreign_keys` is off there, and PRAGMA is refused inside, as ATTACH is. Check what must exist in the statement.

        On PostgreSQL it runs in a thread beside the others, on a connection of its own with the schema of the journal first in
        its search path, at READ COMMITTED: lock what you read in order to write it (`FOR UPDATE`). Nobody waits for it but those
        who want the rows that it has locked. It is begun anew after a deadlock, and when others have appended what it would no
        longer stand with; `JournalUnavailable` is raised when that goes on for `busy_wait`, the error of the driver where it was
        a statement's. A body that is idle for a minute between two statements is rolled back by the server.

        No journal is called inside: that raises `InsideTransaction`, and rolls back even if the body catches it. A thread that
        the body starts and waits for must not call one either; on SQLite it would wait for ever.

        With `guard`, one lease or several, it commits only while each is the current one, and raises `LeaseLost` otherwise; it
        is checked before the body and after it. On SQLite it is checked again right before it is written with what others did
        meanwhile; on PostgreSQL its key is nobody else's until the transaction has ended. A lease of another opening raises
        `InvalidValue`. Cancelled before the body is begun nothing is done; after that it completes.
        """
        core = self._core
        return _count(core, await core.hosting.transact_async(_checked(body), _leases(guard)))

    def within(self, connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[AsyncWithinTx]:
        """
        Join the transaction of a `psycopg.AsyncConnection` for the length of an `async with` block, on PostgreSQL.

        What the block appends with `tx.append` is appended by the host's own COMMIT, with all else that its transaction did, or
        not at all. Until then nothing is locked but the keys of the leases that `tx.guard` names. The connection must be to the
        database of the journal, by a role that may do what the journal's writer may. It must be in a transaction, or not in
        autocommit, so that one begins; several blocks may join one transaction, and go on from each other; a savepoint that is
        rolled back takes with it what was appended after it. Nothing is committed, rolled back or set on it here. A block that
        raises takes back what it appended.

        `psycopg.errors.SerializationFailure` is raised, by a call inside or by the host's COMMIT, when others have appended what
        a decision would no longer stand with; do all of the transaction again, as after any such error. Under REPEATABLE READ and
        SERIALIZABLE that is whenever anybody has appended since the transaction's first statement. Errors of the connection are
        raised as they are.

        Raises `InvalidValue` for a connection that cannot be joined: a closed one, one in autocommit outside of a transaction, in
        pipeline mode, in a transaction that has failed, inside another block for it, to another database, of the other colour,
        and for a journal on SQLite; `ReadOnly` where the journal or the transaction is; `JournalRefused` where its role may not
        append.
        """
        core = self._core
        return core.hosting.within_async(connection)


class Transactions(Opener):
    """Run or join a host's transactions, and wait for that."""

    def transact(self, body: Callable[[Tx], T], *, guard: Guard | None = None) -> T:
        """
        Commit what a body does to the host's own tables and appends to the journal together, or nothing of it; return what the
        body returns.

        `body` is a plain function of a `Tx`. It may be called more than once, when its transaction cannot be kept: let it have no
        effects but through its `tx`. What it raises is raised here as it is, and undoes all that it did.

        On SQLite it runs on the thread of the journal's writer, on which everybody else waits meanwhile, so let it be short. Its
        statements run on the journal's connection, as SQLite's defaults have it: a foreign key is checked by nobody, because
        `PRAGMA foreign_keys` is off there, and PRAGMA is refused inside, as ATTACH is. Check what must exist in the statement.

        On PostgreSQL it runs in the calling thread, on a connection of its own with the schema of the journal first in its search
        path, at READ COMMITTED: lock what you read in order to write it (`FOR UPDATE`). Nobody waits for it but those who want
        the rows that it has locked. It is begun anew after a deadlock, and when others have appended what it would no longer
        stand with; `JournalUnavailable` is raised when that goes on for `busy_wait`, the error of the driver where it was a
        statement's. A body that is idle for a minute between two statements is rolled back by the server.

        No journal is called inside: that raises `InsideTransaction`, and rolls back even if the body catches it. A thread that
        the body starts and waits for must not call one either; on SQLite it would wait for ever.

        With `guard`, one lease or several, it commits only while each is the current one, and raises `LeaseLost` otherwise; it
        is checked before the body and after it. On SQLite it is checked again right before it is written with what others did
        meanwhile; on PostgreSQL its key is nobody else's until the transaction has ended. A lease of another opening raises
        `InvalidValue`.
        """
        core = self._core
        if is_async(body):
            raise InvalidValue(
                "body must be a plain function here; a coroutine function is for a journal of counterfoil.open_async"
            )
        leases = _leases(guard)
        refuse_in_event_loop()
        result: T = _count(core, core.hosting.transact(_checked(body), leases))
        return result

    def within(self, connection: psycopg.Connection[Any]) -> AbstractContextManager[WithinTx]:
        """
        Join the transaction of a `psycopg.Connection` for the length of a `with` block, on PostgreSQL.

        What the block appends with `tx.append` is appended by the host's own COMMIT, with all else that its transaction did, or
        not at all. Until then nothing is locked but the keys of the leases that `tx.guard` names. The connection must be to the
        database of the journal, by a role that may do what the journal's writer may. It must be in a transaction, or not in
        autocommit, so that one begins; several blocks may join one transaction, and go on from each other; a savepoint that is
        rolled back takes with it what was appended after it. Nothing is committed, rolled back or set on it here. A block that
        raises takes back what it appended.

        `psycopg.errors.SerializationFailure` is raised, by a call inside or by the host's COMMIT, when others have appended what
        a decision would no longer stand with; do all of the transaction again, as after any such error. Under REPEATABLE READ and
        SERIALIZABLE that is whenever anybody has appended since the transaction's first statement. Errors of the connection are
        raised as they are.

        Raises `InvalidValue` for a connection that cannot be joined: a closed one, one in autocommit outside of a transaction, in
        pipeline mode, in a transaction that has failed, inside another block for it, to another database, of the other colour,
        and for a journal on SQLite; `ReadOnly` where the journal or the transaction is; `JournalRefused` where its role may not
        append.
        """
        core = self._core
        refuse_in_event_loop()
        return core.hosting.within(connection)


def _checked(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not callable(body):
        raise InvalidValue(f"body must be a function of tx, not {type(body).__name__}")
    return body


def _leases(guard: Guard | None) -> tuple[Fenced, ...]:
    leases = () if guard is None else tuple(guard) if isinstance(guard, Sequence) else (guard,)
    return tuple(checked_lease(lease) for lease in leases)


def _count(core: Core, transacted: Transacted) -> Any:
    """Count what was admitted, now that it is committed, and return what the body returned."""
    for admission in transacted.admissions:
        core.count_admission(admission)
    return transacted.result
