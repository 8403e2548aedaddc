"""What an engine does for transactions of a host: those that it runs itself, and those of a connection of the host's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from counterfoil.domain.admission import Admission

from .tx import AsyncWithinTx, Fenced, WithinTx

if TYPE_CHECKING:
    import psycopg

Body: TypeAlias = Callable[[Any], Any]
"""A function of a `Tx`, or a coroutine function of an `AsyncTx`."""
Turns: TypeAlias = Mapping[str, Fenced]
"""By operation id, the leases of the routes on which turns run in this process."""


class Transacted(NamedTuple):
    """What became of a transaction that was committed."""

    result: Any
    """What its body returned."""
    admissions: Sequence[Admission] = ()
    """What its admissions were answered."""

    def __repr__(self) -> str:
        return f"Transacted({len(self.admissions)} admissions)"


class Hosting(Protocol):
    """Run a host's transactions for one opening, from any thread."""

    def transact(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        """Run a body in a transaction, commit it, and wait for that."""
        ...

    async def transact_async(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        """Run a body in a transaction beside the running event loop."""
        ...

    def within(self, connection: psycopg.Connection[Any]) -> AbstractContextManager[WithinTx]:
        """Join the transaction of a connection; raises `InvalidValue` where there is none to join."""
        ...

    def within_async(self, connection: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[AsyncWithinTx]: ...

    def close(self) -> None:
        """Wait for the bodies that run, and run no more."""
