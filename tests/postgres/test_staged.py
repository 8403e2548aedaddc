"""A record that a host's transaction stages is appended by its COMMIT, with all else that the transaction did, or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from counterfoil.domain.framing import GENESIS
from counterfoil.domain.lock import Deadline
from counterfoil.infrastructure.postgres.appending import staging
from counterfoil.infrastructure.postgres.record import record
from tests.postgres.sides import Journal, Side, happen
from tests.postgres_server import Postgres

STALE = "counterfoil: the decision is stale; roll back and do it again"


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    journal = Journal(postgres, schema)
    journal.change("CREATE TABLE {}.orders (name text)")
    yield journal
    journal.close()


@pytest.fixture
def host(journal: Journal) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the host's own, with its tables in its search path, and the transaction that it has begun."""
    with journal.postgres.connect(autocommit=False) as connection:
        connection.execute(SQL("SET search_path TO {}").format(Identifier(journal.schema)))
        connection.commit()
        yield connection


def stage(host: psycopg.Connection[Any], side: Side, stream: str, version: int = 1, *, goes_on: int = 0, **header: Any) -> None:
    """Stage an event; one that goes on was decided on top of so many that were staged before it."""
    unit = side.unit()
    unit.now = unit.head.recorded_at + 1_000
    unit.head = unit.head._replace(position=unit.head.position + goes_on, recorded_at=unit.now + goes_on - 1)
    happen(unit, stream, version, **header)
    staged = record(unit, side.standpoint(unit, goes_on))
    unit.rollback()
    host.execute(staging(side.schema).encode(), (staged.decode(),))


def names(journal: Journal) -> list[str]:
    """Return the streams of the events, in order; the chain and the places are those that anybody computes."""
    previous, events = GENESIS, journal.events()
    for number, event in enumerate(events, 1):
        assert event.position == number
        assert event.chained(previous) == event.digest
        previous = event.digest
    assert journal.rows("SELECT count(*) FROM {}.cf_staged") == [(0,)]
    return [event.originator_id for event in events]


def orders(journal: Journal) -> list[str]:
    return [name for (name,) in journal.rows("SELECT name FROM {}.orders")]


def test_it_comes_with_the_commit_and_not_before(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    host.execute("INSERT INTO orders VALUES ('one')")
    stage(host, side, "a", conversation=b"c")
    assert (names(journal), orders(journal)) == ([], [])
    host.commit()

    assert (names(journal), orders(journal)) == (["a"], ["one"])


def test_a_rollback_leaves_nothing(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    stage(host, side, "a")
    host.rollback()
    host.execute("SELECT 1")
    host.commit()

    assert names(journal) == []


def test_nobody_waits_for_a_host_that_dawdles(journal: Journal, host: psycopg.Connection[Any]) -> None:
    """Others append while its transaction is open, and it comes after them when it commits."""
    side, other = journal.side(), journal.side()
    stage(host, side, "host", conversation=b"mine")
    for number in range(5):
        assert other.happens("other", number + 1, conversation=b"theirs").status == "appended"
        other.look()
    host.commit()

    assert names(journal) == ["other"] * 5 + ["host"]


def test_a_decision_that_has_gone_stale_takes_the_hosts_rows_with_it(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side, other = journal.side(), journal.side()
    host.execute("INSERT INTO orders VALUES ('one')")
    stage(host, side, "host", conversation=b"same")
    other.happens("other", conversation=b"same")
    with pytest.raises(psycopg.errors.SerializationFailure, match=re.escape(STALE)) as failed:
        host.commit()

    assert failed.value.diag.message_detail == "What no longer stands: conversation."
    assert (names(journal), orders(journal)) == (["other"], [])
    side.look()
    stage(host, side, "host", conversation=b"same")
    host.commit()
    assert names(journal) == ["other", "host"]


def test_a_projection_that_is_behind_fails_it_too(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    stage(host, side, "host")
    journal.change("UPDATE {}.cf_projection SET position = 0 WHERE name = 'queues'")
    with pytest.raises(psycopg.errors.SerializationFailure, match=re.escape(STALE)) as failed:
        host.commit()

    assert failed.value.diag.message_detail == "What no longer stands: projection."


# Several records, and savepoints.


def test_records_go_on_from_one_another(journal: Journal, host: psycopg.Connection[Any]) -> None:
    """In one conversation, in one stream, with others' events before them; times and places follow one another."""
    side, other = journal.side(), journal.side()
    for number in range(3):
        stage(host, side, "host", number + 1, goes_on=number, conversation=b"mine")
    for number in range(2):
        other.happens("other", number + 1)
    host.commit()
    first, second, third = journal.events()[2:]

    assert names(journal) == ["other", "other", "host", "host", "host"]
    assert (second.recorded_at, third.recorded_at) == (first.recorded_at + 1, first.recorded_at + 2)


def test_rows_that_records_share_are_moved_alike(journal: Journal, host: psycopg.Connection[Any]) -> None:
    """The second changes a row that the first has begun, by its provisional place and time."""
    side, other = journal.side(), journal.side()
    for goes_on in (0, 1):
        unit = side.unit()
        unit.now = 1_000
        unit.head = unit.head._replace(position=goes_on, recorded_at=999 + goes_on)
        happen(unit, "op-1", goes_on + 1)
        unit.changes.payloads.append((goes_on + 1, b"s" * 32, b"text"))
        unit.changes.actions.append(("count_repeat", (1,)))
        unit.caches.rows["queues"].put((1,), (1, "op-1", "rt-1", 1, 1, 1_000, goes_on or None, None))
        host.execute(staging(side.schema).encode(), (record(unit, side.standpoint(unit, goes_on)).decode(),))
        unit.rollback()
    for number in range(4):
        other.happens("other", number + 1)
    host.commit()
    event = journal.events()[4]

    assert journal.rows("SELECT operation, place, entered_at, grant_version FROM {}.cf_queues_v1") == [
        (5, 5, event.recorded_at, 1)
    ]
    assert journal.rows("SELECT position FROM {}.cf_payload ORDER BY 1") == [(5,), (6,)]
    assert journal.rows("SELECT operation, count FROM {}.cf_repeat") == [(5, 2)]


def test_a_savepoint_that_is_rolled_back_takes_its_record_with_it(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    stage(host, side, "kept")
    host.execute("SAVEPOINT here")
    stage(host, side, "dropped", goes_on=1)
    host.execute("ROLLBACK TO SAVEPOINT here")
    stage(host, side, "after", goes_on=1)
    host.execute("RELEASE SAVEPOINT here")
    host.commit()

    assert names(journal) == ["kept", "after"]


def test_what_was_decided_on_a_record_that_was_rolled_back_is_stale(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    host.execute("SAVEPOINT here")
    stage(host, side, "dropped")
    host.execute("ROLLBACK TO SAVEPOINT here")
    stage(host, side, "after", goes_on=1)
    with pytest.raises(psycopg.errors.SerializationFailure, match=re.escape(STALE)):
        host.commit()

    assert names(journal) == []


def test_two_records_that_know_nothing_of_each_other(journal: Journal, host: psycopg.Connection[Any]) -> None:
    """Stand if they are of different conversations and streams, as those of two hosts do."""
    one, other = journal.side(), journal.side()
    stage(host, one, "one", conversation=b"c1")
    stage(host, other, "other", conversation=b"c2")
    host.commit()
    assert names(journal) == ["one", "other"]

    for side in (one, other):
        side.look()
    stage(host, one, "one", 2, conversation=b"c1")
    stage(host, other, "third", conversation=b"c1")
    with pytest.raises(psycopg.errors.SerializationFailure, match=re.escape(STALE)):
        host.commit()
    assert names(journal) == ["one", "other"]


# Hosts with other isolation levels, search paths and tables.


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("before", [True, False], ids=["before the first statement", "after the first statement"])
def test_isolation_levels(journal: Journal, host: psycopg.Connection[Any], level: str, before: bool) -> None:
    """Under an old snapshot nobody can tell whether a decision stands once somebody has appended: then it has gone stale."""
    side, other = journal.side(), journal.side()
    other.happens("other", 1)
    side.look()
    host.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    if before:
        other.happens("other", 2)
    host.execute("INSERT INTO orders VALUES ('one')")
    stage(host, side, "host")
    if not before:
        other.happens("other", 2)
    if before or level == "READ COMMITTED":
        host.commit()
        assert (names(journal), orders(journal)) == (["other", "other", "host"], ["one"])
    else:
        with pytest.raises(psycopg.errors.SerializationFailure, match=re.escape(STALE)):
            host.commit()
        assert (names(journal), orders(journal)) == (["other", "other"], [])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_renewal_that_an_old_snapshot_does_not_show_is_seen(
    journal: Journal, host: psycopg.Connection[Any], level: str
) -> None:
    """It leaves no event behind by which its append would stand in the way."""
    side = journal.side()
    journal.change("INSERT INTO {}.cf_deadline VALUES ('lk-1', 1, 't', 'boot', 1, 0, 1, NULL, 0)")
    unit = side.unit()

    unit.caches.deadlines.fill("lk-1", Deadline("lk-1", 1, b"t", "boot", 1, 0, 1))
    happen(unit, "host")
    body = record(unit, side.standpoint(unit), relied=["lk-1"]).decode()
    for renewed in (True, False):
        host.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        host.execute("INSERT INTO orders VALUES ('one')")
        if renewed:
            journal.change("UPDATE {}.cf_deadline SET renewal = 1")
        host.execute(staging(journal.schema).encode(), (body,))
        if renewed:
            with pytest.raises(psycopg.errors.SerializationFailure):
                host.commit()
            journal.change("UPDATE {}.cf_deadline SET renewal = 0")
        else:
            host.commit()

    assert names(journal) == ["host"]


def test_tables_and_functions_of_the_hosts_by_our_names_fool_nobody(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    host.execute("CREATE TEMP TABLE cf_event (position bigint)")
    host.execute("CREATE TEMP TABLE cf_head (id int)")
    host.execute("CREATE SCHEMA theirs")
    try:
        host.execute("CREATE FUNCTION theirs.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT ''fooled''::bytea'")
        host.execute("CREATE FUNCTION theirs.cf_act(jsonb) RETURNS void LANGUAGE sql AS 'SELECT'")
        host.commit()
        for path in ("pg_temp, theirs, pg_catalog", "", "theirs"):
            host.execute(f"SET LOCAL search_path TO {path or repr('')}".encode())
            stage(host, side, f"with path {path!r}")
            host.commit()
            side.look()
        assert len(names(journal)) == 3
    finally:
        host.rollback()
        host.execute("DROP SCHEMA theirs CASCADE")
        host.commit()


def test_the_hosts_settings_are_as_they_were(journal: Journal, host: psycopg.Connection[Any]) -> None:
    side = journal.side()
    settings = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'transaction%' AND name NOT LIKE 'plpgsql.%' ORDER BY 1"
    before = host.execute(settings).fetchall()
    host.commit()
    stage(host, side, "a")
    host.commit()

    assert host.execute(settings).fetchall() == before
