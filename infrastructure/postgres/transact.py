"""A host's transaction that the journal runs: its body runs on a connection of its own, and no other command waits for it."""

from __future__ import annotations

import contextvars
import threading
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import Closed, InsideTransaction, InvalidValue, JournalUnavailable

from ..committer import Command, Committer
from ..hosting import Body, Transacted
from ..inside import inside, outside
from ..stepping import call_body
from ..tx import Admit, Fenced, Parameters, Result, Settle, Tx
from .asking import answer
from .connection import Connection
from .faults import fault
from .host_statements import refusal
from .host_transaction import HostTransaction, Steps

T = TypeVar("T")

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_COUNTED: Final = ("INSERT", "UPDATE", "DELETE", "MERGE")
_MARK: Final = "SAVEPOINT counterfoil_statement"
_UNMARK: Final = "RELEASE counterfoil_statement"
_UNDO: Final = "ROLLBACK TO counterfoil_statement"


class StoreFailed(Exception):
    """What the journal does in the transaction has failed, or did not stand: that is no matter of the body's."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


class Begun:
    """What stands behind the `tx` of one run of a body, on a connection on which its transaction has begun."""

    def __init__(self, connection: Connection, transaction: HostTransaction, committer: Committer, name: str) -> None:
        self._connection = connection
        self._transaction = transaction
        self._committer = committer
        self._name = name
        self._thread = threading.get_ident()
        self._looked = False
        self._over = False
        self.admissions: list[Admission] = []
        self.refused: InsideTransaction | None = None
        """What makes it be rolled back, whatever the body makes of it."""
        self.failed: StoreFailed | JournalUnavailable | None = None
        """What a call of ours has failed with: nothing of the transaction can be kept."""

    def run(self, body: Body, leases: tuple[Fenced, ...], context: contextvars.Context) -> Transacted:
        """Run the body, and return what is to be told once it is committed; what it raises is raised."""
        for lease in leases:
            self._ours(self._guard(lease))
        result, raised = self._call(body, context)
        if self.failed is not None:
            raise self.failed
        raised = raised or self.refused
        if raised is not None:
            raise raised
        self._ours(self._transaction.check())
        return Transacted(result, self.admissions)

    def _call(self, body: Body, context: contextvars.Context) -> tuple[Any, BaseException | None]:
        try:
            with inside(self):
                return context.run(call_body, body, Tx(self), self), None
        except BaseException as error:
            return None, error
        finally:
            self._over = True

    # What a body does.

    def refuse(self, error: InsideTransaction) -> None:
        """Take note that a call of a journal was refused inside."""
        self.refused = error

    def execute(self, sql: str, parameters: Parameters) -> Result:
        self._check_usable()
        if not isinstance(sql, str):
            raise InvalidValue(f"sql must be text, not {type(sql).__name__}")
        broken = refusal(sql)
        if broken is not None:
            raise InvalidValue(broken)
        connection = self._connection
        connection.execute(_MARK, prepare=False)
        try:
            cursor = connection.execute(sql, parameters or None, prepare=False)
            rows = [] if cursor.description is None else cursor.fetchall()
        except BaseException:
            if not connection.closed:
                connection.execute(_UNDO, prepare=False)
            raise
        finally:
            if not connection.closed:
                connection.execute(_UNMARK, prepare=False)
        counted = (cursor.statusmessage or "").startswith(_COUNTED)
        return Result(rows, cursor.rowcount if counted else -1, None)

    def guard(self, lease: Fenced) -> None:
        self._check_usable()
        self._store(self._guard(lease))

    def append(self, command: Admit | Settle) -> Admission | None:
        self._check_usable()
        admission = self._store(self._append(command))
        if admission is not None:
            self.admissions.append(admission)
        return admission

    def _guard(self, lease: Fenced) -> Steps[None]:
        yield from self._look()
        yield from self._transaction.guard(lease)

    def _append(self, command: Admit | Settle) -> Steps[Admission | None]:
        yield from self._look()
        return (yield from self._transaction.append(command))

    def _look(self) -> Steps[None]:
        if not self._looked:
            yield from self._transaction.look()
            self._looked = True

    def _store(self, steps: Steps[T]) -> T:
        """Do for a body what the journal does in its transaction."""
        try:
            return self._ours(steps)
        except StoreFailed as failed:
            self.failed = failed
        except JournalUnavailable as error:
            self.failed = error
            raise
        raise fault(self.failed.error, self._name)

    def _ours(self, steps: Steps[T]) -> T:
        try:
            return answer(steps, self._connection, self._submit)
        except psycopg.Error as error:
            raise StoreFailed(error) from None

    def _submit(self, command: Command[Any]) -> Any:
        with outside():
            return self._committer.submit(command).result()

    def _check_usable(self) -> None:
        if self._over or threading.get_ident() != self._thread:
            raise Closed("a tx is good inside its body alone, in the thread that runs it; call transact again")
        if self.failed is not None or self._connection.info.transaction_status != TransactionStatus.INTRANS:
            raise Closed("the transaction has ended with the error before, and all of it is rolled back; call transact again")
