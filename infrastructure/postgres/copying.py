"""Copies from a schema and into one. What is written is one transaction: of a copy that ends early there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from counterfoil.domain.errors import JournalRefused
from counterfoil.domain.limits import Limits
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Projection

from ..copying import Rows, Source, Table, Target
from ..rows import Head, SQLRow
from ..statements import statements
from .connecting import connect
from .connection import Connection
from .faults import fault
from .naming import Address
from .opening import check_format, check_made_of, exists, lacks_rights, make_unless_there
from .projection_tables import name_in_record, sql_of
from .reader_pool import SNAPSHOT
from .store import PostgresStore

INTO: Final = statements("postgres/copy.sql")
BUSY_US: Final = Limits().duration("busy_wait")
_PUT: Final = {
    "events": (
        INTO.put_events,
        "int8 int8 text int8 text int4 int4 text bytea text bytea bytea bytea int8 bytea int8 bytea bytea".split(),
    ),
    "payloads": (INTO.put_payloads, ["int8", "bytea", "bytea"]),
    "external_ids": (INTO.put_external_ids, ["int8", "text"]),
    "scopes": (INTO.put_scopes, ["bytea", "text", "text", "text", "bytea"]),
    "subjects": (INTO.put_subjects, ["bytea", "bytea", "text", "text", "text"]),
    "lock_keys": (INTO.put_lock_keys, ["text", "text"]),
    "commands": (INTO.put_commands, ["bytea", "bytea", "bytea", "bytea", "int8"]),
    "repeats": (INTO.put_repeats, ["int8", "int8"]),
}
"""How rows of a table are taken in, and what its columns are made of."""


@contextmanager
def reading_schema(address: Address) -> Iterator[Source]:
    """Lend a journal in one snapshot."""
    try:
        with connect(address, purpose="reader", busy_us=BUSY_US) as connection:
            if not exists(connection, address):
                raise JournalRefused(f"{address.name}: does not exist; name a journal that is there")
            connection.execute(SNAPSHOT)
            connection.execute(INTO.be_patient, prepare=False)
            check_format(connection, address)
            store = PostgresStore(connection, address.schema)
            yield Source(store, store.head().epoch)
    except psycopg.Error as error:
        raise fault(error, address.name) from None


@contextmanager
def writing_schema(address: Address) -> Iterator[Target]:
    """Lend a journal that is being made in a schema; unless it was finished, nothing of it stays."""
    connection = connect(address, purpose="writer", busy_us=BUSY_US)
    try:
        yield SchemaTarget(connection, address)
    finally:
        connection.close()


class SchemaTarget(Target):
    """A journal that is being made, in one transaction."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection = connection
        self._address = address
        self.store = PostgresStore(connection, address.schema)
        self._journal_key = b""

    def begin(self, journal_key: bytes) -> None:
        self._journal_key = journal_key
        self._connection.silence_s = None
        with self._faults():
            make_where_none_is(self._connection, self._address)
            self._connection.execute(INTO.be_patient, prepare=False)

    def put(self, table: Table, rows: Sequence[SQLRow]) -> None:
        self._copy(*_PUT[table.name], rows)

    def put_rows(self, projection: Projection[Any], rows: Rows) -> None:
        sql = sql_of(projection, self._address.schema)
        self._copy(sql.copy, sql.types, rows.values())

    def _copy(self, statement: str, types: Sequence[str], rows: Iterable[SQLRow]) -> None:
        with self._faults(), self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)

    def put_head(self, head: Head, passed_over: int) -> None:
        inline, aggregated = ([name_in_record(each) for each in BUILT_IN if each.AGGREGATED is kind] for kind in (False, True))
        with self._faults():
            self._connection.execute(INTO.put_head, (self._journal_key, head.epoch, head.opening_id, passed_over))
            self._connection.execute(INTO.put_projections, {"inline": inline, "aggregated": aggregated, "head": head.position})

    def finish(self) -> None:
        with self._faults():
            self._connection.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise fault(error, self._address.name) from None


def make_where_none_is(connection: Connection, address: Address) -> None:
    """Begin a transaction, and make a journal in it where there is none, or take one that was never used."""
    connection.execute("BEGIN")
    try:
        if make_unless_there(connection, address):
            return
    except psycopg.errors.InsufficientPrivilege:
        connection.execute("ROLLBACK")
        raise lacks_rights(connection, address) from None
    check_format(connection, address)
    check_made_of(connection, address, readonly=False)
    row = connection.execute(INTO.lock_empty).fetchone()
    if row is None or not row[0]:
        raise JournalRefused(f"{address.name}: holds a journal already; copy into a schema that is not there yet, or is empty")
