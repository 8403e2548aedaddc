"""The history: positions, its clock, effects that happen once, answers that are kept, and projections that follow it."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.admission import Admission
from counterfoil.domain.errors import CommandConflict, InvalidValue, JournalDamaged
from counterfoil.domain.identity import Grant, Identity, reach
from counterfoil.domain.turn import Answer
from counterfoil.infrastructure import reading
from counterfoil.infrastructure.commands.admission import Admitted
from counterfoil.infrastructure.commands.once import Once, command_id_bytes, fingerprint
from counterfoil.infrastructure.commands.turn import Claim, Settle
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.postgres.store import PostgresStore
from counterfoil.infrastructure.sqlite.verifying import verify_file
from counterfoil.infrastructure.store import Store
from counterfoil.infrastructure.verification import verify
from counterfoil.projections.catalogue import BUILT_IN
from tests.clocks import JournalClock
from tests.copies import verify_at
from tests.engines import Engine
from tests.rows import all_rows_in, change, database, rows

if TYPE_CHECKING:
    from tests.journal.conftest import Host, Processes


# Positions.


@pytest.mark.sqlite_only("a tool of SQLite can remove the numbers that were given")
@pytest.mark.contract("JRN-01")
def test_positions_are_never_used_again(host: Host) -> None:
    """Whatever somebody deleted with a tool of SQLite, and after VACUUM."""
    core = host.open()
    host.make_busy(core)
    last = host.position(core)
    with closing(sqlite3.connect(host.path, isolation_level=None)) as tool:
        tool.execute("DELETE FROM cf_event WHERE position > ?", (last - 5,))
        tool.execute("DELETE FROM sqlite_sequence")
        tool.execute("VACUUM")
    assert last + 1 == host.admit(core, "more", "another").admission.position
    core.close()
    with pytest.raises(JournalDamaged):
        host.open()


@pytest.mark.sqlite_only("a file is put back by copying it; tests/postgres restores a dump")
@pytest.mark.contract("JRN-01", "JRN-13")
def test_an_older_copy_gives_no_position_out_again(host: Host) -> None:
    """Whatever anybody has seen before it was put back; the gap is no fault of the chain, and a cut tail still is."""
    core = host.open()
    host.make_busy(core)
    core.close()
    older, kept = host.path.read_bytes(), verify_file(host.path).position
    core = host.open()
    host.turn(core, "later", "another")
    core.close()
    seen = verify_file(host.path).position
    for beside in ("-wal", "-shm"):
        host.path.with_name(host.path.name + beside).unlink(missing_ok=True)
    host.path.write_bytes(older)

    core = host.open()
    admitted = host.admit(core, "later", "another")
    assert not admitted.admission.duplicate
    assert seen < core.read(lambda store: store.events_after(kept, 1)[0].position)
    core.close()
    verification = verify_file(host.path)
    assert verification.agrees, verification


@pytest.mark.contract("JRN-01")
def test_a_vacuum_changes_nothing(busy_journal: str, host: Host, engine: Engine) -> None:
    before = verify_at(busy_journal).position
    change(busy_journal, "VACUUM" if engine == "sqlite" else "VACUUM (FULL, ANALYZE)")
    assert (before, True) == ((verification := verify_at(busy_journal)).position, verification.agrees)
    core = host.open()
    assert before < (host.admit(core, "more", "another").admission.position or 0)


@pytest.mark.contract("JRN-01")
def test_the_events_of_one_append_stand_together(core: Core, host: Host) -> None:
    claimed = host.claim(core, host.admit(core, "e1"))
    before = host.position(core)
    host.settle(core, claimed)
    assert ["operation.settled", "reply.staged"] == host.types(core)[before:]


# The clock.


@pytest.mark.contract("JRN-06")
def test_recorded_at_never_runs_backwards(host: Host, clock: JournalClock) -> None:
    """Set back, it advances a microsecond an event until it is caught up; then it is the clock again, after a reopening too."""
    core = host.open(clock=clock)
    host.admit(core, "e1")
    clock.set_back("1h")
    host.admit(core, "e2")
    host.admit(core, "e3")
    core.close()
    core = host.open(clock=clock)
    host.admit(core, "e4")
    times = core.read(lambda store: [event.recorded_at for event in store.events_after(0, 100)])
    assert times[0] + len(times) - 1 == times[-1]
    assert sorted(set(times)) == times

    clock.advance("2h")
    host.admit(core, "e5")
    assert clock.now() == core.read(lambda store: store.head().recorded_at)
    assert core.read(verify).agrees


@pytest.mark.contract("JRN-06")
def test_no_lease_ends_because_a_clock_was_set(host: Host, clock: JournalClock) -> None:
    core = host.open(clock=clock)
    claimed = host.claim(core, host.admit(core, "e1"))
    clock.set_forward("20h")
    assert "settled" == host.settle(core, claimed).found
    claimed = host.claim(core, host.admit(core, "e2", "c2"))
    clock.set_back("40h")
    assert "settled" == host.settle(core, claimed).found


# One effect.


@pytest.mark.contract("JRN-02")
@pytest.mark.parametrize("together", [True, False], ids=["in one group", "from many threads"])
def test_equal_commands_at_once_have_one_effect(core: Core, host: Host, together: bool) -> None:
    admitted = host.admit(core, "e1")
    host.admit(core, "e2")

    def at_once(command: Any) -> list[Any]:
        if together:
            return [future.result(30) for future in [core.committer.submit(command) for _ in range(20)]]
        with ThreadPoolExecutor(20) as threads:
            return list(threads.map(lambda _: host.run(core, command), range(20)))

    duplicates = at_once(host.message("e9", "c9"))
    assert 1 == sum(not answer.admission.duplicate for answer in duplicates)
    assert admitted.route is not None
    claims = at_once(Claim(admitted.route, admitted.position))
    claimed = [answer for answer in claims if answer.found == "claimed"]
    assert 1 == len(claimed)
    settled = at_once(Settle(claimed[0].operation.operation_id, claimed[0].fence, Answer("succeeded", reply="hi")))
    assert 1 == sum(answer.found == "settled" for answer in settled)
    types = host.types(core)
    assert (1, 1, 1) == tuple(types.count(each) for each in ("operation.claimed", "operation.settled", "reply.staged"))
    assert core.read(verify).agrees


@pytest.mark.contract("JRN-02")
def test_a_command_that_was_decided_before_another_process_wrote_is_decided_anew(host: Host) -> None:
    """What a process keeps in memory is dropped when somebody else has written."""
    one, other = host.open(), host.open()
    admitted = host.admit(one, "e1")
    assert host.admit(other, "e1").admission.duplicate
    claimed = host.claim(one, admitted)
    assert "held" == host.claim(other, admitted).found or claimed.found == "claimed"
    host.settle(one, claimed)
    assert claimed.operation is not None
    assert "before" == host.run(other, Settle(claimed.operation.operation_id, claimed.fence or 0, Answer("failed"))).found
    assert "before" == host.settle(one, claimed).found
    assert 1 == host.types(one).count("operation.settled")


# Command ids.


def once(host: Host, command_id: str, event_id: str, text: str = "hello", grant: Grant | None = None) -> Once[Admitted]:
    """An admission under a command id."""
    command = host.message(event_id, text=text, grant=grant)
    return Once(
        command,
        (grant or host.grant).identity,
        command_id_bytes(command_id),
        fingerprint("admit", event_id, text),
        lambda answer: {"operation_id": answer.admission.operation_id, "position": answer.admission.position},
        lambda kept, unit: Admitted(Admission("accepted", operation_id=kept["operation_id"], position=kept["position"])),
    )


@pytest.mark.contract("JRN-05")
def test_a_command_id_has_one_effect_and_one_answer(host: Host, processes: Processes) -> None:
    """At once, in one group, later, after a reopening, and in another opening of the same journal."""
    core = host.open()
    futures = [core.committer.submit(once(host, "id-1", "e1")) for _ in range(5)]
    answers = {future.result(30).admission.position for future in futures}
    other = host.open()
    answers.add(host.run(other, once(host, "id-1", "e1")).admission.position)
    core.close()
    answers.add(host.run(host.open(), once(host, "id-1", "e1")).admission.position)
    assert {3} == answers
    assert "operation.repeated" not in host.types(other)


@pytest.mark.contract("JRN-05")
def test_a_command_id_with_another_command_is_a_conflict(core: Core, host: Host) -> None:
    host.run(core, once(host, "id-1", "e1"))
    before = host.position(core)
    with pytest.raises(CommandConflict):
        host.run(core, once(host, "id-1", "e1", text="another"))
    with pytest.raises(CommandConflict):
        host.run(core, once(host, "id-1", "e2"))
    assert before == host.position(core)
    assert before + 1 == host.run(core, once(host, "id-2", "e2")).admission.position


@pytest.mark.contract("JRN-05")
def test_a_command_id_is_the_scope_s_own(core: Core, host: Host) -> None:
    other = Grant(identity=Identity(tenant="acme", account="other", principal="pat", verified=True), aliases=("agent",))
    first = host.run(core, once(host, "id-1", "e1"))
    second = host.run(core, once(host, "id-1", "e2", grant=other))
    assert first.admission.operation_id != second.admission.operation_id


@pytest.mark.contract("JRN-05")
def test_a_command_id_is_kept_for_its_days(host: Host, clock: JournalClock) -> None:
    core = host.open(clock=clock)
    first = host.run(core, once(host, "id-1", "e1"))
    clock.advance(timedelta(days=7) - timedelta(seconds=1))
    assert first.admission.position == host.run(core, once(host, "id-1", "e1")).admission.position
    clock.advance("1s")
    assert first.admission.position != host.run(core, once(host, "id-1", "e2")).admission.position


@pytest.mark.contract("JRN-05")
def test_a_command_id_of_a_command_that_raised_is_free(core: Core, host: Host) -> None:
    class Fails:
        def run(self, unit: Any) -> Any:
            host.message("e1").run(unit)
            raise ValueError("no")

    failing = Once(Fails(), host.grant.identity, b"id-1", b"f", lambda answer: {}, lambda kept, unit: None)
    with pytest.raises(ValueError, match="no"):
        host.run(core, failing)
    assert not host.run(core, once(host, "id-1", "e1")).admission.duplicate


@pytest.mark.contract("JRN-05")
def test_an_answer_without_an_event_is_seen_by_every_opening(host: Host) -> None:
    """And so is a scope that came with it: there is one for the same people."""
    one, other = host.open(), host.open()
    identity = Identity(tenant="nobody", principal="nobody", verified=True)

    class Nothing:
        def run(self, unit: Any) -> str:
            return "done"

    def nothing(answer: str) -> Once[str]:
        return Once(Nothing(), identity, b"id", answer.encode(), lambda _: {"answer": answer}, lambda kept, unit: kept["answer"])

    class Known:
        def run(self, unit: Any) -> bool:
            return unit.known_scope(identity.scope) is not None

    assert (False, False) == (host.run(one, Known()), host.run(other, Known()))
    host.run(one, nothing("first"))
    assert host.run(other, Known())
    assert "first" == host.run(other, nothing("first"))
    with pytest.raises(CommandConflict):
        host.run(other, nothing("second"))
    assert [(1,)] == rows(host.url, "SELECT count(*) FROM cf_scope")


@pytest.mark.no_engine("nothing is appended yet")
@pytest.mark.contract("JRN-05")
@pytest.mark.parametrize("value", ["", b"", "x" * 129, "\ud800", 7, None])
def test_a_command_id_is_1_to_128_bytes(value: Any) -> None:
    with pytest.raises(InvalidValue, match="command_id"):
        command_id_bytes(value)
    assert 128 == len(command_id_bytes("é" * 64))


# What events hold.


@pytest.mark.contract("JRN-07", "IDN-06")
def test_events_hold_no_text_and_no_id_of_a_person(host: Host, engine: Engine) -> None:
    """Looked for in the bytes of every column; what was erased is in no row, and nowhere in a file of SQLite's."""
    grant = Grant(identity=Identity(tenant="t-secret", principal="p-secret", user="u-secret", verified=True), aliases=("agent",))
    core = host.open()
    admitted = host.run(core, host.message("ev-secret", "chat-secret", "body-secret", grant))
    claimed = host.claim(core, admitted)
    host.settle(core, claimed, "reply-secret")
    everything = "\n".join(all_rows_in(core))
    core.close()
    events = repr(rows(host.url, "SELECT * FROM cf_event"))
    assert "operation.admitted" in events
    assert "secret" not in events
    assert "ann" not in events
    assert "reply-secret" in everything
    assert "body-secret" not in everything
    if engine == "sqlite":
        assert rows(host.url, "PRAGMA wal_checkpoint(TRUNCATE)")
        content = host.path.read_bytes()
        assert b"reply-secret" in content
        assert b"body-secret" not in content


# Projections.


def reset(url: str) -> None:
    """Make a journal what a process leaves that appends and folds nothing."""
    change(url, "UPDATE cf_projection SET position = 0")
    for projection in BUILT_IN:
        change(url, f"DELETE FROM {projection.table}")


def folded(store: Store) -> dict[str, list[Any]]:
    """The rows of every projection, as a reader finds them; but for those that PostgreSQL completes when they are read."""
    completed = isinstance(store, PostgresStore)
    return {
        projection.NAME: store.connection.execute(f"SELECT * FROM {projection.table} ORDER BY 1, 2, 3").fetchall()
        for projection in BUILT_IN
        if not (completed and projection.AGGREGATED)
    }


@pytest.mark.contract("PRJ-01")
def test_what_another_process_did_not_fold_is_folded_before_a_read(busy_journal: str, host: Host, engine: Engine) -> None:
    """In memory when the journal is only read, so that it stays as it is; a writer on PostgreSQL folds it for good."""
    core = host.open(readonly=True)
    live = core.read(folded)
    core.close()
    assert all(live.values())
    reset(busy_journal)
    for readonly in (True, False) if engine == "sqlite" else (True,):
        core = host.open(readonly=readonly)
        assert live == core.read(folded)
        assert live == core.read(folded)
        core.close()
    assert [(0,)] == rows(busy_journal, "SELECT max(position) FROM cf_projection")
    assert [(0,)] == rows(busy_journal, "SELECT count(*) FROM cf_unresolved_v1")
    assert live == host.open().read(folded)


@pytest.mark.contract("PRJ-01")
@pytest.mark.parametrize("opened_before", [True, False])
def test_what_another_process_did_not_fold_is_folded_before_a_decision(host: Host, engine: Engine, opened_before: bool) -> None:
    """The queue, the lease and the binding of a route that are decided upon are those of the events; then nothing is behind."""
    core = host.open()
    first = host.admit(core, "e1")
    second = host.admit(core, "e2")
    claimed = host.claim(core, first)
    if not opened_before:
        core.close()
    reset(host.url)
    if not opened_before:
        core = host.open()
        assert "head" == host.claim(core, first).found
        assert "claimed" == host.claim(core, second).found
    else:
        assert "busy" == host.claim(core, second).found
        host.settle(core, claimed)
        assert "claimed" == host.claim(core, second).found
    late = {projection.NAME for projection in BUILT_IN if projection.AGGREGATED and engine == "postgres"}
    positions = core.read(Store.projections)
    assert {host.position(core)} == {position for (name, _), position in positions.items() if name not in late}
    verification = core.read(verify)
    assert verification.agrees, verification


@pytest.mark.sqlite_only("on PostgreSQL `schema upgrade` begins a projection, and no opening does")
@pytest.mark.contract("PRJ-01", "PRJ-05")
def test_a_projection_that_is_new_in_this_release_is_begun_and_an_unknown_one_left_alone(busy_journal: str, host: Host) -> None:
    """Tables are named by version; what a newer release keeps beside serves on, and is not moved."""
    with database(busy_journal) as tool:
        tool.execute("DROP TABLE cf_cursors_v1")
        tool.execute("DELETE FROM cf_projection WHERE name = 'cursors'")
        tool.execute("CREATE TABLE cf_cursors_v2 (x integer)")
        tool.execute("INSERT INTO cf_projection (name, version, position) VALUES ('cursors', 2, 7)")
    with closing(Core(busy_journal, readonly=True)) as reader:
        assert reader.read(folded).get("cursors", True)
    core = host.open()
    host.admit(core, "more", "another")
    positions = core.read(Store.projections)
    assert (host.position(core), 7) == (positions["cursors", 1], positions["cursors", 2])
    assert core.read(verify).agrees


@pytest.mark.contract("PRJ-01")
def test_every_projection_is_visible_to_the_next_call(core: Core, host: Host, engine: Engine) -> None:
    """On PostgreSQL those that gather many conversations are folded when they are read; all others stand at the head."""
    late = {projection.NAME for projection in BUILT_IN if projection.AGGREGATED and engine == "postgres"}
    for number in range(3):
        host.turn(core, f"e{number}")
        positions = core.read(Store.projections)
        assert {host.position(core)} == {position for (name, _), position in positions.items() if name not in late}
        totals = core.read(lambda store: reading.statistics(store, reach(host.grant.identity, None))).totals
        assert [number + 1] == [total.count for total in totals if total.measure == "delivered"]
