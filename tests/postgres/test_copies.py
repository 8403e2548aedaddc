"""A journal that is another copy than before: a dump that was restored, or a replica that was promoted without its end."""

from __future__ import annotations

import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound
from tests.postgres_server import Postgres

GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))


def admit(journal: counterfoil.Journal, event_id: str) -> int:
    inbound = Inbound(connection="tg", conversation="c1", actor="ann", event_id=event_id, text="hello")
    position = journal.admit(inbound, GRANT).position
    assert position is not None
    return position


def fence(journal: counterfoil.Journal) -> int:
    with journal.lock("jobs").hold("k") as lease:
        return lease.fence


@pytest.mark.contract("JRN-01", "LCK-03")
@pytest.mark.parametrize("copied", ["timeline = timeline + 1", "system_identifier = 'another'", "schema_oid = 1"])
def test_a_copy_passes_over_what_may_have_been_seen(postgres: Postgres, schema: str, copied: str) -> None:
    """Positions and numbers of openings, which the copy may lack; the gap stands before the first event of the opening alone."""
    with counterfoil.open(postgres.url(schema)) as journal:
        seen, given = admit(journal, "1"), fence(journal)
    postgres.execute(f'UPDATE "{schema}".cf_head SET {copied}')

    with counterfoil.open(postgres.url(schema)) as journal:
        first, second = admit(journal, "2"), admit(journal, "3")
        assert fence(journal) > given
        assert journal.verify().agrees
    with counterfoil.open(postgres.url(schema)) as journal:
        after = admit(journal, "4")

    assert first > seen + 1_000_000
    assert second == first + 1
    assert after < second + 100
    assert [(1_003,)] == postgres.execute(f'SELECT opening_id FROM "{schema}".cf_head')
