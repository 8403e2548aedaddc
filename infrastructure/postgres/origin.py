"""Which journal a connection has reached: whether it is the one of before, or was restored or promoted since."""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from counterfoil.domain.errors import NotAJournal

from .connecting import SESSION
from .connection import Connection
from .naming import Address


class Origin(NamedTuple):
    """
    What differs between a journal and its copies.

    A dump that is restored makes another schema, mostly in another cluster. A replica that is promoted, and a recovery to a point
    in time, begin another timeline. A copy of the server's disk as a whole is told by nothing here.
    """

    system_identifier: str | None
    """The cluster; None where the role or the service does not tell."""
    timeline: int | None
    """None where the role or the service does not tell, and on a standby."""
    schema_oid: int


def where(connection: Connection, address: Address) -> Origin:
    """
    Tell what journal this is. The connection autocommits, and no transaction is open.

    Raises `NotAJournal` where there is no such schema; what psycopg raises passes.
    """
    found = connection.execute(SESSION.schema_oid, (address.schema,)).fetchone()
    if found is None:
        raise NotAJournal(f"{address.name}: is not a journal, or one that somebody is just making: there is no such schema")
    timeline = _told(connection, SESSION.timeline)
    return Origin(_told(connection, SESSION.system), None if timeline is None else int(timeline, 16), found[0])


def _told(connection: Connection, statement: str) -> str | None:
    """Ask for what some roles, services and standbys do not tell."""
    try:
        found = connection.execute(statement, prepare=False).fetchone()
    except psycopg.DatabaseError:
        if connection.closed:
            raise
        return None
    return None if found is None else found[0]
