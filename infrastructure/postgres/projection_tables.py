"""
The only SQL that is made in code: tables of projections and the functions that write their rows, from their declared columns, by
one quoting function.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from counterfoil.projections.projection import Projection

from .naming import quoted

_TYPES: Final = {int: "bigint", str: 'text COLLATE "C"', bytes: "bytea"}

_SETTINGS: Final = "fillfactor = 70, vacuum_truncate = false"
"""Rows change a few times before they go: a change finds room in its page, and VACUUM locks nobody out to cut pages off."""


def as_text(value: str) -> str:
    """Return a text as an SQL literal, whatever the server takes a backslash for."""
    return ("E'" if "\\" in value else "'") + value.replace("\\", "\\\\").replace("'", "''") + "'"


TAG: Final = "$function$"
"""What the bodies of functions stand between; no schema may have a name that holds it."""


class ProjectionSQL(NamedTuple):
    """The statements of one projection's table in one schema."""

    create: tuple[str, ...]
    """The table and its indexes."""
    writer: str
    """The function by which an append writes its rows."""
    select_row: str
    hide: tuple[str, ...]
    """A temporary copy of the table in the search path, under the same name."""
    select_rows: str
    """The rows whose first key column is one of a list of texts."""
    select_all: str
    """The stored rows in order of their keys."""
    put: str
    delete: str
    copy: str
    """Take rows in, in the binary format."""
    types: tuple[str, ...]
    """What they are made of, for that."""


@cache
def sql_of(projection: Projection[Any], schema: str) -> ProjectionSQL:
    """Return a projection's statements."""
    columns = _columns(projection)
    keys = projection.ROW._fields[: projection.KEY_COLUMNS]
    table = f"{quoted(schema)}.{quoted(projection.table)}"
    names = ", ".join(map(quoted, columns))
    key = ", ".join(map(quoted, keys))
    where = " AND ".join(f"{quoted(name)} = %s" for name in keys)
    definitions = [f"{quoted(name)} {kind}" for name, kind in columns.items()]
    definitions.append(f"PRIMARY KEY ({key})")
    create = [f"CREATE TABLE {table} ({', '.join(definitions)}) WITH ({_SETTINGS})"]
    for name, index in zip(index_names(projection), projection.INDEXES, strict=True):
        create.append(f"CREATE INDEX {quoted(name)} ON {table} ({', '.join(map(quoted, index))})")
    with_values = table.replace("%", "%%")
    return ProjectionSQL(
        create=tuple(create),
        writer=_writing_function(projection, schema),
        select_row=f"SELECT {names} FROM {with_values} WHERE {where}",
        hide=(
            f"CREATE TEMPORARY TABLE {quoted(projection.table)} ON COMMIT DROP AS SELECT * FROM {quoted(projection.table)}",
            f"ALTER TABLE pg_temp.{quoted(projection.table)} ADD PRIMARY KEY ({key})",
        ),
        select_rows=f"SELECT {names} FROM {with_values} WHERE {quoted(keys[0])} = ANY(%s::text[])",
        select_all=f"SELECT {names} FROM {table} ORDER BY {key}",
        put=f"INSERT INTO {with_values} ({names}) VALUES ({', '.join(['%s'] * len(columns))}) {_on_conflict(projection)}",
        delete=f"DELETE FROM {with_values} WHERE {where}",
        copy=f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)",
        types=tuple(kind.split()[0] for kind in columns.values()),
    )


def index_names(projection: Projection[Any]) -> list[str]:
    """Return the names of the indexes of a projection's table, beside that of its key."""
    return ["_".join((projection.table, *index)) for index in projection.INDEXES]


def entry(projection: Projection[Any], schema: str, *, behind: bool) -> str:
    """Return what enters a projection among those that a journal keeps: at the head, or with all of the history before it."""
    position = "0" if behind else "NULL"
    table = f"{quoted(schema)}.{quoted('cf_projection')}"
    return f"INSERT INTO {table} (name, version, position) VALUES ({as_text(projection.NAME)}, {projection.VERSION}, {position})"


def name_in_record(projection: Projection[Any]) -> str:
    """Return what a record calls the rows of a projection's table; the function `cf_write_` with this name writes them."""
    return projection.table.removeprefix("cf_")


def writer_name(projection: Projection[Any]) -> str:
    """Return the name of the function that writes a projection's rows."""
    return f"cf_write_{name_in_record(projection)}"


def dispatcher(tables: Iterable[str], schema: str) -> str:
    """
    Return the function that hands the rows of a record to the writing functions of their tables, of all projections that the
    journal has, whoever brought them: a call by a name that is made up each time would be planned each time.
    """
    calls = "\n".join(
        f"    IF $1 ? {as_text(name)} THEN\n"
        f"        PERFORM {quoted(schema)}.{quoted('cf_write_' + name)}($1 -> {as_text(name)}, $2, $3, $4, $5);\n"
        "    END IF;"
        for name in sorted(tables)
    )
    return f"""CREATE OR REPLACE FUNCTION {quoted(schema)}.cf_write(jsonb, bigint, bigint, bigint, bigint) RETURNS void
LANGUAGE plpgsql
AS {TAG}
BEGIN
{calls}
END
{TAG}"""


def _writing_function(projection: Projection[Any], schema: str) -> str:
    """
    Return the function that writes rows as a record holds them: `put` and `gone`, which holds keys.

    What is provisional in them is moved: positions above $2 by $3, times from $4 on by $5.
    """
    columns, keys = _columns(projection), projection.ROW._fields[: projection.KEY_COLUMNS]
    table = f"{quoted(schema)}.{quoted(projection.table)}"
    put = ", ".join(_moved(projection, "put", name) for name in columns)
    same = " AND ".join(f"stored.{quoted(name)} = {_moved(projection, 'gone', name)}" for name in keys)
    function = f"{quoted(schema)}.{quoted(writer_name(projection))}"
    return f"""CREATE OR REPLACE FUNCTION {function}(jsonb, bigint, bigint, bigint, bigint) RETURNS void
LANGUAGE plpgsql
AS {TAG}
BEGIN
    IF $1 ? 'put' THEN
        INSERT INTO {table} ({", ".join(map(quoted, columns))})
        SELECT {put}
        FROM jsonb_to_recordset($1 -> 'put') AS put ({_typed(columns, columns)})
        {_on_conflict(projection)};
    END IF;
    IF $1 ? 'gone' THEN
        DELETE FROM {table} AS stored
        USING jsonb_to_recordset($1 -> 'gone') AS gone ({_typed(columns, keys)})
        WHERE {same};
    END IF;
END
{TAG}"""


def _columns(projection: Projection[Any]) -> dict[str, str]:
    """Return the columns with their types."""
    hints = get_type_hints(projection.ROW)
    return {name: _column_type(hints[name]) for name in projection.ROW._fields}


def _column_type(hint: Any) -> str:
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    return _TYPES[kinds[0]] + ("" if NoneType in get_args(hint) else " NOT NULL")


def _typed(columns: dict[str, str], names: Iterable[str]) -> str:
    """Return columns as those of a set of records, which may all be absent."""
    return ", ".join(f"{quoted(name)} {columns[name].removesuffix(' NOT NULL')}" for name in names)


def _moved(projection: Projection[Any], row: str, name: str) -> str:
    """Return a column of a record, moved from where it was decided to where it lands."""
    column = f"{row}.{quoted(name)}"
    if name in projection.POSITIONS:
        return f"CASE WHEN {column} > $2 THEN {column} + $3 ELSE {column} END"
    if name in projection.TIMES:
        return f"CASE WHEN {column} >= $4 THEN {column} + $5 ELSE {column} END"
    return column


def _on_conflict(projection: Projection[Any]) -> str:
    """Return what puts a row in the place of the one with its key."""
    keys, rest = projection.ROW._fields[: projection.KEY_COLUMNS], projection.ROW._fields[projection.KEY_COLUMNS :]
    new = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
    return f"ON CONFLICT ({', '.join(map(quoted, keys))}) DO UPDATE SET {new}"
