"""A host's own transaction, joined: its rows and what it appends commit together, or not at all, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper, Loader
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row

import counterfoil
from counterfoil.infrastructure.postgres.naming import quoted
from tests.postgres.hosts import GRANT, PERSON, ROOM, STALE, Shop, inbound, message
from tests.postgres_server import Server

Connect = Callable[[Shop], Any]


@pytest.mark.contract("LCK-12")
def test_rows_of_the_host_and_events_commit_together(shop: Shop) -> None:
    with shop.connect() as connection:
        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            admission = tx.append(message("1"))
        assert (admission.status, admission.duplicate, admission.version) == ("accepted", False, 1)
        assert admission.position is None, "nobody knows it before the commit"
        assert (shop.items, shop.events) == ([], [])
        connection.commit()

    assert (shop.items, shop.events) == (["tea"], ["1"])
    repeat = shop.journal.admit(inbound("1"), GRANT)
    assert (repeat.operation_id, repeat.duplicate, repeat.text_differs) == (admission.operation_id, True, False)


def test_what_is_rolled_back_leaves_nothing(shop: Shop) -> None:
    with shop.connect() as connection:
        for _ in range(2):
            shop.order(connection, "tea")
            with shop.journal.within(connection) as tx:
                assert not tx.append(message("1")).duplicate
            connection.rollback()

    assert (shop.items, shop.events) == ([], [])
    assert shop.types == ["opening.started", "opening.epoch_raised"], "the opening is there whatever becomes of it"


def test_a_connection_that_is_lost_leaves_nothing(shop: Shop) -> None:
    with shop.connect(application_name="host") as connection:
        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        shop.postgres.terminate_backends("host")
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    assert (shop.items, shop.events) == ([], [])


def test_the_events_are_those_of_the_opening_that_joined(shop: Shop) -> None:
    with counterfoil.open(shop.url) as other:
        other.admit(inbound("0", "other"), GRANT)
        with shop.connect() as connection:
            with shop.journal.within(connection) as tx:
                tx.append(message("1"))
            connection.commit()
        own = shop.journal.core.engine.opening_id
        assert own not in (None, other.core.engine.opening_id)
        rows = shop.postgres.execute(f'SELECT opening_id FROM "{shop.schema}".cf_event ORDER BY position DESC LIMIT 1')
        assert rows == [(own,)]


def test_an_admission_of_a_host_counts_for_what_the_opening_has_waiting(postgres: Any, schema: str) -> None:
    """Whatever the writer has cached before."""
    limits = counterfoil.Limits(max_pending_per_process=3, max_pending_per_binding=3)
    with counterfoil.open(postgres.url(schema), limits=limits) as journal:
        shop = Shop(postgres, schema, journal)
        assert journal.admit(inbound("1", "a"), GRANT).reason is None
        with shop.connect() as connection:
            with journal.within(connection) as tx:
                assert tx.append(message("2", "b")).reason is None
                assert tx.append(message("3", "b")).reason is None
                assert tx.append(message("4", "b")).reason == "capacity"
            connection.commit()
        assert journal.admit(inbound("5", "a"), GRANT).reason == "capacity"
        assert shop.events == ["1", "2", "3"]
        assert journal.verify().agrees


@pytest.mark.contract("JRN-05")
def test_admissions_are_checked_as_those_of_the_journal_are(shop: Shop) -> None:
    unverified = GRANT.model_copy(update={"identity": PERSON.model_copy(update={"verified": False})})
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            answers = [
                tx.append(message("1")),
                tx.append(message("1", text="other")),
                tx.append(message("2", text="x" * 1_000_000)),
                tx.append(message("3", text="/new")),
                tx.append(counterfoil.Admit(inbound("4"), unverified)),
                tx.append(counterfoil.Admit(inbound("5"), GRANT, command_id="once")),
                tx.append(counterfoil.Admit(inbound("5"), GRANT, command_id="once")),
            ]
            with pytest.raises(counterfoil.CommandConflict):
                tx.append(counterfoil.Admit(inbound("6"), GRANT, command_id="once"))
        connection.commit()
    assert [(answer.status, answer.reason, answer.duplicate, answer.text_differs) for answer in answers] == [
        ("accepted", None, False, False),
        ("accepted", None, True, True),
        ("denied", "oversized", False, False),
        ("unsupported", "unknown_command", False, False),
        ("denied", "revoked", False, False),
        ("accepted", None, False, False),
        ("accepted", None, False, False),
    ]
    assert answers[5] == answers[6]
    assert shop.events == ["1", "5"]
    again = shop.journal.admit(inbound("5"), GRANT, command_id="once")
    assert (again.operation_id, again.duplicate) == (answers[5].operation_id, False)
    with pytest.raises(counterfoil.CommandConflict):
        shop.journal.admit(inbound("6"), GRANT, command_id="once")


def test_a_repeat_is_recorded_unless_the_same_transaction_admits_the_event(shop: Shop) -> None:
    shop.journal.admit(inbound("1"), GRANT)
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            answers = [tx.append(message(event_id)).duplicate for event_id in ("1", "1", "2", "2", "2")]
        connection.commit()

    assert answers == [True, True, False, True, True]
    assert shop.types[2:] == ["operation.admitted", "operation.repeated", "operation.admitted"]
    counts = shop.postgres.execute(f'SELECT operation, count FROM "{shop.schema}".cf_repeat ORDER BY 1')
    assert counts == [(3, 1), (5, 2)]


# Connections of all kinds.


def with_foreign_adapters(shop: Shop) -> Any:
    class Strange(Dumper):
        def dump(self, obj: Any) -> bytes:
            return b"strange"

    class Fails(Loader):
        def load(self, data: Any) -> Any:
            raise ArithmeticError

    context = shop.connect()
    connection = context.__enter__()
    for kind in (str, bytes, int, bool):
        connection.adapters.register_dumper(kind, Strange)
    for name in ("bool", "int8", "text", "int4"):
        connection.adapters.register_loader(name, Fails)
    return context, connection


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prepares at once": {"prepare_threshold": 0},
    "prepares soon": {"prepare_threshold": 1},
    "never prepares": {"prepare_threshold": None},
    "binds in the client": {"cursor_factory": psycopg.ClientCursor},
    "binds by numbers": {"cursor_factory": psycopg.RawCursor},
    "rows as dictionaries": {"row_factory": dict_row},
    "rows as tuples with names": {"row_factory": namedtuple_row},
    "rows as scalars": {"row_factory": scalar_row},
    "rows of a class": {"row_factory": class_row(Shop)},
    "another encoding": {"client_encoding": "latin1"},
    "no encoding": {"client_encoding": "sql_ascii"},
    "another search path": {"options": "-c search_path=pg_temp,nowhere"},
    "old strings": {"options": "-c standard_conforming_strings=off -c bytea_output=escape -c datestyle=sql"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocommit", [False, True], ids=["", "in autocommit"])
def test_kinds_of_connections(shop: Shop, kind: str, autocommit: bool) -> None:
    with shop.connect(autocommit=autocommit, **KINDS[kind]) as connection:
        before = {
            name: getattr(connection, name) for name in ("autocommit", "row_factory", "cursor_factory", "prepare_threshold")
        }
        for number in range(4):
            with connection.transaction():
                shop.order(connection, f"tea {number}")
                with shop.journal.within(connection) as tx:
                    assert tx.append(message(f"{number}", f"c{number}")).status == "accepted"
        assert before == {name: getattr(connection, name) for name in before}

    assert shop.items == [f"tea {number}" for number in range(4)]
    assert shop.events == [f"{number}" for number in range(4)]


def test_adapters_of_the_hosts_have_no_say(shop: Shop) -> None:
    context, connection = with_foreign_adapters(shop)
    with shop.journal.within(connection) as tx:
        tx.append(message("1"))
    connection.commit()
    context.__exit__(None, None, None)

    assert shop.events == ["1"]


def test_temporary_tables_by_our_names_fool_nobody(shop: Shop) -> None:
    with shop.connect(options="-c search_path=pg_temp,pg_catalog") as connection:
        for name in ("cf_staged", "cf_leases_v1", "pg_locks"):
            connection.execute(f"CREATE TEMP TABLE {name} (id int)".encode())
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        connection.commit()
    assert shop.events == ["1"]


def test_a_schema_of_any_name(postgres: Any) -> None:
    schema = 'Grüezi "%s" %'
    postgres.drop(schema)
    url = postgres.url("Gr%C3%BCezi%20%22%25s%22%20%25")
    try:
        with counterfoil.open(url) as journal, postgres.connect(autocommit=False, client_encoding="latin1") as connection:
            with journal.within(connection) as tx:
                tx.append(message("1"))
            connection.commit()
            assert journal.admit(inbound("1"), GRANT).duplicate
    finally:
        postgres.drop(schema)


def test_the_settings_of_the_session_are_as_they_were(shop: Shop) -> None:
    settings = (
        b"SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'transaction%' AND name NOT LIKE 'plpgsql.%' ORDER BY 1"
    )
    with shop.connect() as connection:
        before = connection.execute(settings).fetchall()
        connection.commit()
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        assert before == connection.execute(settings).fetchall()
        connection.commit()
        assert before == connection.execute(settings).fetchall()


# Several blocks, and savepoints.


def test_blocks_go_on_from_each_other(shop: Shop) -> None:
    with shop.connect() as connection:
        answers = []
        for event_id in ("1", "2", "1", "3"):
            with shop.journal.within(connection) as tx:
                answers.append(tx.append(message(event_id)))
            shop.order(connection, f"{len(answers)}")
        connection.commit()
    assert [answer.duplicate for answer in answers] == [False, False, True, False]
    assert answers[0].operation_id == answers[2].operation_id
    assert shop.events == ["1", "2", "3"]
    assert len(shop.items) == 4


def test_blocks_go_on_from_each_other_while_others_append(shop: Shop) -> None:
    """A scope that begins with the transaction keeps its key, and so the ids that were answered."""
    stranger = GRANT.model_copy(update={"identity": PERSON.model_copy(update={"user": "eve", "principal": "eve"})})
    with shop.connect() as connection:
        answers = []
        for number in range(5):
            shop.journal.admit(inbound(f"other {number}", "other"), GRANT)
            with shop.journal.within(connection) as tx:
                answers.append(tx.append(counterfoil.Admit(inbound(f"{number}"), stranger)))
        connection.commit()
    assert len({answer.operation_id for answer in answers}) == 5
    for number, answer in enumerate(answers):
        assert shop.journal.admit(inbound(f"{number}"), stranger).operation_id == answer.operation_id


def test_a_savepoint_that_is_rolled_back_takes_what_was_appended_after_it(shop: Shop) -> None:
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("kept"))
        with connection.transaction(force_rollback=True):
            with shop.journal.within(connection) as tx:
                tx.append(message("dropped"))
        with shop.journal.within(connection) as tx:
            assert not tx.append(message("dropped")).duplicate
            with connection.transaction(force_rollback=True):
                assert tx.append(message("dropped")).duplicate
                tx.append(message("dropped too"))
            assert not tx.append(message("after")).duplicate
        connection.commit()

    assert shop.events == ["kept", "dropped", "after"]


def test_a_savepoint_that_is_rolled_back_with_all_of_it(shop: Shop) -> None:
    with shop.connect() as connection:
        shop.order(connection, "tea")
        with connection.transaction(force_rollback=True):
            for event_id in ("1", "2"):
                with shop.journal.within(connection) as tx:
                    tx.append(message(event_id))
        connection.commit()
    assert (shop.items, shop.events) == (["tea"], [])


def test_a_savepoint_that_is_released_keeps_it(shop: Shop) -> None:
    with shop.connect() as connection:
        with connection.transaction():
            with connection.transaction():
                with shop.journal.within(connection) as tx:
                    tx.append(message("1"))
            with shop.journal.within(connection) as tx:
                tx.append(message("2"))
    assert shop.events == ["1", "2"]


@pytest.mark.parametrize("before", [False, True], ids=["alone", "after another"])
def test_a_block_that_raises_takes_back_what_it_appended(shop: Shop, before: bool) -> None:
    """Also if the host goes on, and commits."""
    with shop.connect() as connection:
        if before:
            with shop.journal.within(connection) as tx:
                tx.append(message("before"))

        def block() -> None:
            with shop.journal.within(connection) as tx:
                tx.append(message("1"))
                tx.append(message("2"))
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            block()
        shop.order(connection, "tea")
        connection.commit()
        with shop.journal.within(connection) as tx:
            assert not tx.append(message("1")).duplicate
        connection.commit()

    assert shop.items == ["tea"]
    assert shop.events == (["before", "1"] if before else ["1"])


def test_a_block_that_raises_brings_nothing_back_that_was_rolled_back(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("SAVEPOINT first")
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))

        def block() -> None:
            with shop.journal.within(connection) as tx:
                connection.execute("ROLLBACK TO first")
                tx.append(message("2"))
                raise ArithmeticError

        with pytest.raises(ArithmeticError):
            block()
        connection.commit()
    assert shop.events == []


def test_a_statement_that_fails_in_a_block_fails_its_transaction(shop: Shop) -> None:
    with shop.connect() as connection:

        def block() -> None:
            with shop.journal.within(connection) as tx:
                tx.append(message("1"))
                connection.execute("SELECT 1 / 0")

        with pytest.raises(psycopg.errors.DivisionByZero):
            block()
        with pytest.raises(counterfoil.InvalidValue, match="the transaction of the connection has failed"):
            shop.journal.within(connection).__enter__()
        connection.rollback()
        with shop.journal.within(connection) as tx:
            tx.append(message("2"))
        connection.commit()
    assert shop.events == ["2"]


def test_one_connection_for_many_transactions(shop: Shop) -> None:
    """Nothing of one is taken for part of the next."""
    with shop.connect() as connection:
        for number in range(10):
            with shop.journal.within(connection) as tx:
                assert not tx.append(message(f"{number}")).duplicate
            if number % 2:
                connection.commit()
            else:
                connection.rollback()
    assert shop.events == ["1", "3", "5", "7", "9"]


def test_two_journals_in_one_transaction(shop: Shop, postgres: Any, new_schema: Callable[[], str]) -> None:
    shop.journal.admit(inbound("0", "a third"), GRANT)
    with counterfoil.open(postgres.url(new_schema())) as other, counterfoil.open(shop.url) as same:
        with shop.connect() as connection:
            with shop.journal.within(connection) as tx, other.within(connection) as further, same.within(connection) as third:
                tx.append(message("1"))
                further.append(message("1"))
                third.append(message("2", "another"))
            connection.commit()
        assert shop.events == ["0", "1", "2"]
        assert other.admit(inbound("1"), GRANT).duplicate
        assert other.verify().agrees


# What others append meanwhile.


@pytest.mark.contract("JRN-02")
def test_a_decision_gone_stale_fails_the_commit_with_all_of_it(shop: Shop) -> None:
    with shop.connect() as connection:
        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        shop.journal.admit(inbound("2"), GRANT)
        with pytest.raises(psycopg.errors.SerializationFailure, match=STALE):
            connection.commit()
        assert (shop.items, shop.events) == ([], ["2"])

        shop.order(connection, "tea")
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        connection.commit()
    assert (shop.items, shop.events) == (["tea"], ["2", "1"])


@pytest.mark.contract("JRN-02", "ADM-02")
def test_the_same_event_by_two_hosts_is_admitted_once(shop: Shop) -> None:
    with counterfoil.open(shop.url) as other, shop.connect() as first, shop.connect() as second:
        for journal, connection in ((shop.journal, first), (other, second)):
            with journal.within(connection) as tx:
                assert not tx.append(message("1")).duplicate
        first.commit()
        with pytest.raises(psycopg.errors.SerializationFailure, match=STALE):
            second.commit()
        with other.within(second) as tx:
            assert tx.append(message("1")).duplicate
        second.commit()
    assert shop.events == ["1"]


def test_an_answer_that_would_come_out_otherwise_now_is_stale_at_once(shop: Shop) -> None:
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        shop.journal.admit(inbound("1"), GRANT)
        with pytest.raises(psycopg.errors.SerializationFailure, match=STALE):
            with shop.journal.within(connection) as tx:
                tx.append(message("2", "other"))
        connection.rollback()
    assert shop.events == ["1"]


def test_appends_in_other_conversations_do_not_matter(shop: Shop) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        for number in range(50):
            shop.journal.admit(inbound(f"other {number}", f"other {number}"), GRANT)
        connection.commit()
    assert shop.events[-1] == "1"
    assert len(shop.events) == 52


def test_two_of_whom_each_begins_the_scope_of_the_same_people(shop: Shop) -> None:
    """Its key is drawn by whoever commits first, and all that was answered by the other came of another key."""
    with shop.connect() as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        shop.journal.admit(inbound("2", "other"), GRANT)
        with pytest.raises(psycopg.errors.SerializationFailure, match=STALE):
            connection.commit()
    assert shop.events == ["2"]


@pytest.mark.contract("OBX-01", "LCK-16")
def test_nobody_waits_for_a_host_that_dawdles(shop: Shop) -> None:
    """For two seconds it has decided, staged and locked; others append all the while, in its conversation too."""
    longest, counted, stop = 0.0, 0, threading.Event()
    shop.journal.admit(inbound("0"), GRANT)

    def write(journal: counterfoil.Journal, name: str) -> tuple[float, int]:
        longest, number = 0.0, 0
        while not stop.is_set():
            began = time.monotonic()
            assert journal.admit(inbound(f"{name} {number}", f"{name} {number}"), GRANT).status == "accepted"
            longest = max(longest, time.monotonic() - began)
            number += 1
        return longest, number

    with counterfoil.open(shop.url, limits=ROOM) as other, ThreadPoolExecutor(2) as threads, shop.connect() as connection:
        lock = shop.journal.lock("orders")
        with lock.hold("k") as lease:
            shop.order(connection, "tea")
            with shop.journal.within(connection) as tx:
                tx.guard(lease)
                tx.append(message("1"))
                writers = [threads.submit(write, journal, name) for journal, name in ((shop.journal, "a"), (other, "b"))]
                time.sleep(2)
            stop.set()
            for longest_of_one, number in (writer.result(30) for writer in writers):
                longest, counted = max(longest, longest_of_one), counted + number
            connection.commit()

    assert counted > 20, "one that waited for the host would have admitted one event"
    assert longest < 2
    assert "1" in shop.events


# Isolation levels.


LEVELS = (psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE)


@pytest.mark.parametrize("level", LEVELS)
def test_under_an_old_snapshot_nothing_stands_that_others_have_appended_to(shop: Shop, level: psycopg.IsolationLevel) -> None:
    shop.journal.admit(inbound("0"), GRANT)
    with shop.connect() as connection:
        connection.isolation_level = level
        attempts = 0
        while True:
            attempts += 1
            try:
                with connection.transaction():
                    shop.order(connection, "tea")
                    with shop.journal.within(connection) as tx:
                        tx.append(message("1"))
                    if attempts == 1:
                        shop.journal.admit(inbound("2", "another"), GRANT)
                break
            except psycopg.errors.SerializationFailure:
                assert (shop.items, shop.events) == ([], ["0", "2"])
    assert attempts == 2
    assert (shop.items, shop.events) == (["tea"], ["0", "2", "1"])


@pytest.mark.parametrize("level", LEVELS)
def test_several_blocks_and_savepoints_under_an_old_snapshot(shop: Shop, level: psycopg.IsolationLevel) -> None:
    with shop.connect() as connection:
        connection.isolation_level = level
        for _ in range(2):
            with shop.journal.within(connection) as tx:
                tx.append(message("1"))
            with connection.transaction(force_rollback=True):
                with shop.journal.within(connection) as tx:
                    tx.append(message("dropped"))
            with shop.journal.within(connection) as tx:
                tx.append(message("2"))
            connection.commit()
    assert shop.events == ["1", "2"]


@pytest.mark.contract("JRN-02")
def test_hosts_that_count_lose_nothing(shop: Shop) -> None:
    """Serializable transactions of several hosts that read, write and append, each again until it stands."""
    shop.postgres.execute(f'CREATE TABLE "{shop.schema}".counter AS SELECT 0 AS n')

    def count(name: str) -> int:
        retries = 0
        with shop.connect() as connection:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            for number in range(10):
                while True:
                    try:
                        with connection.transaction():
                            ((value,),) = connection.execute(f'SELECT n FROM "{shop.schema}".counter'.encode()).fetchall()
                            connection.execute(f'UPDATE "{shop.schema}".counter SET n = {value + 1}'.encode())
                            with shop.journal.within(connection) as tx:
                                tx.append(message(f"{name} {number}"))
                        break
                    except psycopg.errors.SerializationFailure:
                        retries += 1
        return retries

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(count, "abc"))
    assert shop.postgres.execute(f'SELECT n FROM "{shop.schema}".counter') == [(30,)]
    assert len(shop.events) == 30


def test_hosts_that_lock_in_opposite_order(shop: Shop) -> None:
    """One of them is ended by PostgreSQL; the other commits, and nothing of the journal hangs."""
    for item in ("tea", "milk"):
        shop.postgres.execute(f"INSERT INTO {shop.orders} VALUES ('{item}')")
    both = threading.Barrier(2)

    def lock(first: str, second: str) -> bool:
        with shop.connect() as connection:
            statement = f"SELECT FROM {shop.orders} WHERE item = '{{}}' FOR UPDATE"
            connection.execute(statement.format(first).encode())
            with shop.journal.within(connection) as tx:
                tx.append(message(first, first))
            both.wait(30)
            try:
                connection.execute(statement.format(second).encode())
                connection.commit()
            except psycopg.errors.DeadlockDetected:
                return False
            return True

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(lock, "tea", "milk"), threads.submit(lock, "milk", "tea")]
        assert shop.journal.admit(inbound("meanwhile", "another"), GRANT).status == "accepted"
        committed = [each.result(30) for each in done]
    assert sorted(committed) == [False, True]
    assert sorted(shop.events) == sorted(["meanwhile", "tea" if committed[0] else "milk"])


# What a host must not do with what it has staged.


def test_a_transaction_with_staged_records_is_not_prepared() -> None:
    """Somebody might never commit it, and all others would wait."""
    server = Server(max_prepared_transactions="2")
    try:
        with counterfoil.open(server.url("counterfoil")) as journal:
            shop = Shop(server, "counterfoil", journal)
            with shop.connect() as connection:
                connection.tpc_begin(connection.xid(1, "host", "host"))
                shop.order(connection, "tea")
                with journal.within(connection) as tx:
                    tx.append(message("1"))
                with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
                    connection.tpc_prepare()
                connection.close()
            assert (shop.items, shop.events) == ([], [])
            assert server.execute("SELECT gid FROM pg_prepared_xacts") == []
            assert journal.admit(inbound("1"), GRANT).status == "accepted"
    finally:
        server.close()


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
def test_a_constraint_that_is_set_to_immediate_fails(shop: Shop, before: bool) -> None:
    """It would hold the append lock from then on."""
    everything = b"SET CONSTRAINTS ALL IMMEDIATE"
    with shop.connect() as connection:
        if before:
            connection.execute(everything)
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="appended by its COMMIT"):
                with shop.journal.within(connection) as tx:
                    tx.append(message("1"))
        else:
            with shop.journal.within(connection) as tx:
                tx.append(message("1"))
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="appended by its COMMIT"):
                connection.execute(everything)
        connection.rollback()
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        connection.commit()
    assert shop.events == ["1"]


@pytest.mark.contract("OBX-01", "JRN-03")
def test_what_a_host_commits_is_durable_whatever_its_session_says(shop: Shop) -> None:
    """A trigger of the host's, which fires in the same COMMIT, sees how that is going to be."""
    shop.postgres.execute(
        f"""
        CREATE FUNCTION {quoted(shop.schema)}.tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO {shop.orders} VALUES ('synchronous_commit is ' || current_setting('synchronous_commit'));
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON {shop.orders} DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.item = 'tea') EXECUTE FUNCTION {quoted(shop.schema)}.tell()
        """
    )
    with shop.connect(options="-c synchronous_commit=off") as connection:
        with shop.journal.within(connection) as tx:
            tx.append(message("1"))
        shop.order(connection, "tea")
        connection.commit()

        assert ["synchronous_commit is on", "tea"] == shop.items
        assert ("off",) == connection.execute("SHOW synchronous_commit").fetchone()
