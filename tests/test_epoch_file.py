"""The highest epoch beside a journal."""

import os
import stat
from pathlib import Path

import pytest

from counterfoil.domain.errors import JournalDamaged, JournalUnavailable
from counterfoil.infrastructure.sqlite.descriptor import side_file
from counterfoil.infrastructure.sqlite.kept_aside import EpochFile, EpochStore, MemoryEpoch

pytestmark = pytest.mark.sqlite_only("it is a file beside the journal")


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    """The path of the epoch file of a journal that exists."""
    journal = tmp_path / "journal.sqlite"
    journal.touch()
    return side_file(journal, "epoch")


@pytest.mark.contract("LCK-03")
def test_epoch_is_kept(epoch: Path) -> None:
    """What was raised is read by the next opening, as decimal text."""
    assert 0 == EpochFile(epoch).read()

    EpochFile(epoch).raise_to(1_767_225_600_000)

    assert 1_767_225_600_000 == EpochFile(epoch).read()
    assert "1767225600000\n" == epoch.read_text("ascii")
    assert ["journal.sqlite", "journal.sqlite-epoch"] == sorted(each.name for each in epoch.parent.iterdir())


@pytest.mark.contract("LCK-03")
def test_epoch_is_never_lowered(epoch: Path) -> None:
    """A clock that was set back, or an older journal, lowers nothing."""
    stores: tuple[EpochStore, ...] = (EpochFile(epoch), MemoryEpoch())
    for store in stores:
        store.raise_to(5)
        store.raise_to(3)
        store.raise_to(5)

        assert 5 == store.read()


@pytest.mark.parametrize("text", ["", "x", "-1", "1 2", "\u0661", "1" * 20, "1\n\n"])
def test_epoch_that_is_none_is_refused(epoch: Path, text: str) -> None:
    """Garbage is named, and neither read as nought nor written over."""
    epoch.write_text(text, "utf-8")
    for call in (EpochFile(epoch).read, lambda: EpochFile(epoch).raise_to(9)):
        with pytest.raises(JournalDamaged, match=r"journal\.sqlite-epoch does not hold an epoch"):
            call()

    assert text == epoch.read_text("utf-8")


@pytest.mark.contract("LCK-03")
def test_epoch_survives_a_crash_in_the_middle(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the new file stands complete the old one does, and what was left over is no hindrance."""
    EpochFile(epoch).raise_to(5)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
        with pytest.raises(JournalUnavailable, match=r"journal\.sqlite-epoch"):
            EpochFile(epoch).raise_to(6)

    assert 5 == EpochFile(epoch).read()

    EpochFile(epoch).raise_to(7)

    assert 7 == EpochFile(epoch).read()


def test_epoch_file_is_as_open_as_the_journal(epoch: Path) -> None:
    """Whoever may use the journal may raise the epoch."""
    epoch.with_name("journal.sqlite").chmod(0o600)
    EpochFile(epoch).raise_to(1)

    assert 0o600 == stat.S_IMODE(epoch.stat().st_mode)
