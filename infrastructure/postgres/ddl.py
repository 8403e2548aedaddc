"""The statements that make a journal in a schema, which is there already and empty."""

from __future__ import annotations

from typing import Final

from counterfoil.projections.catalogue import BUILT_IN

from ..statements import statements
from .projection_tables import as_text, quoted, sql_of

_SCHEMA: Final = statements("postgres/schema.sql")
_APPEND: Final = statements("postgres/append.sql")

TAG: Final = "$function$"
"""What the bodies of functions stand between; no schema can have a name that holds it."""


def in_schema(statement: str, schema: str) -> str:
    """Return a statement for one schema: what it names is there, whatever the search path."""
    name = quoted(schema)
    return statement.replace("{schema}", name).replace("{name}", as_text(name))


def create(schema: str) -> list[str]:
    """Return the statements that make tables, functions and projections, in order; the head and what projections there are follow."""
    tables = [in_schema(statement, schema) for statement in (_SCHEMA.create, *functions(schema))]
    for projection in BUILT_IN:
        tables += sql_of(projection, schema).create
    return tables


def functions(schema: str) -> list[str]:
    """Return the statements that make the functions by which is appended."""
    return [
        in_schema(statement, schema)
        for statement in (_APPEND.ring, _APPEND.erase, _APPEND.act, _APPEND.append, _APPEND.append_staged, _APPEND.stage)
    ]
