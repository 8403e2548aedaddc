"""What PostgreSQL raises, in the journal's words: each kind as a real server raises it."""

from __future__ import annotations

import threading
import time
import traceback
from contextlib import closing

import psycopg
import pytest

from counterfoil.domain.errors import CounterfoilError, JournalDamaged, JournalRefused, JournalUnavailable, NotAJournal
from counterfoil.infrastructure.postgres.connecting import connect
from counterfoil.infrastructure.postgres.faults import fault
from counterfoil.infrastructure.postgres.naming import parse
from tests.postgres_server import Postgres, Server

NAME = "postgresql:///chat?schema=counterfoil"
RAISE = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}', MESSAGE = 's3cret', DETAIL = 's3cret', HINT = 's3cret'; END $$"


def meant(error: psycopg.Error) -> CounterfoilError:
    """What is raised for an error, which nothing gives away."""
    found = fault(error, NAME)
    assert str(found).startswith(f"{NAME}: ")
    assert "s3cret" not in "".join(traceback.format_exception(found))
    assert "SELECT" not in str(found)
    return found


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("08006", JournalUnavailable, "was lost"),
        ("25006", JournalUnavailable, "takes no changes now"),
        ("26000", JournalUnavailable, "pooler"),
        ("28P01", JournalRefused, "does not let this user in"),
        ("3D000", JournalRefused, "no such database"),
        ("3F000", NotAJournal, "is not a journal"),
        ("40001", JournalUnavailable, "try again"),
        ("40P01", JournalUnavailable, "try again"),
        ("40003", JournalUnavailable, "try again"),
        ("42501", JournalRefused, "what the journal's writer has"),
        ("42P01", NotAJournal, "is not a journal"),
        ("42703", JournalRefused, "schema check"),
        ("42804", JournalRefused, "schema check"),
        ("42883", JournalRefused, "schema check"),
        ("53100", JournalUnavailable, "disk is full"),
        ("53200", JournalUnavailable, "no memory"),
        ("53300", JournalUnavailable, "no more connections"),
        ("53400", JournalUnavailable, "too little of something"),
        ("55P03", JournalUnavailable, "another connection holds the journal"),
        ("57014", JournalUnavailable, "took too long"),
        ("57P01", JournalUnavailable, "shutting down"),
        ("57P02", JournalUnavailable, "shutting down"),
        ("57P03", JournalUnavailable, "shutting down"),
        ("57P04", JournalRefused, "was dropped"),
        ("58030", JournalUnavailable, "disk fails"),
        ("XX000", JournalUnavailable, "SQLSTATE XX000"),
        ("XX001", JournalDamaged, "restore a backup"),
        ("XX002", JournalDamaged, "restore a backup"),
        ("P0001", JournalUnavailable, "SQLSTATE P0001"),
    ],
)
@pytest.mark.contract("DIA-01")
def test_each_kind_has_its_words(postgres: Postgres, state: str, kind: type[CounterfoilError], words: str) -> None:
    """And none of the server's, which may quote what it was given."""
    with postgres.connect() as connection, pytest.raises(psycopg.Error) as raised:
        connection.execute(RAISE.format(state).encode())
    error = meant(raised.value)

    assert state == raised.value.sqlstate
    assert type(error) is kind
    assert words in str(error)


def test_lock_that_is_not_to_be_had(postgres: Postgres, schema: str) -> None:
    """A writer waits for `busy_wait`."""
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE TABLE {schema}.cf_held ()")
    with (
        postgres.connect(autocommit=False) as holder,
        closing(connect(parse(postgres.url(schema)), purpose="writer", busy_us=50_000)) as writer,
    ):
        holder.execute(f"LOCK TABLE {schema}.cf_held".encode())
        with pytest.raises(psycopg.Error) as raised:
            writer.execute("INSERT INTO cf_held DEFAULT VALUES")
        holder.rollback()

        assert isinstance(meant(raised.value), JournalUnavailable)
        assert "another connection holds the journal" in str(fault(raised.value, NAME))
        writer.execute("INSERT INTO cf_held DEFAULT VALUES")


def test_advisory_lock_that_is_not_to_be_had(postgres: Postgres, schema: str) -> None:
    """Such as the one for appending."""
    with postgres.connect() as holder, closing(connect(parse(postgres.url(schema)), purpose="writer", busy_us=50_000)) as writer:
        holder.execute("SELECT pg_advisory_lock(7001, 7)")
        with pytest.raises(psycopg.Error) as raised:
            writer.execute("SELECT pg_advisory_lock(7001, 7)")

    assert "another connection holds the journal" in str(meant(raised.value))


def test_statement_that_takes_too_long(postgres: Postgres, schema: str) -> None:
    """A writer's is cancelled after twice `busy_wait`, and the connection is as good as before."""
    with closing(connect(parse(postgres.url(schema)), purpose="writer", busy_us=50_000)) as writer:
        writer.silence_s = None
        with pytest.raises(psycopg.Error) as raised:
            writer.execute("SELECT pg_sleep(60)")

        assert "took too long" in str(meant(raised.value))
        assert not writer.closed


def test_transaction_that_is_idle_for_too_long(postgres: Postgres, schema: str) -> None:
    """The server ends it, with its session, as it does for a process that was frozen."""
    with closing(connect(parse(postgres.url(schema)), purpose="writer", busy_us=50_000)) as writer:
        writer.execute("BEGIN")
        while postgres.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (writer.info.backend_pid,)):
            time.sleep(0.01)
        with pytest.raises(psycopg.Error) as raised:
            writer.execute("SELECT 1")

        assert isinstance(meant(raised.value), JournalUnavailable)
        assert writer.closed


def test_two_that_wait_for_each_other(postgres: Postgres) -> None:
    """The server picks one, whose transaction is gone."""
    errors: list[psycopg.Error] = []

    def wait_for(connection: psycopg.Connection[object]) -> None:
        try:
            connection.execute("SELECT pg_advisory_xact_lock(7002, 1)")
        except psycopg.Error as error:
            errors.append(error)
        connection.rollback()

    with postgres.connect(autocommit=False) as one, postgres.connect(autocommit=False) as other:
        one.execute("SELECT pg_advisory_xact_lock(7002, 1)")
        other.execute("SELECT pg_advisory_xact_lock(7002, 2)")
        thread = threading.Thread(target=wait_for, args=(other,))
        thread.start()
        try:
            one.execute("SELECT pg_advisory_xact_lock(7002, 2)")
        except psycopg.Error as error:
            errors.append(error)
        one.rollback()
        thread.join()

    assert ["40P01"] == [error.sqlstate for error in errors]
    assert "try again" in str(meant(errors[0]))


def test_duplicate_key_quotes_no_key(postgres: Postgres, schema: str) -> None:
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE TABLE {schema}.cf_keyed (key text PRIMARY KEY)")
    with closing(connect(parse(postgres.url(schema)), purpose="writer", busy_us=5_000_000)) as writer:
        writer.execute("INSERT INTO cf_keyed VALUES (%s)", ("s3cret",))
        with pytest.raises(psycopg.errors.UniqueViolation) as raised:
            writer.execute("INSERT INTO cf_keyed VALUES (%s)", ("s3cret",))

    assert f"{NAME}: PostgreSQL could not do it (SQLSTATE 23505)" == str(meant(raised.value))


def test_what_the_driver_itself_refuses() -> None:
    """It has no state of the server's."""
    error = psycopg.DataError("text fields cannot contain s3cret")

    assert f"{NAME}: psycopg could not do it (DataError)" == str(meant(error))


@pytest.mark.parametrize("immediate", [True, False])
def test_server_that_is_restarted(own_postgres: Server, immediate: bool) -> None:
    """The connection is lost; what comes after does not know why."""
    with closing(connect(parse(own_postgres.url("counterfoil")), purpose="writer", busy_us=5_000_000)) as writer:
        own_postgres.restart(immediate=immediate)
        for _ in range(2):
            with pytest.raises(psycopg.Error) as raised:
                writer.execute("SELECT 1")

            assert isinstance(meant(raised.value), JournalUnavailable)
            assert "try again" in str(meant(raised.value))
        assert writer.closed


def test_server_that_is_away(own_postgres: Server) -> None:
    own_postgres.stop()
    try:
        with pytest.raises(JournalUnavailable, match="cannot be reached"):
            connect(parse(own_postgres.url("counterfoil")), purpose="writer", busy_us=5_000_000)
    finally:
        own_postgres.start()


def test_session_that_was_ended(postgres: Postgres, schema: str) -> None:
    with closing(
        connect(parse(f"{postgres.url(schema)}&application_name={schema}"), purpose="writer", busy_us=5_000_000)
    ) as writer:
        assert postgres.terminate_backends(schema)
        with pytest.raises(psycopg.Error) as raised:
            writer.execute("SELECT 1")

        assert isinstance(meant(raised.value), JournalUnavailable)
        assert writer.closed
