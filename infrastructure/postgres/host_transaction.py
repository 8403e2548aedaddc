"""
What one transaction of a host's appends: what is staged on its connection, and what that was decided from.

The calls are generators that yield what is to be done, on the host's connection or beside it, and are sent what came of it: so
they are written once for both colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import psycopg

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.errors import InvalidValue, JournalRefused, ReadOnly
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import position_of

from ..admitting import admit_command, refusal_before_journal
from ..commands.guarding import FOREIGN
from ..commands.opening import BeginOpening
from ..commands.turn import SettleInside
from ..committer import Command
from ..statements import statements
from ..tx import Admit, Fenced, Settle, checked_command, checked_lease, lease_of
from .ddl import in_schema
from .drafting import Drafting

T = TypeVar("T")

WITHIN: Final = statements("postgres/within.sql")
STALE: Final = "counterfoil: the decision is stale; roll back and do it again"
YOUNGER: Final = "counterfoil: the transaction began before the lease did; roll back and begin anew"
_LARGEST: Final = 2**63 - 1
_LEASE_ID: Final = re.compile(r"lk-[0-9a-f]{32}")
_YES: Final = b"t"


class Ask(NamedTuple):
    """Execute a statement on the host's connection, and answer with its rows as they are sent: bytes, or None."""

    sql: str
    values: tuple[bytes, ...] = ()


class Do(NamedTuple):
    """Call a function that may take a moment, and answer with what it returns."""

    function: Callable[[], Any]


class Submit(NamedTuple):
    """Have the writer run a command, and answer with what that returns."""

    command: Command[Any]


Steps: TypeAlias = Generator[Ask | Do | Submit, Any, T]


class Opening(NamedTuple):
    """What a host's transaction needs to know of the opening in whose name it appends."""

    schema: str
    schema_oid: Callable[[], int]
    number: Callable[[], int]
    """That of the newest opening, whether it lives or not; 0 before the first."""
    living: Callable[[], int | None]
    """The number of the opening once it has begun, as long as it is known to live."""
    limits: Callable[[], Limits]
    wall: Callable[[], int]
    turns: Mapping[str, Fenced]
    check_writable: Callable[[], None]
    """Raises `Closed`, `ForkedError` and `ReadOnly`."""
    staged: Callable[[], None]
    """Told when something is staged, which may be appended at any time without the writer's knowing."""
    name: str
    """How errors name the journal."""


class Staged(NamedTuple):
    """A record that is staged, and what it was made from."""

    commands: tuple[Command[Any], ...]
    answers: tuple[Admission | None, ...]
    drawn: dict[Scope, ScopeKey]
    record: bytes

    def __repr__(self) -> str:
        return f"Staged({len(self.commands)} commands)"


NOTHING: Final = Staged((), (), {}, b"")


class HostTransaction:
    """
    The records that were staged through one connection, by the numbers of their rows.

    Which of them are there in the running transaction is known from the rows alone: none outlives its transaction, and a
    savepoint that is rolled back takes with it what was staged after it, and brings back what that had replaced.
    """

    def __init__(self, opening: Opening, drafting: Drafting) -> None:
        self._opening = opening
        self._drafting = drafting
        self._records: dict[int, Staged] = {}
        self.leases: list[Fenced] = []
        """What the running block is guarded by."""

    @property
    def appends(self) -> bool:
        """Whether anything was ever staged."""
        return bool(self._records)

    def check_open(self) -> None:
        """Raise `Closed`, `ForkedError` and `ReadOnly` where nothing can be appended any more."""
        self._opening.check_writable()

    def look(self) -> Steps[None]:
        """See that the connection reaches the journal and may append there, in the name of an opening that has begun."""
        opening_id = yield from self._begun()
        oid = str(self._opening.schema_oid()).encode()
        ((reaches, writes, appends, may),) = yield Ask(self._sql(WITHIN.look), (oid, str(opening_id).encode(), oid, oid))
        if reaches != _YES:
            raise InvalidValue("the connection is not to the journal's database; connect to the one that the journal is in")
        if writes != _YES:
            raise ReadOnly("the transaction of the connection is read-only; begin one that is not")
        if appends != _YES:
            raise InvalidValue("in a session whose session_replication_role is replica nothing is appended; set it to origin")
        if may != _YES:
            raise JournalRefused("the role of the connection may not append; grant it what the journal's writer has")

    def append(self, command: Admit | Settle) -> Steps[Admission | None]:
        """Decide a command on top of what is staged, and stage both; return its answer."""
        command = checked_command(command)
        if isinstance(command, Settle):
            yield from self._settle(command)
            return None
        reason = refusal_before_journal(command.inbound, command.grant, self._opening.limits(), self._opening.wall())
        if reason is not None:
            return refused(reason)
        admission: Admission = yield from self._stage(admit_command(command.inbound, command.grant, command.command_id))
        return admission

    def _settle(self, command: Settle) -> Steps[None]:
        lease = lease_of(self._opening.turns, command)
        yield from self.guard(lease)
        yield from self._stage(SettleInside(command.turn.operation_id, lease, command.answer))

    def guard(self, lease: Fenced) -> Steps[None]:
        """Keep a lease from ending before the transaction does; raises `LeaseLost` unless it is the current one."""
        self.leases.append(checked_lease(lease))  # first, so that a block which swallows the refusal is refused at its end
        position = position_of(lease.fence)
        if _LEASE_ID.fullmatch(lease.lease_id) is None or position > _LARGEST:  # which the connection might choke on
            raise InvalidValue(FOREIGN)
        values = (lease.lease_id.encode(), str(position).encode(), str(self._opening.number()).encode())
        held = yield Ask(self._sql(WITHIN.hold), values)
        yield from self.check()
        if not held:
            raise psycopg.errors.SerializationFailure(YOUNGER)

    def check(self) -> Steps[None]:
        """Raise `LeaseLost` unless all guards stand."""
        self.check_open()
        if self.leases:
            yield Do(partial(self._drafting.check, self._opening.number(), self._opening.limits(), tuple(self.leases)))

    def _stage(self, command: Command[Any]) -> Steps[Any]:
        number, before = yield from self.staged()
        opening_id = yield from self._begun()
        drawn = dict(before.drawn)
        commands = (*before.commands, command)
        draft = yield Do(partial(self._drafting.draft, opening_id, self._opening.limits(), commands, drawn))
        if draft.answers[:-1] != before.answers:
            raise psycopg.errors.SerializationFailure(STALE)
        if draft.record is not None:
            yield from self._replace(number, Staged(commands, draft.answers, drawn, draft.record))
        return draft.answers[-1]

    def staged(self) -> Steps[tuple[int | None, Staged]]:
        """Return what is staged in the running transaction, with its number; None when nothing is."""
        if self._records:
            for (number,) in (yield Ask(self._sql(WITHIN.staged), (_numbers(self._records),))):
                return int(number), self._records[int(number)]
            self._records.clear()  # with its transaction; while that goes on there is always one
        return None, NOTHING

    def _replace(self, number: int | None, staged: Staged) -> Steps[None]:
        ((row,),) = yield Ask(self._sql(WITHIN.replace), (_numbers([] if number is None else [number]), staged.record))
        self._records[int(row)] = staged
        self._opening.staged()

    def restore(self, before: Staged) -> Steps[None]:
        """Have staged what was at the beginning of a block that has come to nothing."""
        number, now = yield from self.staged()
        if now is before or number is None:
            return
        stands = all(one is other for one, other in zip(before.commands, now.commands, strict=False))
        if before.commands and stands:
            yield from self._replace(number, before)
        else:  # that is gone with a savepoint, or never was: the rest is the block's
            yield Ask(self._sql(WITHIN.take_back), (_numbers([number]),))

    def _begun(self) -> Steps[int]:
        """Return the opening, which begins with this where it has not."""
        self.check_open()
        while (opening_id := self._opening.living()) is None:
            yield Submit(BeginOpening())
        return opening_id

    def _sql(self, statement: str) -> str:
        return in_schema(statement, self._opening.schema)


def _numbers(numbers: Any) -> bytes:
    return b"{%s}" % b",".join(b"%d" % number for number in numbers)
