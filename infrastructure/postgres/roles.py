"""
The three roles of a journal: its owner creates and upgrades, its writer appends and cannot alter, its reader cannot write and
sees no text.
"""

from __future__ import annotations

import re
from typing import Final

from counterfoil.domain.errors import InvalidValue
from counterfoil.projections.catalogue import BUILT_IN

from ..statements import statements
from .ddl import parts
from .naming import NAME_BYTES, quoted
from .projection_tables import as_text

ROLES: Final = statements("postgres/roles.sql")
KINDS: Final = ("owner", "writer", "reader")
_PLACE: Final = re.compile(r"\{(\w+)\}")


def role_names(schema: str) -> list[str]:
    """
    Return what owner, writer and reader are called: the name of the schema and what they are, since roles are shared by all
    databases of a server.
    """
    names = [f"{schema}_{kind}" for kind in KINDS]
    if max(len(name.encode()) for name in names) > NAME_BYTES:
        raise InvalidValue(f"the names of its roles would be longer than {NAME_BYTES} bytes; choose a shorter one for the schema")
    return names


def make_roles(schema: str) -> list[str]:
    """Return the statements that make the roles where they are missing, and give a journal to its owner."""
    made = [ROLES.make, ROLES.own_schema]
    objects = [(ROLES.own_table, part.name) for part in parts(schema) if part.kind == "table"]
    objects += [(ROLES.own_function, name) for name in _functions(schema)]
    return [*(_filled(each, schema) for each in made), *(_filled(each, schema, name) for each, name in objects)]


def grants(schema: str) -> list[str]:
    """Return the statements that say what writer and reader may do with a journal; to execute them again changes nothing."""
    rows = [_filled(ROLES.grant_rows, schema, projection.table) for projection in BUILT_IN]
    functions = [_filled(ROLES.grant_function, schema, name) for name in _functions(schema)]
    return [_filled(ROLES.grants, schema), *rows, *functions]


def _functions(schema: str) -> list[str]:
    return [part.name for part in parts(schema) if part.kind == "function"]


def _filled(statement: str, schema: str, name: str = "") -> str:
    roles = dict(zip(KINDS, role_names(schema), strict=True))
    values = {"schema": quoted(schema), "object": quoted(name)}
    values |= {kind: quoted(role) for kind, role in roles.items()}
    values |= {f"{kind}_name": as_text(role) for kind, role in roles.items()}
    return _PLACE.sub(lambda found: values[found[1]], statement)
