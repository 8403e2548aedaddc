"""Opening a journal in a schema: it is made where there is none, and checked."""

from __future__ import annotations

import os
from typing import Any, Final

import psycopg

from counterfoil.domain.errors import FormatUnknown, JournalDamaged, JournalRefused, NotAJournal
from counterfoil.domain.framing import GENESIS

from ..rows import Head
from ..statements import statements
from . import ddl
from .connection import Connection
from .ddl import in_schema
from .naming import Address
from .store import PostgresStore

FORMAT: Final = 1
CHECKED_DIGESTS: Final = 64
"""Digests that are recomputed at each opening."""

MAKING: Final = statements("postgres/making.sql")


def open_journal(connection: Connection, address: Address, *, readonly: bool) -> Head:
    """Make a journal where there is none, unless it is for reading only, and check it. The driver's errors pass."""
    if not exists(connection, address):
        if readonly:
            raise JournalRefused(
                f"{address.name}: does not exist; a journal is created by opening it for writing, as `counterfoil run` does"
            )
        make(connection, address)
    return check(connection, address)


def exists(connection: psycopg.Connection[Any], address: Address) -> bool:
    """Tell whether the schema holds a journal. Raises `NotAJournal` for one that holds something else by our names."""
    row = connection.execute(MAKING.found, {"schema": address.schema}).fetchone()
    assert row is not None
    has_head, ours = row
    if ours and not has_head:
        raise NotAJournal(f"{address.name}: has tables whose names begin with cf_ and is no journal; choose another schema")
    return bool(has_head)


def make(connection: psycopg.Connection[Any], address: Address) -> None:
    """Make the schema and all that is in it, in one transaction; of many that come together one does it."""
    with connection.transaction():
        connection.execute(MAKING.one_at_a_time, {"schema": address.schema})
        if exists(connection, address):
            return
        connection.execute(in_schema(MAKING.schema, address.schema).encode(), prepare=False)
        ddl.make(connection, address.schema, format=FORMAT, journal_key=os.urandom(32))


def check(connection: psycopg.Connection[Any], address: Address) -> Head:
    """Check format, head and the newest digests; raises what names the journal and the reason."""
    store = PostgresStore(connection, address.schema)
    with connection.transaction():
        connection.execute(MAKING.snapshot)
        head = store.head()
        if head.format != FORMAT:
            raise FormatUnknown(
                f"{address.name}: is in format {head.format}, and this release knows format {FORMAT}; install a newer release"
            )
        events = store.newest_events(CHECKED_DIGESTS + 1)
    previous = GENESIS if head.position <= CHECKED_DIGESTS else None
    for event in events:
        if previous is not None and event.chained(previous) != event.digest:
            raise JournalDamaged(
                f"{address.name}: the digest at position {event.position} does not agree; look at it with `counterfoil verify`"
            )
        previous = event.digest
    return head
