"""
The only SQL that is made in code: tables and row changes of projections, from their declared columns, by one quoting function.
"""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from counterfoil.projections.projection import Projection

_TYPES = {int: "INTEGER", str: "TEXT", bytes: "BLOB"}


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class ProjectionSQL(NamedTuple):
    """The statements of one projection's table."""

    create: tuple[str, ...]
    select_row: str
    select_all: str
    """The stored rows in order of their keys, whatever temporary table hides them."""
    create_aside: str
    """A temporary table of the same name, which hides the stored one."""
    fill_aside: str
    put: str
    delete: str


@cache
def sql_of(projection: Projection[Any]) -> ProjectionSQL:
    """Return a projection's statements."""
    hints = get_type_hints(projection.ROW)
    columns = [(name, hints[name]) for name in projection.ROW._fields]
    keys = projection.ROW._fields[: projection.KEY_COLUMNS]
    table = quoted(projection.table)
    names = ", ".join(quoted(name) for name, _ in columns)
    where = " AND ".join(f"{quoted(name)} = ?" for name in keys)
    single_integer = len(keys) == 1 and hints[keys[0]] is int
    definitions = [f"{quoted(name)} {_column_type(hint)}" for name, hint in columns]
    if single_integer:
        definitions[0] = f"{quoted(keys[0])} INTEGER PRIMARY KEY"
    else:
        definitions.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in keys)})")
    create = [f"CREATE TABLE {table} ({', '.join(definitions)}) STRICT{'' if single_integer else ', WITHOUT ROWID'}"]
    for index in projection.INDEXES:
        on = ", ".join(quoted(name) for name in index)
        create.append(f"CREATE INDEX {quoted('_'.join((projection.table, *index)))} ON {table} ({on})")
    return ProjectionSQL(
        create=tuple(create),
        select_row=f"SELECT {names} FROM {table} WHERE {where}",
        select_all=f"SELECT {names} FROM main.{table} ORDER BY {', '.join(quoted(name) for name in keys)}",
        create_aside=create[0].replace("CREATE TABLE", "CREATE TEMP TABLE", 1),
        fill_aside=f"INSERT INTO temp.{table} SELECT * FROM main.{table}",
        put=f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})",
        delete=f"DELETE FROM {table} WHERE {where}",
    )


def _column_type(hint: Any) -> str:
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    optional = NoneType in get_args(hint)
    return _TYPES[kinds[0]] + ("" if optional else " NOT NULL")
