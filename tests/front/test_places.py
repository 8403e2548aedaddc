"""Where a journal lies: whatever it is called and wherever the process goes, it is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import counterfoil
from counterfoil.domain.identity import instant_of
from counterfoil.testing import MovableClock

PERSON = counterfoil.Identity(tenant="acme", principal="ann", verified=True)
GRANT = counterfoil.Grant.of(PERSON, "helper")


def inbound(event_id: str) -> counterfoil.Inbound:
    return counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id=event_id, text="hello")


@pytest.mark.contract("JRN-09", "LCK-03", "LCK-08")
def test_a_journal_behind_a_link_is_the_same_journal(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    real, link = tmp_path / "a" / "journal.sqlite", tmp_path / "b" / "link.sqlite"
    link.symlink_to(real)
    with counterfoil.open(real) as one, counterfoil.open(link) as other:
        one.admit(inbound("1"), GRANT)
        other.admit(inbound("2"), GRANT)

        assert one.admit(inbound("2"), GRANT).duplicate
        assert other.core.is_live(1)
    assert [link.name] == [each.name for each in (tmp_path / "b").iterdir()]


@pytest.mark.contract("JRN-01", "ADM-07")
def test_a_process_may_go_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with counterfoil.open("journal.sqlite") as journal:
            journal.admit(inbound(name), GRANT)
    monkeypatch.chdir(tmp_path / "one")
    with counterfoil.open("journal.sqlite") as journal:
        os.chdir(tmp_path / "two")

        assert journal.admit(inbound("one"), GRANT).duplicate
        assert ["one"] == [
            entry.event_id for entry in journal.acting_as(PERSON).timeline().rows if entry.type == "operation.admitted"
        ]


@pytest.mark.contract("JRN-10")
def test_a_journal_whose_log_was_deleted_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with counterfoil.open(path) as journal:
        journal.admit(inbound("1"), GRANT)
        one_page = path.read_bytes()

        assert 4096 == len(one_page), "all else is in the log"
    path.write_bytes(one_page)

    with pytest.raises(counterfoil.JournalDamaged, match="a journal was here"):
        counterfoil.open(path)


@pytest.mark.contract("JRN-10")
@pytest.mark.parametrize(("name", "text"), [("epoch", "9" * 19), ("epoch", "x"), ("head", "9" * 20 + "\n"), ("head", "x" * 21)])
def test_what_is_garbled_beside_a_journal_is_refused_at_opening(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "journal.sqlite"
    with counterfoil.open(path) as journal:
        journal.admit(inbound("1"), GRANT)
    Path(f"{path}-{name}").write_text(text)

    with pytest.raises(counterfoil.JournalDamaged, match=f"journal.sqlite-{name}"):
        counterfoil.open(path)


@pytest.mark.contract("IDN-04", "JRN-06")
def test_an_identity_goes_by_the_wall_clock_and_not_by_the_times_of_events(tmp_path: Path) -> None:
    """A clock that was an hour ahead for a moment leaves events in the future; nobody expires by them."""
    clock = MovableClock()
    start = clock.now()
    short = PERSON.model_copy(update={"expires_at": instant_of(start + 60_000_000)})
    with counterfoil.open(tmp_path / "journal.sqlite", clock=clock) as journal:
        clock.set_forward("1h")
        journal.admit(inbound("1"), GRANT)
        clock.set_back("1h")

        assert "accepted" == journal.admit(inbound("2"), counterfoil.Grant.of(short, "helper")).status
