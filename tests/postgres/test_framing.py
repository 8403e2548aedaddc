"""What the database hashes by itself is hashed as the journal does it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counterfoil
from counterfoil.domain.framing import frame, keyed
from tests.postgres_server import Postgres
from tests.rows import rows

VALUES = st.lists(st.none() | st.binary(max_size=600), min_size=1, max_size=12)


@pytest.mark.contract("JRN-13")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=VALUES, key=st.binary(min_size=32, max_size=32))
def test_frames_and_keyed_hashes_are_the_same(journal_of_once: str, values: list[bytes | None], key: bytes) -> None:
    ((framed, hashed),) = rows(
        journal_of_once, "SELECT cf_frame(VARIADIC ?::bytea[]), cf_keyed(?, cf_frame(VARIADIC ?::bytea[]))", values, key, values
    )

    assert frame(*values) == framed
    assert keyed(key, *values) == hashed


@pytest.fixture
def journal_of_once(postgres: Postgres, schema: str) -> str:
    counterfoil.open(postgres.url(schema)).__enter__().close()
    return postgres.url(schema)
