"""Transactions of a host on an open journal, in both colours; what they share is in `sqlite/transact.py`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar, overload

from counterfoil.domain.errors import InvalidValue

from .callbacks import is_async
from .calls import AsyncOpener, Opener
from .core import Core
from .sqlite.transact import Transact, checked_lease
from .tx import AsyncTx, Fenced, Tx

T = TypeVar("T")

Guard: TypeAlias = Fenced | Sequence[Fenced]


class AsyncTransactions(AsyncOpener):
    """Run transactions on the writer of a journal, and await them."""

    @overload
    async def transact(self, body: Callable[[AsyncTx], Coroutine[Any, Any, T]], *, guard: Guard | None = None) -> T: ...
    @overload
    async def transact(self, body: Callable[[Tx], T], *, guard: Guard | None = None) -> T: ...
    async def transact(self, body: Callable[[Any], Any], *, guard: Guard | None = None) -> Any:
        """
        Commit what a body does to the host's own tables and appends to the journal together, or nothing of it; return what the
        body returns.

        `body` is a function of a `Tx`, or a coroutine function of an `AsyncTx`, which may await nothing but that: anything else
        that it awaits raises `InsideTransaction`. It runs on the thread of the journal's writer, on which everybody else waits
        meanwhile, so let it be short. It may be called more than once, when the transaction that it shares with others cannot be
        kept: let it have no effects but through its `tx`. What it raises is raised here as it is, and undoes all that it did.

        Its statements run on the journal's connection, as SQLite's defaults have it: a foreign key is checked by nobody, because
        `PRAGMA foreign_keys` is off there, and PRAGMA is refused inside, as ATTACH is. Check what must exist in the statement.

        No journal is called inside: that raises `InsideTransaction`, and rolls back even if the body catches it. A thread that
        the body starts and waits for must not call one either; it would wait for ever.

        With `guard`, one lease or several, it commits only while each is the current one, and raises `LeaseLost` otherwise; it
        is checked before the body, after it, and right before it is written with what others did meanwhile. A lease of another
        opening raises `InvalidValue`. Cancelled before the body is begun nothing is done; after that it completes.
        """
        core = self._core
        command = _command(body, guard)
        result = await self._submit(command)
        _count(core, command)
        return result


class Transactions(Opener):
    """Run transactions on the writer of a journal, and wait for them."""

    def transact(self, body: Callable[[Tx], T], *, guard: Guard | None = None) -> T:
        """
        Commit what a body does to the host's own tables and appends to the journal together, or nothing of it; return what the
        body returns.

        `body` is a plain function of a `Tx`. It runs on the thread of the journal's writer, on which everybody else waits
        meanwhile, so let it be short. It may be called more than once, when the transaction that it shares with others cannot be
        kept: let it have no effects but through its `tx`. What it raises is raised here as it is, and undoes all that it did.

        Its statements run on the journal's connection, as SQLite's defaults have it: a foreign key is checked by nobody, because
        `PRAGMA foreign_keys` is off there, and PRAGMA is refused inside, as ATTACH is. Check what must exist in the statement.

        No journal is called inside: that raises `InsideTransaction`, and rolls back even if the body catches it. A thread that
        the body starts and waits for must not call one either; it would wait for ever.

        With `guard`, one lease or several, it commits only while each is the current one, and raises `LeaseLost` otherwise; it
        is checked before the body, after it, and right before it is written with what others did meanwhile. A lease of another
        opening raises `InvalidValue`.
        """
        core = self._core
        if is_async(body):
            raise InvalidValue(
                "body must be a plain function here; a coroutine function is for a journal of counterfoil.open_async"
            )
        command: Transact[T] = _command(body, guard)
        result = self._submit(command)
        _count(core, command)
        return result


def _command(body: Callable[[Any], Any], guard: Guard | None) -> Transact[Any]:
    if not callable(body):
        raise InvalidValue(f"body must be a function of tx, not {type(body).__name__}")
    leases = () if guard is None else tuple(guard) if isinstance(guard, Sequence) else (guard,)
    return Transact(body, tuple(checked_lease(lease) for lease in leases))


def _count(core: Core, command: Transact[Any]) -> None:
    """Count what was admitted, now that it is committed."""
    for admission in command.admissions:
        core.count_admission(admission)
