"""The statements that make a journal in a schema. They need no driver to be made, and none to be printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from counterfoil.domain.errors import InvalidValue
from counterfoil.projections.catalogue import BUILT_IN

from ..statements import statements
from .naming import quoted
from .projection_tables import TAG, as_text, dispatcher, entry, index_names, name_in_record, sql_of, writer_name

if TYPE_CHECKING:
    import psycopg

VERSION: Final = 1
"""Of what a schema is made of: it goes up in a release that changes any of it, and `schema upgrade` brings a schema to it."""

Kind: TypeAlias = Literal["table", "column", "index", "function", "rights", "trigger"]

_SCHEMA: Final = statements("postgres/schema.sql")
_APPEND: Final = statements("postgres/append.sql")
_TEXTS: Final = statements("postgres/texts.sql")
_PLACE: Final = re.compile(r"\{(?:schema|name)\}")
_NAMED: Final = re.compile(
    r"(?:CREATE|ALTER) (?:UNIQUE |UNLOGGED |CONSTRAINT )?(TABLE|INDEX|FUNCTION|TRIGGER) (?:\{schema\}\.)?(\w+)"
)
_CREATE_FUNCTION: Final = re.compile(r"\ACREATE(?= FUNCTION\b)")


class Part(NamedTuple):
    """One thing that a schema is made of, and how it is made."""

    kind: Kind
    name: str
    statement: str


def in_schema(statement: str, schema: str) -> str:
    """Return a statement for one schema: what it names is there, whatever the search path. `%s` are places of its values."""
    if TAG in schema:
        raise InvalidValue("the name of a schema must not hold what functions are written between")
    name = quoted(schema)
    if "%s" in statement:
        name = name.replace("%", "%%")
    return _PLACE.sub(lambda found: name if found[0] == "{schema}" else as_text(name), statement)


def parts(schema: str, kept: Iterable[str] = ()) -> list[Part]:
    """
    Return what makes tables, indexes, functions and projections, in order.

    `kept` names in records the projections of other releases that the journal has: appends of those fold them as before.
    """
    made = [_part(statement, schema) for statement in (*_SCHEMA.create.split(";\n"), *_functions(), _APPEND.trigger)]
    for projection in BUILT_IN:
        made += _parts_of(projection, schema)
    tables = {*map(name_in_record, BUILT_IN), *kept}
    return [*made, Part("function", "cf_write", dispatcher(tables, schema)), *_rights(schema)]


def _part(statement: str, schema: str) -> Part:
    found = _NAMED.match(statement)
    assert found is not None
    kind: Any = "column" if statement.startswith("ALTER") else found[1].lower()
    return Part(kind, found[2], in_schema(_CREATE_FUNCTION.sub(r"\g<0> OR REPLACE", statement), schema))


def _parts_of(projection: Any, schema: str) -> Iterator[Part]:
    sql = sql_of(projection, schema)
    table, *indexes = sql.create
    yield Part("table", projection.table, table)
    yield from (Part("index", *named) for named in zip(index_names(projection), indexes, strict=True))
    yield Part("function", writer_name(projection), sql.writer)


def _functions() -> tuple[str, ...]:
    append = _APPEND.clock, _APPEND.ring, _APPEND.erase, _APPEND.act, _APPEND.append, _APPEND.append_staged, _APPEND.arrive
    return *append, _TEXTS.frame, _TEXTS.keyed, _TEXTS.show_texts, _TEXTS.commitments


def _rights(schema: str) -> Iterator[Part]:
    """Return what keeps functions from everybody that run with the rights of their owner."""
    yield Part("rights", "cf_show_texts", in_schema(_TEXTS.revoke_show_texts, schema))
    yield Part("rights", "cf_commitments", in_schema(_TEXTS.revoke_commitments, schema))


def create(schema: str) -> list[str]:
    """Return all statements that make an empty journal in a schema that is there and has none, in order."""
    made = [part.statement for part in parts(schema)]
    made += (entry(projection, schema, behind=projection.AGGREGATED) for projection in BUILT_IN)
    return [*made, in_schema(_SCHEMA.create_head, schema)]


def create_schema(schema: str) -> str:
    """Return what makes the schema itself, unless an owner has made it."""
    return in_schema(_SCHEMA.create_schema, schema)


def make(connection: psycopg.Connection[Any], schema: str) -> None:
    """Make an empty journal in a schema that is there and has none, in the transaction of the caller."""
    for statement in create(schema):
        connection.execute(statement.encode(), prepare=False)
