"""The statements that make a journal in a schema."""

from __future__ import annotations

import re
from typing import Any, Final

import psycopg

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.framing import GENESIS
from counterfoil.projections.catalogue import BUILT_IN

from ..statements import statements
from .naming import quoted
from .projection_tables import TAG, as_text, dispatcher, name_in_record, sql_of

_SCHEMA: Final = statements("postgres/schema.sql")
_PLACE: Final = re.compile(r"\{(?:schema|name)\}")
_APPEND: Final = statements("postgres/append.sql")


def in_schema(statement: str, schema: str) -> str:
    """Return a statement for one schema: what it names is there, whatever the search path. `%s` are places of its values."""
    if TAG in schema:
        raise InvalidValue("the name of a schema must not hold what functions are written between")
    name = quoted(schema)
    if "%s" in statement:
        name = name.replace("%", "%%")
    return _PLACE.sub(lambda found: name if found[0] == "{schema}" else as_text(name), statement)


def create(schema: str) -> list[str]:
    """Return the statements that make tables, functions and projections in a schema that is there, in order."""
    statements = (_SCHEMA.create, *_functions(), _APPEND.trigger)
    made = [in_schema(statement, schema) for statement in statements]
    for projection in BUILT_IN:
        made += sql_of(projection, schema).create
    return [*made, dispatcher(map(name_in_record, BUILT_IN), schema)]


def _functions() -> tuple[str, ...]:
    return _APPEND.clock, _APPEND.ring, _APPEND.erase, _APPEND.act, _APPEND.append, _APPEND.append_staged, _APPEND.arrive


def make(connection: psycopg.Connection[Any], schema: str, *, format: int, journal_key: bytes) -> None:
    """Make an empty journal in a schema that is there and empty, in the transaction of the caller."""
    for statement in create(schema):
        connection.execute(statement.encode(), prepare=False)  # one of them is many statements
    connection.execute(in_schema(_SCHEMA.create_head, schema).encode(), (format, GENESIS, journal_key))
    for projection in BUILT_IN:
        values = (projection.NAME, projection.VERSION, 0 if projection.AGGREGATED else None)
        connection.execute(in_schema(_SCHEMA.add_projection, schema).encode(), values)
