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


def alone(connection: psycopg.Connection[Any], conninfo: str, schema: str, *, count: int, autocommit: bool) -> Sample:
    """
    Measure one row, inserted by a prepared statement in the calling thread.

    It is followed by a COMMIT, before which psycopg sends a BEGIN, or is committed by itself, with one round trip for all.
    """
    connection.execute(in_schema(SQL.create_schema, schema).encode())
    connection.execute(in_schema(SQL.create, schema).encode())
    insert = in_schema(SQL.insert, schema).encode()
    chance = Random(0)
    times = []
    with psycopg.connect(conninfo, autocommit=autocommit) as writer:
        for row in [_row(chance, number) for number in range(count)]:
            began = perf_counter()
            writer.execute(insert, row, prepare=True)
            if not autocommit:
                writer.commit()
            times.append(perf_counter() - began)
    return {"median": median(times) * 1e6}


def _row(chance: Random, number: int) -> tuple[UUID, int, str, bytes]:
    return UUID(int=chance.getrandbits(128)), 1, "bench:Message.Admitted", orjson.dumps(workload.saved_fields(number))
