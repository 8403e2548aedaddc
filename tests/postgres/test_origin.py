"""Which journal a connection has reached: dumps, promotions and ordinary roles."""

from __future__ import annotations

from contextlib import closing

import pytest

from counterfoil.domain.errors import NotAJournal
from counterfoil.infrastructure.postgres.connecting import connect
from counterfoil.infrastructure.postgres.naming import parse
from counterfoil.infrastructure.postgres.origin import Origin, where
from tests.postgres_server import Postgres, Server

BUSY_US = 5_000_000


def origin(postgres: Postgres, schema: str) -> Origin:
    """Where a reader finds a schema."""
    address = parse(postgres.url(schema))
    with closing(connect(address, purpose="reader", busy_us=BUSY_US)) as connection:
        return where(connection, address)


def test_schema_of_the_same_name_is_another(postgres: Postgres, schema: str) -> None:
    """As after a dump was restored; all else of it stays."""
    postgres.execute(f"CREATE SCHEMA {schema}")
    before = origin(postgres, schema)
    assert before == origin(postgres, schema)
    postgres.drop(schema)
    postgres.execute(f"CREATE SCHEMA {schema}")
    after = origin(postgres, schema)

    assert before[:2] == after[:2]
    assert before.schema_oid != after.schema_oid
    assert before.system_identifier == postgres.execute("SELECT system_identifier::text FROM pg_control_system()")[0][0]


def test_absent_schema_is_no_journal(postgres: Postgres, schema: str) -> None:
    with pytest.raises(NotAJournal, match="there is no such schema"):
        origin(postgres, schema)


def test_ordinary_role_may_know(postgres: Postgres, schema: str) -> None:
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE ROLE {schema}")
    address = parse(postgres.url(schema))
    try:
        with closing(connect(address, purpose="writer", busy_us=BUSY_US)) as connection:
            connection.execute(f"SET ROLE {schema}".encode(), prepare=False)

            assert origin(postgres, schema) == where(connection, address)
    finally:
        postgres.execute(f"DROP ROLE {schema}")


def test_role_that_may_not_know_does_without(postgres: Postgres, schema: str) -> None:
    """As with some services; the connection is as good as before."""
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE ROLE {schema}")
    address = parse(postgres.url(schema))
    for function in ("pg_control_system()", "pg_current_wal_insert_lsn()"):
        postgres.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    try:
        with closing(connect(address, purpose="writer", busy_us=BUSY_US)) as connection:
            connection.execute(f"SET ROLE {schema}".encode(), prepare=False)

            assert Origin(None, None, origin(postgres, schema).schema_oid) == where(connection, address)
    finally:
        for function in ("pg_control_system()", "pg_current_wal_insert_lsn()"):
            postgres.execute(f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")
        postgres.execute(f"DROP ROLE {schema}")


def test_promotion_begins_another_timeline(standby: Server) -> None:
    """A standby does not tell of its own; as a primary it does, before its first checkpoint."""
    name = standby.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'public'")[0][0]
    before = origin(standby, name)
    assert before.timeline is None

    timeline = standby.execute("SELECT timeline_id FROM pg_control_checkpoint()")[0][0]
    standby.execute("SELECT pg_promote()")
    after = origin(standby, name)

    assert (before.system_identifier, before.schema_oid) == (after.system_identifier, after.schema_oid)
    assert after.timeline == timeline + 1
