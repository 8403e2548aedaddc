"""verify, and a verifier that knows the description of the format and nothing else."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.errors import InvalidValue, JournalDamaged
from counterfoil.domain.framing import GENESIS
from counterfoil.infrastructure.commands.erasure import EraseScope, EraseSubject
from counterfoil.infrastructure.commands.recording import RecordForeign
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.sqlite.verifying import verify_file
from counterfoil.infrastructure.verification import Check, Verification, verify
from counterfoil.projections.catalogue import BUILT_IN
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from tests.journal.conftest import Host

VERIFIER = Path(__file__).parents[1] / "independent_verifier.py"


def independently(path: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-I", VERIFIER, path], capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.strip()


def tampered(path: Path, *statements: str) -> Path:
    """A copy of a journal in which somebody has worked with a tool of SQLite."""
    copy = path.with_name("tampered.sqlite")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy, isolation_level=None)) as target:
        source.backup(target)
        for statement in statements:
            target.execute(statement)
    return copy


def found(verification: Verification, name: str) -> Check:
    return next(check for check in verification.checks if check.name == name)


@pytest.mark.contract("JRN-13", "PRJ-02")
def test_a_journal_agrees_with_its_events(busy_journal: Path) -> None:
    """Every check says what it looked at, and how much."""
    verification = verify_file(busy_journal)

    assert verification.agrees, verification
    count = verification.position
    assert {("chain", count, "events"), ("event types", count, "events"), ("commitments", 23, "payloads")} <= {
        (check.name, check.checked, check.unit) for check in verification.checks
    }
    assert [f"projection {projection.NAME}" for projection in BUILT_IN] == [
        check.name for check in verification.checks if check.name.startswith("projection")
    ]
    assert (0, "the chain agrees") == independently(busy_journal)


def test_a_verification_of_an_open_journal_is_of_one_moment(core: Core, host: Host) -> None:
    """While others go on, and in memory too."""
    host.make_busy(core)

    def check(store: object) -> Verification:
        if sqlite_engine(core).path is not None:
            host.turn(core, "meanwhile")
        return verify(store)  # type: ignore[arg-type]

    before = host.position(core)
    verification = core.read(check)
    assert verification.agrees, verification
    assert before == verification.position


def test_an_empty_journal_agrees(host: Host) -> None:
    host.open()
    assert verify_file(host.path).agrees
    assert (0, "the chain agrees") == independently(host.path)


def test_progress_is_told_with_what_is_done_and_what_there_is(busy_journal: Path) -> None:
    told: list[tuple[str, int, int]] = []
    verification = verify_file(busy_journal, lambda *words: told.append(words))

    assert ("history", verification.position, verification.position) in told
    assert all(0 <= done <= total for _, done, total in told)


SWAP = (
    "UPDATE cf_event SET position = -1 WHERE position = 7",
    "UPDATE cf_event SET position = 7 WHERE position = 8",
    "UPDATE cf_event SET position = 8 WHERE position = -1",
)
INSERT = (
    "UPDATE cf_event SET position = -position - 1 WHERE position > 6",
    "UPDATE cf_event SET position = -position WHERE position < 0",
    "INSERT INTO cf_event SELECT 7, recorded_at + 1, 'x', 1, 'topic', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
    "NULL, x'7b7d', digest FROM cf_event WHERE position = 6",
)


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize(
    ("statements", "position"),
    [
        pytest.param(("UPDATE cf_event SET state = CAST(state || ' ' AS BLOB) WHERE position = 7",), 7, id="edited state"),
        pytest.param(("UPDATE cf_event SET recorded_at = recorded_at + 1 WHERE position = 7",), 7, id="edited time"),
        pytest.param(("UPDATE cf_event SET connection = 'other' WHERE position = 3",), 3, id="edited header"),
        pytest.param(("UPDATE cf_event SET actor_kind = 'operator' WHERE position = 7",), 7, id="edited actor kind"),
        pytest.param(("UPDATE cf_event SET digest = zeroblob(32) WHERE position = 7",), 7, id="edited digest"),
        pytest.param(("DELETE FROM cf_event WHERE position = 7",), 7, id="removed"),
        pytest.param(("DELETE FROM cf_event WHERE position = 1",), 1, id="removed first"),
        pytest.param(SWAP, 7, id="reordered"),
        pytest.param(INSERT, 7, id="inserted"),
    ],
)
def test_the_first_position_that_does_not_agree_is_named(busy_journal: Path, statements: tuple[str, ...], position: int) -> None:
    copy = tampered(busy_journal, *statements)

    chain = found(verify_file(copy), "chain")
    assert chain.difference is not None
    assert f"at position {position} " in chain.difference
    status, _ = independently(copy)
    assert 3 == status


# Gaps.

AHEAD = 10
"""How many positions are passed over."""


def passed_over(path: Path, position: int, *statements: str, chained: bool = True) -> Path:
    """A copy in which the events from a position on stand some positions further on; with `chained` in a chain that agrees."""
    copy = tampered(
        path,
        *statements,
        f"UPDATE cf_event SET position = -(position + {AHEAD}) WHERE position >= {position}",
        "UPDATE cf_event SET position = -position WHERE position < 0",
        f"UPDATE cf_head SET position = position + {AHEAD}",
    )
    if chained:
        with closing(sqlite3.connect(copy)) as connection, connection:
            digest = GENESIS
            for row in connection.execute(f"SELECT {', '.join(EventRow._fields)} FROM cf_event ORDER BY position").fetchall():
                digest = EventRow(*row).chained(digest)
                connection.execute("UPDATE cf_event SET digest = ? WHERE position = ?", (digest, row[0]))
            connection.execute("UPDATE cf_head SET digest = ?", (digest,))
    return copy


@pytest.fixture
def mixed_journal(host: Host) -> dict[str, int]:
    """A closed journal of two openings and a recorder without one; the position of an event of each kind."""
    with closing(host.open()) as core:
        host.turn(core, "e1")
    with closing(host.open()) as core:
        (recorded,) = host.run(core, RecordForeign([("theirs", 1, "opening.started", b"")]))
        host.turn(core, "e2")
        types = host.types(core)
    assert 2 == types.count("opening.epoch_raised")
    second = len(types) - types[::-1].index("opening.started")
    assert second == recorded + 1
    return {
        "the first opening": 1,
        "the second opening": second,
        "the recorder": recorded,
        "an epoch": second + 1,
        "an admission": second + 2,
        "the last event": len(types),
    }


@pytest.mark.contract("JRN-01", "JRN-13")
@pytest.mark.parametrize("kind", ["the first opening", "the second opening", "the recorder"])
def test_positions_may_be_passed_over_before_an_opening_and_a_recorder(
    host: Host, mixed_journal: dict[str, int], kind: str
) -> None:
    """And the chain goes on over the gap: without the digests that belong to the new places it does not agree."""
    position = mixed_journal[kind]
    copy = passed_over(host.path, position)
    assert found(verify_file(copy), "chain").difference is None
    assert (0, "the chain agrees") == independently(copy)

    copy.unlink()
    copy = passed_over(host.path, position, chained=False)
    difference = f"the digest at position {position + AHEAD} does not agree with the event and the digest before"
    assert difference == found(verify_file(copy), "chain").difference
    assert (3, f"position {position + AHEAD} does not agree") == independently(copy)


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize("kind", ["an epoch", "an admission", "the last event"])
def test_positions_passed_over_elsewhere_are_found(host: Host, mixed_journal: dict[str, int], kind: str) -> None:
    """Also in a chain whose digests agree."""
    position = mixed_journal[kind]
    copy = passed_over(host.path, position)
    difference = f"the event at position {position} is missing; the next is at position {position + AHEAD}"
    assert difference == found(verify_file(copy), "chain").difference
    assert (3, f"position {position + AHEAD} does not follow position {position - 1}") == independently(copy)


@pytest.mark.contract("JRN-13")
def test_an_event_of_no_type_inside_an_opening_is_no_recorder_s(host: Host, mixed_journal: dict[str, int]) -> None:
    position = mixed_journal["the recorder"]
    copy = passed_over(host.path, position, f"UPDATE cf_event SET opening_id = 1 WHERE position = {position}")
    difference = found(verify_file(copy), "chain").difference
    assert difference is not None
    assert difference.startswith(f"the event at position {position} is missing")
    status, _ = independently(copy)
    assert 3 == status


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize("kind", ["the second opening", "the recorder"])
def test_what_was_removed_before_an_opening_is_no_gap(host: Host, mixed_journal: dict[str, int], kind: str) -> None:
    """The digest after it tells."""
    position = mixed_journal[kind]
    copy = tampered(host.path, f"DELETE FROM cf_event WHERE position = {position - 1}")
    difference = found(verify_file(copy), "chain").difference
    assert f"the digest at position {position} does not agree with the event and the digest before" == difference
    assert (3, f"position {position} does not agree") == independently(copy)


@pytest.mark.contract("JRN-13")
def test_a_cut_tail_and_a_moved_head_are_found(busy_journal: Path) -> None:
    """The head stands beside the history; only whoever cuts both leaves a shorter chain that agrees."""
    last = verify_file(busy_journal).position
    for statement in (
        f"DELETE FROM cf_event WHERE position = {last}",
        "UPDATE cf_head SET digest = zeroblob(32)",
        "UPDATE cf_head SET recorded_at = recorded_at + 1",
    ):
        copy = tampered(busy_journal, statement)
        assert found(verify_file(copy), "chain").difference is not None, statement
        copy.unlink()
    copy = tampered(busy_journal, f"DELETE FROM cf_event WHERE position = {last}")
    assert (3, "the head does not agree") == independently(copy)
    with pytest.raises(JournalDamaged):
        Core(copy, readonly=True)


@pytest.mark.contract("JRN-07", "JRN-13")
@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        pytest.param("UPDATE cf_payload SET body = x'00'", "is not the one that its", id="edited text"),
        pytest.param("UPDATE cf_payload SET salt = zeroblob(32)", "is not the one that its", id="edited salt"),
        pytest.param("UPDATE cf_payload SET position = 1 WHERE position = {}", "commits to none", id="moved"),
        pytest.param("UPDATE cf_payload SET position = 99999 WHERE position = {}", "where no event is", id="left over"),
    ],
)
def test_payloads_are_compared_with_their_commitments(busy_journal: Path, statement: str, sentence: str) -> None:
    with closing(sqlite3.connect(busy_journal)) as connection:
        first = connection.execute("SELECT min(position) FROM cf_payload").fetchone()[0]
    check = found(verify_file(tampered(busy_journal, statement.format(first))), "commitments")
    assert check.difference is not None
    assert sentence in check.difference


@pytest.mark.contract("PRN-05")
@pytest.mark.parametrize(("keep", "kept"), [(None, 0), (7, 2)])
def test_inbound_texts_go_with_the_end_of_their_operation(host: Host, keep: int | None, kept: int) -> None:
    """Unless the host keeps them. Replies stay either way, and so does the text of what has not ended."""
    core = host.open(keep_inbound=keep)
    host.turn(core, "one")
    host.turn(core, "two")
    host.admit(core, "three")

    verification = core.read(verify)
    assert kept == found(verification, "inbound texts of ended operations").checked
    assert 3 + kept == found(verification, "commitments").checked
    assert verification.agrees


@pytest.mark.contract("PRJ-02")
@pytest.mark.parametrize(
    ("statement", "name", "sentence"),
    [
        ("UPDATE cf_unresolved_v1 SET state = 'accepted'", "unresolved", "differs in state"),
        ("DELETE FROM cf_queues_v1 WHERE grant_version IS NULL", "queues", "is missing from the table"),
        ("INSERT INTO cf_epochs_v1 VALUES (99999, 1, 1)", "epochs", "is not there when it is folded anew"),
        ("UPDATE cf_cursors_v1 SET connection = 'aa'", "cursors", "connection aa is not there"),
        ("UPDATE cf_bindings_v1 SET generation = 1, leaf = 'l'", "bindings", "differs in generation, leaf"),
        ("UPDATE cf_leases_v1 SET held = 1 - held", "leases", "differs in held"),
        ("UPDATE cf_statistics_v1 SET events = events + 1 WHERE measure = 'delivered'", "statistics", "differs in events"),
    ],
)
def test_each_projection_is_compared_with_one_folded_anew(busy_journal: Path, statement: str, name: str, sentence: str) -> None:
    """And the others agree still."""
    verification = verify_file(tampered(busy_journal, statement))

    differing = [check for check in verification.checks if not check.agrees]
    assert [f"projection {name}"] == [check.name for check in differing]
    assert differing[0].difference is not None
    assert sentence in differing[0].difference


def test_the_first_key_that_differs_is_named(busy_journal: Path) -> None:
    with closing(sqlite3.connect(busy_journal)) as connection:
        keys = [row[0] for row in connection.execute("SELECT operation FROM cf_unresolved_v1 ORDER BY 1")]
    copy = tampered(busy_journal, f"UPDATE cf_unresolved_v1 SET attempts = 9 WHERE operation >= {keys[1]}")
    difference = found(verify_file(copy), "projection unresolved").difference
    assert f"the row with operation {keys[1]} differs in attempts when it is folded anew" == difference


def test_a_projection_that_lags_is_compared_up_to_where_it_is_folded(busy_journal: Path) -> None:
    """A writer that folds nothing leaves nothing wrong."""
    copy = tampered(busy_journal)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE cf_projection SET position = 0")
        for projection in BUILT_IN:
            connection.execute(f"DELETE FROM {projection.table}")
    assert verify_file(copy).agrees
    with closing(Core(copy, readonly=True)) as core:
        assert core.read(verify).agrees


def test_gaps_in_a_stream_of_the_journal_s_own_are_found_and_others_left_alone(host: Host) -> None:
    """Versions of the library's aggregates are the library's."""
    core = host.open()
    host.turn(core, "e1")
    host.run(core, RecordForeign([("theirs", 0, "topic", b""), ("theirs", 5, "topic", b"")]))
    core.close()
    assert verify_file(host.path).agrees

    version = "(SELECT max(originator_version) FROM cf_event WHERE type = 'reply.delivered')"
    copy = tampered(host.path, f"UPDATE cf_event SET originator_version = {version} + 1 WHERE type = 'reply.delivered'")
    difference = found(verify_file(copy), "versions").difference
    assert difference is not None
    assert difference.startswith("the stream op-")
    assert "goes on with version 6 after version 4" in difference


@pytest.mark.contract("JRN-14")
@pytest.mark.parametrize("prefix", ["op", "rt", "lk", "opn", "sc"])
def test_a_stream_of_the_journal_s_own_takes_no_events_of_others(core: Core, host: Host, prefix: str) -> None:
    """Neither one that is there nor one that could be; nothing of what came with it is recorded."""
    host.turn(core, "e1")
    before = host.types(core)
    ours = core.read(lambda store: {event.originator_id for event in store.events_after(0, 100)})
    for originator_id in {each for each in ours if each.startswith(f"{prefix}-")} | {f"{prefix}-" + "0f" * 16}:
        with pytest.raises(InvalidValue, match="takes no events of others"):
            host.run(core, RecordForeign([("theirs", 1, "topic", b""), (originator_id, 99, "topic", b"")]))
    assert before == host.types(core)

    others = [f"{prefix}-", f"{prefix}-" + "0F" * 16, f"{prefix}-" + "0f" * 17, f"x{prefix}-" + "0f" * 16]
    host.run(core, RecordForeign([(originator_id, 1, "topic", b"") for originator_id in others]))
    assert core.read(verify).agrees


def test_an_event_that_cannot_be_read_is_named_and_only_its_projections_stop(busy_journal: Path) -> None:
    verification = verify_file(tampered(busy_journal, "UPDATE cf_event SET state = x'78' WHERE type = 'lock.released'"))

    assert found(verification, "event types").difference is not None
    assert {"chain", "event types", "projection leases"} == {check.name for check in verification.checks if not check.agrees}


def test_a_garbled_page_is_reported_and_not_raised(busy_journal: Path) -> None:
    copy = tampered(busy_journal)
    with closing(sqlite3.connect(copy)) as connection:
        page, size = (
            connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'cf_event'").fetchone()[0],
            connection.execute("PRAGMA page_size").fetchone()[0],
        )
    garbled = bytearray(copy.read_bytes())
    garbled[(page - 1) * size : page * size] = b"\xa5" * size
    copy.write_bytes(garbled)

    verification = verify_file(copy)
    assert not verification.agrees
    assert found(verification, "file").difference is not None
    assert found(verification, "chain").difference is not None


def test_an_erased_text_leaves_the_chain_as_it_was(core: Core, host: Host) -> None:
    host.make_busy(core)
    assert host.run(core, EraseSubject(host.grant.identity, "actor", "tg", "ann"))
    assert core.read(verify).agrees
    assert host.run(core, EraseScope(host.grant.identity))
    verification = core.read(verify)
    assert verification.agrees
    assert 0 == found(verification, "commitments").checked


def test_a_late_answer_leaves_a_journal_that_agrees(core: Core, host: Host) -> None:
    claimed = host.claim(core, host.admit(core, "e1"))
    host.settle(core, claimed)
    assert claimed.operation is not None
    assert "late" == host.settle(core, claimed).found
    assert core.read(verify).agrees
