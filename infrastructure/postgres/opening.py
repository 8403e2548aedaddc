"""Opening a journal in a schema: it is made where there is none, and checked."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

from counterfoil.domain.errors import FormatUnknown, JournalDamaged, JournalRefused, NotAJournal
from counterfoil.domain.framing import GENESIS
from counterfoil.projections.catalogue import BUILT_IN

from ..rows import Head
from ..statements import statements
from . import ddl
from .connection import Connection
from .naming import Address, quoted
from .projection_tables import name_in_record
from .store import PostgresStore

FORMAT: Final = 1
CHECKED_DIGESTS: Final = 64
"""Digests that are recomputed at each opening."""
TRIES: Final = 3
"""How often a schema is made, of which somebody else makes the same at the same moment, in a way of their own."""

MAKING: Final = statements("postgres/making.sql")


class Found(NamedTuple):
    """What is in a schema."""

    is_usable: bool | None
    """Whether this role may use it; None where there is no such schema."""
    is_journal: bool
    ours: int
    """How many tables it has by our names."""


def open_journal(connection: Connection, address: Address, *, readonly: bool, create: bool = True) -> Head:
    """
    Make a journal where there is none, unless it is for reading only or `create` is off, and check it. The driver's errors pass.
    """
    if not exists(connection, address):
        if readonly:
            raise JournalRefused(
                f"{address.name}: does not exist; a journal is created by opening it for writing, as `counterfoil run` does"
            )
        if not create:
            raise JournalRefused(
                f"{address.name}: does not exist, and is not to be created here; create it by what `counterfoil schema sql` "
                "prints, or open it once with create=True"
            )
        make(connection, address)
    return check(connection, address, readonly=readonly)


def exists(connection: psycopg.Connection[Any], address: Address) -> bool:
    """
    Tell whether the schema holds a journal. Raises `NotAJournal` for one that holds something else by our names, and
    `JournalRefused` for one that this role may not use.
    """
    found = look(connection, address)
    if found.is_usable is False:
        raise JournalRefused(f"{address.name}: the role may not use this schema; grant it what `counterfoil schema roles` prints")
    if found.ours and not found.is_journal:
        raise NotAJournal(f"{address.name}: has tables whose names begin with cf_ and is no journal; choose another schema")
    return found.is_journal


def look(connection: psycopg.Connection[Any], address: Address) -> Found:
    """Look at what is in a schema."""
    row = connection.execute(MAKING.found, {"schema": address.schema}).fetchone()
    assert row is not None
    return Found(*row)


def make(connection: psycopg.Connection[Any], address: Address) -> None:
    """Make the schema and all that is in it, in one transaction; of many that come together one does it."""
    for left in reversed(range(TRIES)):
        try:
            with connection.transaction():
                make_unless_there(connection, address)
            return
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema):
            if not left:
                raise
        except psycopg.errors.InsufficientPrivilege:
            raise lacks_rights(connection, address) from None


def make_unless_there(connection: psycopg.Connection[Any], address: Address) -> bool:
    """Make it in the transaction of the caller; tells whether it was not there."""
    connection.execute(MAKING.one_at_a_time, {"schema": address.schema})
    if exists(connection, address):
        return False
    connection.execute(ddl.create_schema(address.schema).encode(), prepare=False)
    ddl.make(connection, address.schema)
    return True


def lacks_rights(connection: psycopg.Connection[Any], address: Address) -> JournalRefused:
    """Return what to raise where a role could not make a journal, by what it lacks."""
    if look(connection, address).is_usable is None:
        lacks = "has no right to CREATE in the database, and there is no such schema"
    else:
        lacks = "has no right to CREATE in the schema"
    return JournalRefused(
        f"{address.name}: does not exist, and this role cannot create it: it {lacks}; `counterfoil schema sql` prints what "
        "its owner has to run"
    )


def check(connection: psycopg.Connection[Any], address: Address, *, readonly: bool = False) -> Head:
    """Check format, schema, head and the newest digests; raises what names the journal and the reason."""
    store = PostgresStore(connection, address.schema)
    with connection.transaction():
        connection.execute(MAKING.snapshot)
        check_format(connection, address)
        check_made_of(connection, address, readonly=readonly)
        head = store.head()
        events = store.newest_events(CHECKED_DIGESTS + 1)
    previous = GENESIS if head.position <= CHECKED_DIGESTS else None
    for event in events:
        if previous is not None and event.chained(previous) != event.digest:
            raise JournalDamaged(
                f"{address.name}: the digest at position {event.position} does not agree; look at it with `counterfoil verify`"
            )
        previous = event.digest
    return head


def check_format(connection: psycopg.Connection[Any], address: Address) -> None:
    """Raise `FormatUnknown` for a journal whose format this release does not know."""
    row = connection.execute(MAKING.format).fetchone()
    if row is None:
        raise JournalDamaged(f"{address.name}: has no head; restore a backup")
    if row[0] != FORMAT:
        raise FormatUnknown(
            f"{address.name}: is in format {row[0]}, and this release knows format {FORMAT}; install a newer release"
        )


def check_made_of(connection: psycopg.Connection[Any], address: Address, *, readonly: bool) -> None:
    """Refuse a schema that is not made for this release: to append to it would go wrong, or to another one."""
    row = connection.execute(MAKING.made_of, {"here": f"{quoted(address.schema)}.cf_event"}).fetchone()
    assert row is not None
    version, projections, is_of_here = row
    if version > ddl.VERSION:
        raise FormatUnknown(
            f"{address.name}: its schema is of version {version}, and this release knows version {ddl.VERSION}; install a newer "
            "release"
        )
    lacks = [each.table for each in BUILT_IN if name_in_record(each) not in projections]
    if version < ddl.VERSION or lacks or not (readonly or is_of_here):
        what = "has functions that belong to another schema, as after a change of its name" if is_of_here is False else "is older"
        raise JournalRefused(f"{address.name}: {what}; have its owner run `counterfoil schema upgrade`")
