"""Which versions of SQLite a journal is opened with."""

import sqlite3
from pathlib import Path

import pytest

from counterfoil.domain.errors import JournalRefused
from counterfoil.infrastructure.core import Core

pytestmark = pytest.mark.sqlite_only("it is about the library SQLite")

JOURNAL = "journal.sqlite"


def pretend(monkeypatch: pytest.MonkeyPatch, *version: int) -> None:
    """Have Python bring this version."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize("readonly", [False, True], ids=["writing", "readonly"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_an_older_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, readonly: bool) -> None:
    """One sentence names what is there and what is needed, and nothing is made or taken for damaged."""
    if there:
        Core(tmp_path / JOURNAL).close()
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    pretend(monkeypatch, 3, 36, 0)
    with pytest.raises(JournalRefused, match=r"^[^.]* SQLite 3\.36\.0, .* needs 3\.37 or newer; [^.\n]*$"):
        Core(tmp_path / JOURNAL, readonly=readonly)
    assert before == {each.name: each.read_bytes() for each in tmp_path.iterdir()}


def test_an_older_one_is_refused_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 3, 36, 0)
    with pytest.raises(JournalRefused, match=r"SQLite 3\.36\.0"):
        Core(":memory:")


@pytest.mark.parametrize("version", [(3, 37, 0), (3, 100, 1), (4, 0, 0)])
def test_a_newer_one_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]) -> None:
    """The number is compared as numbers."""
    pretend(monkeypatch, *version)
    Core(tmp_path / JOURNAL).close()
    assert (tmp_path / JOURNAL).exists()
