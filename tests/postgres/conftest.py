"""What the tests of PostgreSQL share beside its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import counterfoil
from tests.postgres.hosts import ROOM, Shop
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


@pytest.fixture
def shop(postgres: Postgres, schema: str) -> Iterator[Shop]:
    """A journal with a table of the host's; in the end nothing is staged, and it agrees with itself."""
    with counterfoil.open(postgres.url(schema), limits=ROOM) as journal:
        shop = Shop(postgres, schema, journal)
        yield shop
        assert shop.staged == 0
        assert journal.verify().agrees
