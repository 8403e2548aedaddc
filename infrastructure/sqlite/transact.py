"""
A host's transaction as one command of a group: its body runs on the writer's thread, under a savepoint, and shares the commit.
"""

from __future__ import annotations

import contextvars
import sqlite3
import threading
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.errors import Closed, InsideTransaction, JournalUnavailable

from ..admitting import admit_command, refusal_before_journal
from ..commands.guarding import check_lease
from ..commands.turn import SettleInside
from ..hosting import Body, Turns
from ..inside import inside
from ..stepping import call_body
from ..tx import Admit, Fenced, Parameters, Result, Settle, Tx, checked_command, checked_lease, lease_of
from ..unit import Unit
from .host_statements import HostStatements
from .store import SQLiteStore
from .taking import BodyRaised, TransactionEnded

T = TypeVar("T")


class Transaction:
    """What stands behind the `tx` of one run of a body."""

    def __init__(self, unit: Unit, host: HostStatements, leases: tuple[Fenced, ...], turns: Turns) -> None:
        self._unit = unit
        self._host = host
        self._turns = turns
        self._thread = threading.get_ident()
        self.leases = list(leases)
        """What it is guarded by."""
        self.over = False
        """The body has ended."""
        self.admissions: list[Admission] = []
        self.refused: InsideTransaction | None = None
        """What makes it be rolled back, whatever the body makes of it."""
        self.failed: sqlite3.Error | None = None
        """What the store failed with in a call of ours: the matter of the whole group."""
        self.ended_by: sqlite3.Error | None = None
        """The error of the host's statement with which SQLite ended the transaction of the whole group."""

    def refuse(self, error: InsideTransaction) -> None:
        """Take note that a call of a journal was refused inside."""
        self.refused = error

    def execute(self, sql: str, parameters: Parameters) -> Result:
        self._check_usable()
        try:
            return self._host.execute(sql, parameters)
        except sqlite3.Error as error:
            if self._host.ended:
                self.ended_by = error
            raise

    def guard(self, lease: Fenced) -> None:
        self._check_usable()
        self.leases.append(checked_lease(lease))  # first, so that a body which swallows the refusal is refused after it
        try:
            with self._host.suspended():
                check_lease(self._unit, lease)
        except sqlite3.Error as error:
            raise self._store_failed(error) from None

    def append(self, command: Admit | Settle) -> Admission | None:
        self._check_usable()
        command = checked_command(command)
        if isinstance(command, Settle):
            self._settle(command)
            return None
        unit = self._unit
        unit.look_at_clocks()
        reason = refusal_before_journal(command.inbound, command.grant, unit.limits, unit.wall)
        admission = refused(reason) if reason is not None else self._admit(command)
        self.admissions.append(admission)
        return admission

    def _admit(self, command: Admit) -> Admission:
        try:
            with self._host.suspended(), self._unit.nested():
                return admit_command(command.inbound, command.grant, command.command_id).run(self._unit).admission
        except sqlite3.Error as error:
            raise self._store_failed(error) from None

    def _settle(self, command: Settle) -> None:
        lease = lease_of(self._turns, command)
        self.leases.append(lease)
        try:
            with self._host.suspended(), self._unit.nested():
                SettleInside(command.turn.operation_id, lease, command.answer).run(self._unit)
        except sqlite3.Error as error:
            raise self._store_failed(error) from None

    def check_leases(self) -> None:
        """Check every guard: before the body, and once more when it has taken its time."""
        for lease in self.leases:
            check_lease(self._unit, lease)

    def _store_failed(self, error: sqlite3.Error) -> JournalUnavailable:
        self.failed = error
        return JournalUnavailable("the store failed inside a transaction, all of which is rolled back; try again")

    def _check_usable(self) -> None:
        if self.over or threading.get_ident() != self._thread:
            raise Closed("a tx is good inside its body alone, in the thread that runs it; call transact again")
        if self.ended_by is not None or self.failed is not None:
            raise Closed("the transaction has ended with the error before, and all of it is rolled back; call transact again")


class Transact(Generic[T]):
    """
    Run a body, and commit what it did with the rest of the group; what it raises undoes what it did, and nothing else.

    When a group is taken again, one by one, the body is called again.
    """

    def __init__(self, body: Body, leases: tuple[Fenced, ...], turns: Turns = MappingProxyType({})) -> None:
        self._body = body
        self._leases = leases
        self._turns = turns
        self._context = contextvars.copy_context()
        self.guards: Sequence[Fenced] = ()
        """What has to stand still when the group is written, once the body has done its part."""
        self.admissions: list[Admission] = []
        """The answers to what was appended, once all of it is part of the group."""

    def run(self, unit: Unit) -> T:
        assert isinstance(unit.store, SQLiteStore)
        host, self.guards = unit.store.host, ()
        transaction = Transaction(unit, host, self._leases, self._turns)
        transaction.check_leases()
        host.begin()
        try:
            result, raised = self._call(transaction)
            unit.look_at_clocks()  # the commands after this one are decided at their time, not at that of the group's beginning
            if transaction.failed is not None:
                raise transaction.failed
            if transaction.ended_by is not None:
                raise TransactionEnded(raised or transaction.ended_by)
            raised = raised or transaction.refused
            if raised is not None:
                raise BodyRaised(raised)
            transaction.check_leases()
        except (sqlite3.Error, TransactionEnded):
            raise  # with these all of the group is rolled back
        except BaseException:
            host.rollback()
            raise
        host.release()
        self.admissions, self.guards = transaction.admissions, transaction.leases
        return result  # type: ignore[no-any-return]

    def _call(self, transaction: Transaction) -> tuple[Any, BaseException | None]:
        """Call the body, and return what it returned or what it raised."""
        try:
            with inside(transaction):
                return self._context.run(call_body, self._body, Tx(transaction), transaction), None
        except BaseException as error:
            return None, error
        finally:
            transaction.over = True
