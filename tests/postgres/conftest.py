"""What the tests of PostgreSQL share beside its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import Postgres, Server

from .logins import Logins


@pytest.fixture
def standby(own_postgres: Server) -> Iterator[Server]:
    """A server that is a standby until the end of the test, unless it is promoted before: without a primary, which needs none."""
    own_postgres.stop()
    (own_postgres.folder / "data" / "standby.signal").touch()
    own_postgres.start()
    yield own_postgres
    own_postgres.execute("SELECT pg_promote() WHERE pg_is_in_recovery()")


@pytest.fixture
def logins(postgres: Postgres, schema: str) -> Iterator[Logins]:
    """A journal with its three roles, and somebody who logs in for each."""
    made = Logins(postgres, schema)
    yield made
    made.close()
