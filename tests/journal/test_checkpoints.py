"""When the log of the journal is written back: by how long it is, whoever wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.infrastructure.sqlite import engine
from counterfoil.infrastructure.sqlite.creation import frames_in_log
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from tests.journal.conftest import Host

pytestmark = pytest.mark.sqlite_only("the log is a file of SQLite's")

FRAMES = 400


@pytest.mark.parametrize("openings", [1, 8])
def test_the_log_grows_no_longer_with_more_writers(host: Host, monkeypatch: pytest.MonkeyPatch, openings: int) -> None:
    """They write by turns, and each alone would not have had enough for a checkpoint for a long time."""
    monkeypatch.setattr(engine, "CHECKPOINT_FRAMES", FRAMES)
    cores = [host.open() for _ in range(openings)]
    for number in range(160):
        host.turn(cores[number % openings], f"e{number}", f"c{number}")

    assert FRAMES < frames_in_log(host.path) < 4 * FRAMES


def test_a_log_of_commits_without_events_is_written_back_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CHECKPOINT_FRAMES", FRAMES)
    core = host.open()
    for _ in range(1_500):
        host.admit(core, "e1")

    assert FRAMES <= frames_in_log(host.path) < 2 * FRAMES


def test_no_other_connection_writes_the_log_back(host: Host) -> None:
    """Only who commits has the append lock."""
    core = host.open()
    with core.engine.reading() as store:
        assert (0,) == store.connection.execute("PRAGMA wal_autocheckpoint").fetchone()
    reader = host.open(readonly=True)
    assert (0,) == sqlite_engine(reader)._writer.execute("PRAGMA wal_autocheckpoint").fetchone()
    assert (engine.CHECKPOINT_FRAMES,) == sqlite_engine(core)._writer.execute("PRAGMA wal_autocheckpoint").fetchone()
