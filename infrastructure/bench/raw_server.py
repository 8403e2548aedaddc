"""What PostgreSQL does without a journal: one row an event and nothing else, committed one by one."""

from __future__ import annotations

from random import Random
from statistics import median
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import orjson
import psycopg

from ..postgres.ddl import in_schema
from ..statements import statements
from . import workload
from .results import Sample

SQL: Final = statements("postgres/bench.sql")


def alone(connection: psycopg.Connection[Any], schema: str, *, count: int) -> Sample:
    """Measure one row, inserted and committed by a prepared statement in one round trip, in the calling thread."""
    connection.execute(in_schema(SQL.create_schema, schema).encode())
    connection.execute(in_schema(SQL.create, schema).encode())
    insert = in_schema(SQL.insert, schema).encode()
    chance = Random(0)
    times = []
    for row in [_row(chance, number) for number in range(count)]:
        began = perf_counter()
        connection.execute(insert, row, prepare=True)
        times.append(perf_counter() - began)
    return {"median": median(times) * 1e6}


def _row(chance: Random, number: int) -> tuple[UUID, int, str, bytes]:
    return UUID(int=chance.getrandbits(128)), 1, "bench:Message.Admitted", orjson.dumps(workload.saved_fields(number))
