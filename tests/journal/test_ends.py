"""What is looked at in a journal when it is opened, wherever it lies: its format, and the end of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.errors import FormatUnknown, JournalDamaged, ReadOnly
from counterfoil.infrastructure.core import Core
from tests.copies import verify_at
from tests.rows import change, rows

if TYPE_CHECKING:
    from tests.journal.conftest import Host


@pytest.mark.contract("JRN-08", "JRN-10")
def test_a_newer_format_is_refused_as_a_whole(busy_journal: str) -> None:
    change(busy_journal, "UPDATE cf_head SET format = 2")
    with pytest.raises(FormatUnknown, match="is in format 2, and this release knows format 1"):
        Core(busy_journal)
    with pytest.raises(FormatUnknown):
        Core(busy_journal, readonly=True)


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE cf_event SET digest = zeroblob(32) WHERE position = {}", "its head is at|the digest at position"),
        ("UPDATE cf_event SET recorded_at = recorded_at + 1 WHERE position = {} - 10", "the digest at position"),
        ("DELETE FROM cf_event WHERE position = {} - 20", "the digest at position"),
        ("DELETE FROM cf_head", "has no head"),
    ],
)
def test_an_end_that_does_not_agree_is_refused(busy_journal: str, statement: str, words: str) -> None:
    """The newest 64 digests, and the head against the last events."""
    change(busy_journal, statement.format(verify_at(busy_journal).position))
    for readonly in (True, False):
        with pytest.raises(JournalDamaged, match=words):
            Core(busy_journal, readonly=readonly)


@pytest.mark.sqlite_only("on PostgreSQL the head is the newest event, and nothing beside the history says so")
@pytest.mark.contract("JRN-10")
def test_a_cut_tail_is_refused(busy_journal: str) -> None:
    change(busy_journal, f"DELETE FROM cf_event WHERE position = {verify_at(busy_journal).position}")
    for readonly in (True, False):
        with pytest.raises(JournalDamaged, match="its last event is not"):
            Core(busy_journal, readonly=readonly)


def test_a_journal_that_is_read_refuses_commands(busy_journal: str, host: Host) -> None:
    """And stays as it is."""
    before = rows(busy_journal, "SELECT * FROM cf_head"), verify_at(busy_journal).position
    core = host.open(readonly=True)
    with pytest.raises(ReadOnly):
        host.run(core, host.message("more"))
    core.close()
    assert before == (rows(busy_journal, "SELECT * FROM cf_head"), verify_at(busy_journal).position)
