"""What other applications append through the recorder, as an operator sees it."""

from __future__ import annotations

from eventsourcing.persistence import StoredEvent

import counterfoil
from counterfoil.infrastructure.cli.timeline import line_of
from counterfoil.infrastructure.recorder import JournalRecorder

OPERATOR = counterfoil.Identity(tenant="acme", principal="olga", permissions=["journal:operate"], verified=True)


def test_a_foreign_event_under_a_name_of_ours_is_shown_as_foreign(journal_url: str) -> None:
    """Another application may name its topics as it likes."""
    with counterfoil.open(journal_url) as journal:
        JournalRecorder(journal.core).insert_events([StoredEvent("order-7", 1, "lock.granted", b"{}")])
        [entry] = journal.acting_as(OPERATOR, tenant=counterfoil.EVERY_TENANT).timeline().rows

    assert entry.foreign
    assert line_of(entry).endswith("An event that counterfoil does not know was appended to order-7.")
