"""A journal is created by opening it, unless that is turned off."""

from __future__ import annotations

from pathlib import Path

import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound, JournalRefused, NotAJournal
from tests.rows import is_there

GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))


def inbound(event_id: str) -> Inbound:
    return Inbound(connection="tg", conversation="c", actor="ann", event_id=event_id, text="hello")


@pytest.mark.contract("JRN-11")
def test_creation_can_be_off(journal_url: str) -> None:
    """What is not there is refused, and still not there; what is there is opened as ever."""
    with pytest.raises(JournalRefused, match="does not exist, and is not to be created here"):
        counterfoil.open(journal_url, create=False).__enter__()
    assert not is_there(journal_url)
    counterfoil.open(journal_url).__enter__().close()
    with counterfoil.open(journal_url, create=False) as journal:
        assert "accepted" == journal.admit(inbound("1"), GRANT).status
    with counterfoil.open(journal_url, create=False, readonly=True) as journal:
        assert journal.position()


@pytest.mark.contract("JRN-11")
async def test_creation_can_be_off_beside_a_loop(journal_url: str) -> None:
    with pytest.raises(JournalRefused, match="does not exist, and is not to be created here"):
        await counterfoil.open_async(journal_url, create=False).__aenter__()
    assert not is_there(journal_url)
    async with counterfoil.open_async(journal_url):
        pass
    async with counterfoil.open_async(journal_url, create=False) as journal:
        assert "accepted" == (await journal.admit(inbound("1"), GRANT)).status


@pytest.mark.contract("JRN-11")
@pytest.mark.sqlite_only("it is about files")
def test_a_file_without_a_journal_stays_as_it_is(tmp_path: Path) -> None:
    """Also one of length nought, which another call would make one of; and nothing is left beside it."""
    path = tmp_path / "j.sqlite"
    path.touch()
    with pytest.raises(NotAJournal, match="is empty, and no journal is to be created here"):
        counterfoil.open(path, create=False).__enter__()
    assert [path] == list(tmp_path.iterdir())
    assert 0 == path.stat().st_size
    with pytest.raises(JournalRefused, match="a journal in memory is always new"):
        counterfoil.open(":memory:", create=False).__enter__()
