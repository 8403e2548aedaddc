"""A journal in a schema of whatever name, in which nothing is taken for something else."""

from __future__ import annotations

import pytest

from counterfoil.domain.errors import InvalidValue
from counterfoil.infrastructure.postgres import ddl
from counterfoil.infrastructure.postgres.appending import staging
from counterfoil.infrastructure.postgres.projection_tables import as_text, sql_of
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.queues import QueueRow, Queues
from tests.postgres.sides import Journal, happen
from tests.postgres_server import Postgres


@pytest.mark.parametrize(
    "name",
    ["UPPER case", "dot.ted", 'q"uo"te', "it's", "back\\slash", "%s %% %(x)s", "{schema} {name} {", "ünï", "$$ $f$", "select"],
)
def test_any_name_will_do(postgres: Postgres, name: str) -> None:
    try:
        journal = Journal(postgres, name)
        side = journal.side()
        unit = side.unit()
        position = happen(unit, "a")
        unit.caches.rows["queues"].put((position,), QueueRow(position, "op-1", "rt-1", position, 1, unit.now, None, None))
        unit.changes.rings.append((2, "lk-1"))
        unit.changes.actions.append(("remember_key", ("lk-1", "key")))
        assert side.append(unit).status == "appended"
        side.look()
        unit = side.unit()
        happen(unit, "b")
        with postgres.connect(autocommit=False) as host:
            host.execute(staging(name).encode(), (side.record(unit).decode(),))
        sql = sql_of(Queues(), name)
        row = side.connection.execute(sql.select_row.encode(), (1,)).fetchone()
        assert row is not None
        side.connection.execute(sql.put.encode(), (*row[:2], "rt-2", *row[3:]))
        found = side.connection.execute(sql.select_all.encode(), prepare=False).fetchall()
        side.connection.execute(sql.delete.encode(), (1,))

        assert [event.originator_id for event in journal.events()] == ["a", "b"]
        assert [each[2] for each in found] == ["rt-2"]
        assert journal.rows("SELECT count(*) FROM {}.cf_queues_v1") == [(0,)]
        journal.close()
    finally:
        postgres.drop(name)


def test_a_name_that_would_end_the_body_of_a_function_is_refused() -> None:
    with pytest.raises(InvalidValue):
        ddl.create("a$function$b")


@pytest.mark.parametrize("value", ["", "a", "'", "''", "\\", "\\'", "\\\\", "E'", "%s", "ü\n"])
@pytest.mark.parametrize("standard", ["on", "off"])
def test_a_text_is_the_literal_that_stands_for_it(postgres: Postgres, value: str, standard: str) -> None:
    with postgres.connect(options=f"-c standard_conforming_strings={standard}") as connection:
        assert connection.execute(f"SELECT {as_text(value)}".encode()).fetchone() == (value,)


def test_every_column_is_of_the_kind_that_was_declared(postgres: Postgres, schema: str) -> None:
    journal = Journal(postgres, schema)
    columns = journal.rows(
        "SELECT table_name, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
        " WHERE table_schema = %s AND table_name LIKE 'cf_%%_v_' ORDER BY table_name, ordinal_position",
        schema,
    )

    assert {table for table, *_ in columns} == {projection.table for projection in BUILT_IN}
    for projection in BUILT_IN:
        assert [name for table, name, *_ in columns if table == projection.table] == list(projection.ROW._fields)
    assert {(kind, collation) for _, _, kind, _, collation in columns} == {("bigint", None), ("text", "C"), ("bytea", None)}
    assert ("cf_queues_v1", "grant_version", "bigint", "YES", None) in columns
    assert ("cf_queues_v1", "place", "bigint", "NO", None) in columns


def test_all_text_is_ordered_by_its_bytes(postgres: Postgres, schema: str) -> None:
    """So that every server, whatever its language, and every engine orders alike."""
    journal = Journal(postgres, schema)

    assert journal.rows(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = %s AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'",
        schema,
    ) == []  # fmt: skip
