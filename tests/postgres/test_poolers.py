"""Connection poolers: one that gives each transaction another session is refused, one that keeps sessions is as good as none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from counterfoil.domain.errors import JournalRefused
from counterfoil.infrastructure.postgres.connecting import Purpose, connect
from counterfoil.infrastructure.postgres.naming import Address, parse
from tests.postgres.pooler import Mode, Pooler
from tests.postgres_server import Postgres

BUSY_US = 5_000_000


@contextmanager
def pooled(postgres: Postgres, mode: Mode, *, honest: bool) -> Iterator[Address]:
    """The address of a journal behind a pooler."""
    with closing(Pooler(postgres, mode, honest=honest)) as pooler:
        yield parse(postgres.url("counterfoil", port=pooler.port))


@pytest.mark.parametrize("honest", [True, False], ids=["names a backend", "makes one up"])
@pytest.mark.parametrize("mode", ["last used first", "in turn", "one"])
@pytest.mark.parametrize("purpose", ["writer", "reader", "sign", "watch"])
def test_pooler_of_transactions_is_refused(postgres: Postgres, mode: Mode, honest: bool, purpose: Purpose) -> None:
    """Even one that has nobody else to serve, and whatever it tells of its sessions."""
    with pooled(postgres, mode, honest=honest) as address:
        for _ in range(2):
            with pytest.raises(JournalRefused, match="pooler stands before the server"):
                connect(address, purpose=purpose, busy_us=BUSY_US)


@pytest.mark.parametrize("honest", [True, False], ids=["names a backend", "makes one up"])
def test_pooler_that_keeps_a_session_for_each_client_is_taken(postgres: Postgres, honest: bool) -> None:
    with pooled(postgres, "kept", honest=honest) as address:
        for _ in range(3):
            with closing(connect(address, purpose="writer", busy_us=BUSY_US)) as connection:
                assert ("counterfoil, pg_temp",) == connection.execute("SHOW search_path").fetchone()
