"""verify, and a verifier that knows the description of the format and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.errors import InvalidValue, JournalDamaged
from counterfoil.domain.framing import GENESIS
from counterfoil.infrastructure.commands.erasure import EraseScope, EraseSubject
from counterfoil.infrastructure.commands.recording import RecordForeign
from counterfoil.infrastructure.commands.turn import GiveUp
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.store import Store
from counterfoil.infrastructure.verification import Check, Verification, verify
from counterfoil.projections.catalogue import BUILT_IN
from tests.copies import independently, verify_at
from tests.rows import change, rows

if TYPE_CHECKING:
    from tests.journal.conftest import Host, Tampered


def found(verification: Verification, name: str) -> Check:
    return next(check for check in verification.checks if check.name == name)


@pytest.mark.contract("JRN-13", "PRJ-02")
def test_a_journal_agrees_with_its_events(busy_journal: str) -> None:
    """Every check says what it looked at, and how much."""
    verification = verify_at(busy_journal)

    assert verification.agrees, verification
    count = verification.position
    assert {("chain", count, "events"), ("event types", count, "events"), ("commitments", 23, "payloads")} <= {
        (check.name, check.checked, check.unit) for check in verification.checks
    }
    assert [f"projection {projection.NAME}" for projection in BUILT_IN] == [
        check.name for check in verification.checks if check.name.startswith("projection")
    ]
    assert (0, "the chain agrees") == independently(busy_journal)


def test_a_verification_of_an_open_journal_is_of_one_moment(core: Core, host: Host, url: str) -> None:
    """While others go on, and in memory too."""
    host.make_busy(core)

    def check(store: Store) -> Verification:
        assert before == store.head().position
        if url != ":memory:":
            host.turn(core, "meanwhile")
        return verify(store)

    before = host.position(core)
    verification = core.read(check)
    assert verification.agrees, verification
    assert before == verification.position


def test_an_empty_journal_agrees(host: Host) -> None:
    host.open()
    assert verify_at(host.url).agrees
    assert (0, "the chain agrees") == independently(host.url)


def test_progress_is_told_with_what_is_done_and_what_there_is(busy_journal: str) -> None:
    told: list[tuple[str, int, int]] = []
    verification = verify_at(busy_journal, lambda *words: told.append(words))

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
    "INSERT INTO cf_event (position, recorded_at, originator_id, originator_version, type, type_version, state, digest)"
    " SELECT 7, recorded_at + 1, 'x', 1, 'topic', 0, x'7b7d', digest FROM cf_event WHERE position = 6",
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
def test_the_first_position_that_does_not_agree_is_named(
    busy_journal: str, statements: tuple[str, ...], position: int, tampered: Tampered
) -> None:
    copy = tampered(busy_journal, *statements)

    chain = found(verify_at(copy), "chain")
    assert chain.difference is not None
    assert f"at position {position} " in chain.difference
    status, _ = independently(copy)
    assert 3 == status


# Gaps.

AHEAD = 10
"""How many positions are passed over."""


def passed_over(tampered: Tampered, url: str, position: int, *statements: str, chained: bool = True) -> str:
    """A copy in which the events from a position on stand some positions further on; with `chained` in a chain that agrees."""
    copy = tampered(
        url,
        *statements,
        f"UPDATE cf_event SET position = -(position + {AHEAD}) WHERE position >= {position}",
        "UPDATE cf_event SET position = -position WHERE position < 0",
        f"UPDATE cf_head SET position = position + {AHEAD} WHERE position > 0",
    )
    if chained:
        digest = GENESIS
        for row in rows(copy, f"SELECT {', '.join(EventRow._fields)} FROM cf_event ORDER BY position"):
            digest = EventRow(*row).chained(digest)
            assert 1 == change(copy, "UPDATE cf_event SET digest = ? WHERE position = ?", digest, row[0])
        change(copy, "UPDATE cf_head SET digest = ? WHERE position > 0", digest)
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
    host: Host, mixed_journal: dict[str, int], kind: str, tampered: Tampered
) -> None:
    """And the chain goes on over the gap: without the digests that belong to the new places it does not agree."""
    position = mixed_journal[kind]
    copy = passed_over(tampered, host.url, position)
    assert found(verify_at(copy), "chain").difference is None
    assert (0, "the chain agrees") == independently(copy)

    copy = passed_over(tampered, host.url, position, chained=False)
    difference = f"the digest at position {position + AHEAD} does not agree with the event and the digest before"
    assert difference == found(verify_at(copy), "chain").difference
    assert (3, f"position {position + AHEAD} does not agree") == independently(copy)


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize("kind", ["an epoch", "an admission", "the last event"])
def test_positions_passed_over_elsewhere_are_found(
    host: Host, mixed_journal: dict[str, int], kind: str, tampered: Tampered
) -> None:
    """Also in a chain whose digests agree."""
    position = mixed_journal[kind]
    copy = passed_over(tampered, host.url, position)
    difference = f"the event at position {position} is missing; the next is at position {position + AHEAD}"
    assert difference == found(verify_at(copy), "chain").difference
    assert (3, f"position {position + AHEAD} does not follow position {position - 1}") == independently(copy)


@pytest.mark.contract("JRN-13")
def test_an_event_of_no_type_inside_an_opening_is_no_recorder_s(
    host: Host, mixed_journal: dict[str, int], tampered: Tampered
) -> None:
    position = mixed_journal["the recorder"]
    copy = passed_over(tampered, host.url, position, f"UPDATE cf_event SET opening_id = 1 WHERE position = {position}")
    difference = found(verify_at(copy), "chain").difference
    assert difference is not None
    assert difference.startswith(f"the event at position {position} is missing")
    status, _ = independently(copy)
    assert 3 == status


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize("kind", ["the second opening", "the recorder"])
def test_what_was_removed_before_an_opening_is_no_gap(
    host: Host, mixed_journal: dict[str, int], kind: str, tampered: Tampered
) -> None:
    """The digest after it tells."""
    position = mixed_journal[kind]
    copy = tampered(host.url, f"DELETE FROM cf_event WHERE position = {position - 1}")
    difference = found(verify_at(copy), "chain").difference
    assert f"the digest at position {position} does not agree with the event and the digest before" == difference
    assert (3, f"position {position} does not agree") == independently(copy)


@pytest.mark.sqlite_only("on PostgreSQL the head is the newest event, and nothing beside the history says so")
@pytest.mark.contract("JRN-13")
def test_a_cut_tail_and_a_moved_head_are_found(busy_journal: str, tampered: Tampered) -> None:
    """The head stands beside the history; only whoever cuts both leaves a shorter chain that agrees."""
    last = verify_at(busy_journal).position
    for statement in (
        f"DELETE FROM cf_event WHERE position = {last}",
        "UPDATE cf_head SET digest = zeroblob(32)",
        "UPDATE cf_head SET recorded_at = recorded_at + 1",
    ):
        copy = tampered(busy_journal, statement)
        assert found(verify_at(copy), "chain").difference is not None, statement
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
def test_payloads_are_compared_with_their_commitments(
    busy_journal: str, statement: str, sentence: str, tampered: Tampered
) -> None:
    ((first,),) = rows(busy_journal, "SELECT min(position) FROM cf_payload")
    check = found(verify_at(tampered(busy_journal, statement.format(first))), "commitments")
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
def test_each_projection_is_compared_with_one_folded_anew(
    busy_journal: str, statement: str, name: str, sentence: str, tampered: Tampered
) -> None:
    """And the others agree still."""
    verification = verify_at(tampered(busy_journal, statement))

    differing = [check for check in verification.checks if not check.agrees]
    assert [f"projection {name}"] == [check.name for check in differing]
    assert differing[0].difference is not None
    assert sentence in differing[0].difference


def test_the_first_key_that_differs_is_named(busy_journal: str, tampered: Tampered) -> None:
    keys = [key for (key,) in rows(busy_journal, "SELECT operation FROM cf_unresolved_v1 ORDER BY 1")]
    copy = tampered(busy_journal, f"UPDATE cf_unresolved_v1 SET attempts = 9 WHERE operation >= {keys[1]}")
    difference = found(verify_at(copy), "projection unresolved").difference
    assert f"the row with operation {keys[1]} differs in attempts when it is folded anew" == difference


def test_a_projection_that_lags_is_compared_up_to_where_it_is_folded(busy_journal: str, tampered: Tampered) -> None:
    """A writer that folds nothing leaves nothing wrong."""
    copy = tampered(
        busy_journal, "UPDATE cf_projection SET position = 0", *(f"DELETE FROM {projection.table}" for projection in BUILT_IN)
    )
    assert verify_at(copy).agrees
    with closing(Core(copy, readonly=True)) as core:
        assert core.read(verify).agrees


def test_gaps_in_a_stream_of_the_journal_s_own_are_found_and_others_left_alone(host: Host, tampered: Tampered) -> None:
    """Versions of the library's aggregates are the library's."""
    core = host.open()
    host.turn(core, "e1")
    host.run(core, RecordForeign([("theirs", 0, "topic", b""), ("theirs", 5, "topic", b"")]))
    core.close()
    assert verify_at(host.url).agrees

    version = "(SELECT max(originator_version) FROM cf_event WHERE type = 'reply.delivered')"
    copy = tampered(host.url, f"UPDATE cf_event SET originator_version = {version} + 1 WHERE type = 'reply.delivered'")
    difference = found(verify_at(copy), "versions").difference
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


def test_an_event_that_cannot_be_read_is_named_and_only_its_projections_stop(busy_journal: str, tampered: Tampered) -> None:
    verification = verify_at(tampered(busy_journal, "UPDATE cf_event SET state = x'78' WHERE type = 'lock.released'"))

    assert found(verification, "event types").difference is not None
    assert {"chain", "event types", "projection leases"} == {check.name for check in verification.checks if not check.agrees}


@pytest.mark.sqlite_only("a page of a file is garbled")
def test_a_garbled_page_is_reported_and_not_raised(busy_journal: str, tampered: Tampered) -> None:
    copy = Path(tampered(busy_journal))
    with closing(sqlite3.connect(copy)) as connection:
        page, size = (
            connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'cf_event'").fetchone()[0],
            connection.execute("PRAGMA page_size").fetchone()[0],
        )
    garbled = bytearray(copy.read_bytes())
    garbled[(page - 1) * size : page * size] = b"\xa5" * size
    copy.write_bytes(garbled)

    verification = verify_at(str(copy))
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
    assert claimed.operation is not None
    host.run(core, GiveUp(claimed.operation.operation_id, "operator"))
    assert "late" == host.settle(core, claimed).found
    assert core.read(verify).agrees
