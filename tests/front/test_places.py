"""Where a journal lies: whatever it is called and wherever the process goes, it is one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

import counterfoil
from counterfoil.domain.identity import instant_of
from counterfoil.infrastructure.sqlite.verifying import verify_file
from tests.clocks import JournalClock

PERSON = counterfoil.Identity(tenant="acme", principal="ann", verified=True)
GRANT = counterfoil.Grant.of(PERSON, "helper")


def inbound(event_id: str) -> counterfoil.Inbound:
    return counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id=event_id, text="hello")


@pytest.mark.sqlite_only("files have links")
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


@pytest.mark.sqlite_only("a file is named from the folder of the process")
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


@pytest.mark.sqlite_only("the log is a file of SQLite's")
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


@pytest.mark.sqlite_only("PostgreSQL has no files beside the journal")
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
def test_an_identity_goes_by_the_wall_clock_and_not_by_the_times_of_events(journal_url: str, clock: JournalClock) -> None:
    """A clock that was an hour ahead for a moment leaves events in the future; nobody expires by them."""
    start = clock.now()
    short = PERSON.model_copy(update={"expires_at": instant_of(start + 60_000_000)})
    with counterfoil.open(journal_url, clock=clock) as journal:
        clock.set_forward("1h")
        journal.admit(inbound("1"), GRANT)
        clock.set_back("1h")

        assert "accepted" == journal.admit(inbound("2"), counterfoil.Grant.of(short, "helper")).status


@pytest.mark.sqlite_only("PostgreSQL has no columns without a type")
@pytest.mark.contract("JRN-10", "JRN-13")
def test_cells_of_another_kind_are_a_difference_and_no_error(tmp_path: Path) -> None:
    """STRICT tables refuse them, so somebody has written the file by other means."""
    path = tmp_path / "journal.sqlite"
    with counterfoil.open(path) as journal:
        journal.admit(inbound("1"), GRANT)
    schema = sqlite3.connect(path)
    schema.execute("PRAGMA writable_schema = ON")
    schema.execute("UPDATE sqlite_master SET sql = replace(sql, ' STRICT', '') WHERE name IN ('cf_payload', 'cf_unresolved_v1')")
    schema.commit()
    schema.close()
    garbler = sqlite3.connect(path)
    garbler.execute("UPDATE cf_payload SET salt = 7, body = 1.5")
    garbler.execute("UPDATE cf_unresolved_v1 SET version = 'x'")
    garbler.commit()
    garbler.close()

    found = {check.name: check.difference for check in verify_file(path).checks if check.difference}
    assert {"commitments", "projection unresolved"} <= found.keys()


@pytest.mark.contract("JRN-15")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_every_call_of_a_forked_child_says_so(journal_url: str) -> None:
    with counterfoil.open(journal_url) as journal:
        journal.admit(inbound("1"), GRANT)
        desk = journal.acting_as(PERSON)
        calls = {
            "admit": lambda: journal.admit(inbound("2").model_copy(update={"text": "/help"}), GRANT),
            "acting_as": lambda: journal.acting_as(PERSON),
            "diagnostics": journal.diagnostics,
            "limits": lambda: journal.limits,
            "position": journal.position,
            "unresolved": desk.unresolved,
            "verify": journal.verify,
            "close": journal.close,
        }
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            answers = []
            for name, call in calls.items():
                try:
                    call()
                    answers.append(name)
                except counterfoil.ForkedError:
                    continue
            os.write(writer, ",".join(answers).encode() or b"-")
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)

        assert b"-" == os.read(reader, 1_000), "these answered as if nothing had happened"
        os.close(reader)
