"""What the body of a transaction gets to work with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import InvalidValue
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
    """What a statement of the host's gave, as `sqlite3` tells it."""

    rows: list[tuple[Any, ...]] = field(repr=False)
    """All rows that it returned; empty for a statement that returns none."""
    rowcount: int
    """How many rows an INSERT, UPDATE, DELETE or REPLACE changed; -1 for other statements."""
    lastrowid: int | None
    """After an INSERT, the row id of the last row that it inserted; after anything else it tells nothing."""


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


class Works(Protocol):
    """The transaction behind a `tx`."""

    def execute(self, sql: str, parameters: Parameters) -> Result: ...
    def guard(self, lease: Fenced) -> None: ...
    def append(self, command: Admit) -> Admission: ...


class Tx:
    """
    The transaction of a body that is a plain function. It is good inside the body alone, in the thread that runs it; later, and
    elsewhere, it raises `Closed`.
    """

    def __init__(self, transaction: Works) -> None:
        self._transaction = transaction

    def execute(self, sql: str, parameters: Parameters = ()) -> Result:
        """
        Execute one statement on the host's own tables, and return all of its rows.

        What SQLite has against it is raised as it is, an error of `sqlite3`. `InvalidValue` is raised for a statement that
        touches a name that begins with `cf_`, for one that begins, ends or marks a transaction, for PRAGMA, ATTACH and DETACH,
        for one that changes what SQLite keeps about all tables (`sqlite_sequence`, `sqlite_stat1`; ANALYZE of the host's own is
        good), and for a temporary table or view named `json_each`. Foreign keys are not checked.
        """
        return self._transaction.execute(sql, parameters)

    def guard(self, lease: Fenced) -> None:
        """
        Let the transaction commit only while this lease is the current one: it is checked now, after the body, and right before
        all is written.

        Raises `LeaseLost`, also after a body that has caught it, and `InvalidValue` for a lease that this opening did not get.
        """
        self._transaction.guard(lease)

    def append(self, command: Admit) -> Admission:
        """
        Admit an event together with the rest of the transaction.

        A refusal is an answer, and undoes nothing but itself. Raises `CommandConflict` as `Journal.admit` does.
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

    async def append(self, command: Admit) -> Admission:
        """Admit an event together with the rest of the transaction; see `Tx.append`."""
        return self._tx.append(command)
