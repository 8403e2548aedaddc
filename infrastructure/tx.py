"""What the body of a transaction gets to work with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, overload

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.domain.identity import Grant
from counterfoil.domain.inbound import Inbound

from .commands.once import command_id_bytes

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Fenced(Protocol):
    """What a guard needs to know of a lease: the key that it is of, and its number."""

    @property
    def lease_id(self) -> str: ...
    @property
    def fence(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement of the host's gave, as the driver tells it: `sqlite3` or `psycopg`."""

    rows: list[tuple[Any, ...]] = field(repr=False)
    """All rows that it returned; empty for a statement that returns none."""
    rowcount: int
    """How many rows an INSERT, UPDATE, DELETE, REPLACE or MERGE changed; -1 for other statements."""
    lastrowid: int | None
    """
    On SQLite after an INSERT, the row id of the last row that it inserted; after anything else it tells nothing. On PostgreSQL
    None: write RETURNING.
    """


@dataclass(frozen=True, slots=True)
class Admit:
    """
    The admission of an event as part of a transaction: `Journal.admit` as a value for `tx.append`, with the same checks.

    Raises `InvalidValue` when it is made of something else, or of a command id outside 1 to 128 bytes.
    """

    inbound: Inbound
    grant: Grant
    command_id: str | bytes | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.inbound, Inbound):
            raise InvalidValue(f"inbound must be an Inbound, not {type(self.inbound).__name__}")
        if not isinstance(self.grant, Grant):
            raise InvalidValue(f"grant must be a Grant, not {type(self.grant).__name__}")
        if self.command_id is not None:
            command_id_bytes(self.command_id)

    def __repr__(self) -> str:
        return "Admit()"


@dataclass(frozen=True, slots=True)
class Settle:
    """
    The settlement of a running turn as part of a transaction: what its agent would return, as a value for `tx.append`.

    The agent appends it beside its own rows; when it returns, the runtime goes on from there and sends what was staged. `turn` is
    what the agent got, and `answer` what it could return instead: text, an `AgentAnswer`, or None to answer nothing.

    Raises `InvalidValue` when it is made of something else.
    """

    turn: Turn
    answer: str | AgentAnswer | None

    def __post_init__(self) -> None:
        if not isinstance(self.turn, Turn):
            raise InvalidValue(f"turn must be the Turn that the agent got, not {type(self.turn).__name__}")
        if self.answer is not None and not isinstance(self.answer, str | AgentAnswer):
            raise InvalidValue(f"answer must be text, an AgentAnswer or None, not {type(self.answer).__name__}")

    def __repr__(self) -> str:
        return f"Settle({self.turn.operation_id})"


class Joins(Protocol):
    """What joins the journal to a transaction of the host's."""

    def guard(self, lease: Fenced) -> None: ...
    def append(self, command: Admit | Settle) -> Admission | None: ...


class AsyncJoins(Protocol):
    """`Joins`, to be awaited."""

    async def guard(self, lease: Fenced) -> None: ...
    async def append(self, command: Admit | Settle) -> Admission | None: ...


class Works(Joins, Protocol):
    """The transaction behind a `tx`."""

    def execute(self, sql: str, parameters: Parameters) -> Result: ...


class Tx:
    """
    The transaction of a body that is a plain function. It is good inside the body alone, in the thread that runs it; later, and
    elsewhere, it raises `Closed`.
    """

    def __init__(self, transaction: Works) -> None:
        self._transaction = transaction

    def execute(self, sql: str, parameters: Parameters = ()) -> Result:
        """
        Execute one statement on the host's own tables, and return all of its rows. Values are marked as the driver wants it: `?`
        or `:name` on SQLite, `%s` or `%(name)s` on PostgreSQL.

        What the database has against it is raised as it is, an error of `sqlite3` or `psycopg`, and undoes this statement alone.
        `InvalidValue` is raised for a statement that touches a name that begins with `cf_`, for one that begins, ends or marks a
        transaction, and for one that changes the connection, which is the journal's: PRAGMA, ATTACH and DETACH on SQLite; SET
        (but for SET LOCAL), LISTEN, PREPARE and the like on PostgreSQL.

        SQLite tells of each table that a statement touches. It refuses besides what changes the tables that it keeps about all
        others (`sqlite_sequence`, `sqlite_stat1`; ANALYZE of the host's own is good), and a temporary table or view named
        `json_each`; foreign keys are not checked there. On PostgreSQL the text of the statement is looked at: what it reaches by
        a view or a function of the host's is a matter of the rights of the role in the journal's URL.
        """
        return self._transaction.execute(sql, parameters)

    def guard(self, lease: Fenced) -> None:
        """
        Let the transaction commit only while this lease is the current one: it is checked now, after the body, and on SQLite
        right before all is written; on PostgreSQL the key is nobody else's until the transaction has ended.

        Raises `LeaseLost`, also after a body that has caught it, and `InvalidValue` for a lease that this opening did not get.
        """
        self._transaction.guard(lease)

    @overload
    def append(self, command: Admit) -> Admission: ...
    @overload
    def append(self, command: Settle) -> None: ...
    def append(self, command: Admit | Settle) -> Admission | None:
        """
        Admit an event, or settle the turn that is running, together with the rest of the transaction.

        A refusal of an event is an answer, and undoes nothing but itself; on PostgreSQL the `position` of an answer is None,
        because it is known only after the commit. Raises `CommandConflict` as `Journal.admit` does. A settlement is guarded by
        the lease of its route: it raises `LeaseLost` when that is lost, and `InvalidValue` for a turn that does not run, or no
        longer, in this opening.
        """
        return self._transaction.append(command)


class AsyncTx:
    """
    The transaction of a body that is a coroutine function: `Tx`, to be awaited. Nothing else may be awaited inside.
    """

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    async def execute(self, sql: str, parameters: Parameters = ()) -> Result:
        """Execute one statement on the host's own tables; see `Tx.execute`."""
        return self._tx.execute(sql, parameters)

    async def guard(self, lease: Fenced) -> None:
        """Let the transaction commit only while this lease is the current one; see `Tx.guard`."""
        self._tx.guard(lease)

    @overload
    async def append(self, command: Admit) -> Admission: ...
    @overload
    async def append(self, command: Settle) -> None: ...
    async def append(self, command: Admit | Settle) -> Admission | None:
        """Admit an event, or settle the running turn, together with the rest of the transaction; see `Tx.append`."""
        return self._tx.append(command)


class WithinTx:
    """
    What joins the journal to the transaction of a psycopg connection. It is good inside its block alone, in the thread that runs
    it; later, and elsewhere, it raises `Closed`. Statements are executed on the connection itself.
    """

    def __init__(self, transaction: Joins) -> None:
        self._transaction = transaction

    def guard(self, lease: Fenced) -> None:
        """
        Let the transaction commit only while this lease is the current one: it is checked now and at the end of the block, and
        until the transaction has ended its key is nobody else's. Nothing but this one key is held.

        Raises `LeaseLost`, and `InvalidValue` for a lease that this opening did not get.
        """
        self._transaction.guard(lease)

    @overload
    def append(self, command: Admit) -> Admission: ...
    @overload
    def append(self, command: Settle) -> None: ...
    def append(self, command: Admit | Settle) -> Admission | None:
        """
        Admit an event, or settle the turn that is running: it is appended when the host commits, and only then.

        It is decided on what is committed now, and on what the transaction has appended before; the answer has no `position`,
        which is known after the commit. A refusal is an answer. A repeat of an event that the same transaction admits is counted,
        and not recorded. Raises `CommandConflict` as `Journal.admit` does. A settlement is guarded by the lease of its route: it
        raises `LeaseLost` when that is lost, and `InvalidValue` for a turn that does not run, or no longer, in this opening.

        Raises psycopg's `SerializationFailure`, here or in the host's COMMIT, when others have appended what the decision would
        no longer stand with: roll back, and do all of it again.
        """
        return self._transaction.append(command)


class AsyncWithinTx:
    """`WithinTx` for a `psycopg.AsyncConnection`, to be awaited."""

    def __init__(self, transaction: AsyncJoins) -> None:
        self._transaction = transaction

    async def guard(self, lease: Fenced) -> None:
        """Let the transaction commit only while this lease is the current one; see `WithinTx.guard`."""
        await self._transaction.guard(lease)

    @overload
    async def append(self, command: Admit) -> Admission: ...
    @overload
    async def append(self, command: Settle) -> None: ...
    async def append(self, command: Admit | Settle) -> Admission | None:
        """Admit an event, or settle the running turn, when the host commits; see `WithinTx.append`."""
        return await self._transaction.append(command)


def checked_lease(lease: Fenced) -> Fenced:
    """Return what is a lease; raises `InvalidValue` for anything else."""
    lease_id, fence = getattr(lease, "lease_id", None), getattr(lease, "fence", None)
    if not isinstance(lease_id, str) or not isinstance(fence, int) or isinstance(fence, bool):
        raise InvalidValue(f"a guard must be a lease of this journal, not {type(lease).__name__}")
    return lease


def checked_command(command: Admit | Settle) -> Admit | Settle:
    """Return what can be appended in a transaction; raises `InvalidValue` for anything else."""
    if not isinstance(command, Admit | Settle):
        raise InvalidValue(f"tx.append takes a counterfoil.Admit or Settle, not {type(command).__name__}")
    return command


def lease_of(turns: Mapping[str, Fenced], command: Settle) -> Fenced:
    """Return the lease of the route of a turn that is to be settled; raises `InvalidValue` unless it runs here."""
    lease = turns.get(command.turn.operation_id)
    if lease is None:
        raise InvalidValue(
            "the turn does not run, or no longer, in the opening that is to settle it; use the journal that its runtime was made"
            " with"
        )
    return lease
