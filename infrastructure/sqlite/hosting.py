"""A host's transactions on SQLite: commands of the writer, which has the only connection that writes."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from counterfoil.domain.errors import InvalidValue

from ..committer import Committer
from ..hosting import Body, Transacted, Turns
from ..tx import Fenced
from .transact import Transact

NO_CONNECTION: Final = (
    "within joins a psycopg connection to a journal on PostgreSQL; this one is on SQLite, where journal.transact(body) commits a "
    "host's rows with the journal's"
)


class SQLiteHosting:
    """Run bodies on the thread of the writer."""

    def __init__(self, committer: Committer, turns: Turns) -> None:
        self._committer = committer
        self._turns = turns

    def transact(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        command: Transact[Any] = Transact(body, leases, self._turns)
        return Transacted(self._committer.submit(command).result(), command.admissions)

    async def transact_async(self, body: Body, leases: tuple[Fenced, ...]) -> Transacted:
        command: Transact[Any] = Transact(body, leases, self._turns)
        return Transacted(await self._committer.submit_async(command), command.admissions)

    def within(self, connection: object) -> NoReturn:
        raise InvalidValue(NO_CONNECTION)

    def within_async(self, connection: object) -> NoReturn:
        raise InvalidValue(NO_CONNECTION)

    def close(self) -> None:
        """What is queued ends with the committer."""
