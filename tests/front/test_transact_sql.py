"""What a host's statements may touch: its own tables, in every way, and nothing of the journal's."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import counterfoil
from counterfoil import TimelineFilter
from counterfoil.infrastructure.recorder import JournalRecorder
from counterfoil.infrastructure.sqlite.host_statements import HIDES, OURS, SEQUENCES, SETTINGS, TRANSACTIONS
from counterfoil.infrastructure.statements import statements
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from tests.front.conftest import HoldKey

pytestmark = pytest.mark.sqlite_only("SQLite asks about each table that a statement touches; PostgreSQL has roles for that")

PERSON = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])
HELLO = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")


@pytest.fixture
def shop(journal: counterfoil.Journal) -> Iterator[counterfoil.Journal]:
    """A journal with an event, and tables of the host's."""
    journal.admit(HELLO, GRANT)

    def body(tx: counterfoil.Tx) -> None:
        tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT)")
        tx.execute("INSERT INTO orders (item) VALUES ('tea')")

    journal.transact(body)
    yield journal
    assert journal.verify().agrees
    assert [("tea",)] == run(journal, "SELECT item FROM orders WHERE id = 1")


def run(journal: counterfoil.Journal, *texts: str) -> list[tuple[object, ...]]:
    """Execute statements in one transaction; returns the rows of the last."""
    return journal.transact(lambda tx: [tx.execute(text) for text in texts])[-1].rows


TOUCH_OURS = [
    "SELECT * FROM cf_event",
    "SELECT count(*) FROM cf_payload",
    "SELECT 1 FROM CF_Event",
    'SELECT 1 FROM main."cf_event"',
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM cf_head)",
    "WITH e AS (SELECT * FROM cf_event) SELECT count(*) FROM e",
    "EXPLAIN SELECT * FROM cf_event",
    "INSERT INTO orders (item) SELECT state FROM cf_event",
    "INSERT INTO cf_event (position) VALUES (99)",
    "UPDATE cf_head SET position = 0",
    "UPDATE orders SET item = (SELECT body FROM cf_payload)",
    "DELETE FROM cf_event",
    "DROP TABLE cf_event",
    "ALTER TABLE cf_event ADD COLUMN x",
    "ALTER TABLE cf_event RENAME TO events",
    "ALTER TABLE orders RENAME TO cf_orders",
    "ALTER TABLE orders RENAME TO 'CF_orders'",
    "CREATE TABLE cf_mine (x)",
    "CREATE TEMP TABLE cf_event (x)",
    "CREATE TABLE [cf_mine] AS SELECT 1",
    "CREATE INDEX by_state ON cf_event (state)",
    "CREATE INDEX cf_by_item ON orders (item)",
    "CREATE TRIGGER t AFTER INSERT ON cf_event BEGIN SELECT 1; END",
    "CREATE TRIGGER cf_t AFTER INSERT ON orders BEGIN SELECT 1; END",
    "CREATE TRIGGER t AFTER INSERT ON orders BEGIN DELETE FROM cf_event; END",
    "CREATE TEMP TRIGGER t AFTER INSERT ON main.cf_event BEGIN SELECT 1; END",
    "CREATE VIEW v AS SELECT * FROM cf_event",
    "CREATE TEMP VIEW v AS SELECT * FROM cf_event",
    "CREATE VIEW cf_v AS SELECT 1",
    "CREATE VIRTUAL TABLE cf_t USING fts5(x)",
    "CREATE VIRTUAL TABLE cf USING fts5(x)",
    "ANALYZE",
    "ANALYZE cf_event",
]


@pytest.mark.contract("JRN-17")
@pytest.mark.parametrize("text", TOUCH_OURS)
def test_what_is_the_journals_is_not_touched(shop: counterfoil.Journal, text: str) -> None:
    for _ in range(2):
        with pytest.raises(counterfoil.InvalidValue, match=re.escape(OURS)) as refused:
            run(shop, text)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None, "no error of the driver is chained"


@pytest.mark.parametrize(
    "text", ["BEGIN", "begin immediate", "COMMIT", "END", "ROLLBACK", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"]
)
def test_a_transaction_is_not_ended_from_inside(shop: counterfoil.Journal, text: str) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(TRANSACTIONS)):
        run(shop, text)


@pytest.mark.parametrize(
    "text",
    [
        "PRAGMA user_version = 1",
        " ;\n pragma page_size",
        "/* why */ PRAGMA journal_mode = DELETE",
        "-- why\nPRAGMA writable_schema = 1",
        "SELECT * FROM pragma_table_info('orders')",
        "ATTACH ':memory:' AS other",
        "DETACH main",
    ],
)
def test_the_connection_is_not_changed(shop: counterfoil.Journal, text: str) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(SETTINGS)):
        run(shop, text)


@pytest.mark.contract("JRN-17")
@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM sqlite_sequence",
        "UPDATE sqlite_sequence SET seq = 0",
        "INSERT INTO sqlite_sequence VALUES ('orders', 9)",
        "INSERT INTO sqlite_stat1 VALUES ('cf_event', NULL, '1')",
        "INSERT INTO SQLite_Stat1 VALUES ('cf_event', NULL, '1')",
        "/* ANALYZE */ INSERT INTO sqlite_stat1 VALUES ('cf_event', NULL, '1')",
        "REPLACE INTO main.sqlite_stat1 SELECT 'cf_event', NULL, '1' AS analyze",
        "UPDATE sqlite_stat1 SET tbl = 'cf_event'",
        "DELETE FROM sqlite_stat1",
        "DROP TABLE sqlite_stat1",
        "WITH w AS (SELECT 1) DELETE FROM sqlite_stat1",
    ],
)
def test_what_sqlite_keeps_about_all_tables_is_not_changed(shop: counterfoil.Journal, text: str) -> None:
    """Neither the numbers that were given nor the statistics, by which it chooses how to read the journal's tables."""
    run(shop, "ANALYZE orders")
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(SEQUENCES)):
        run(shop, text)
    assert [("orders", None, "1")] == run(shop, "SELECT * FROM sqlite_stat1")


def test_a_trigger_changes_no_statistics(shop: counterfoil.Journal) -> None:
    run(shop, "ANALYZE orders")
    trigger = "CREATE TRIGGER t AFTER INSERT ON orders BEGIN DELETE FROM sqlite_stat1; END"
    run(shop, trigger)
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(SEQUENCES)):
        run(shop, "INSERT INTO orders (item) VALUES ('milk')")
    run(shop, "DROP TRIGGER t")


@pytest.mark.contract("JRN-17")
def test_a_host_gathers_statistics_of_its_own_tables(shop: counterfoil.Journal) -> None:
    """SQLite writes them then, and forgets them with what they are of."""
    run(shop, "CREATE INDEX by_item ON orders (item)")
    for text in ("ANALYZE orders", " ;\n-- why\n/* because */ analyze main.orders", "ANALYZE by_item"):
        run(shop, text)
        assert [("orders", "by_item")] == run(shop, "SELECT tbl, idx FROM sqlite_stat1 WHERE idx IS NOT NULL")
    run(shop, "CREATE TABLE more (x)", "INSERT INTO more VALUES (1)", "ANALYZE more")
    run(shop, "DROP INDEX by_item", "DROP TABLE more")
    assert [] == run(shop, "SELECT tbl FROM sqlite_stat1 WHERE idx IS NOT NULL OR tbl = 'more'")


# Tables under the names of functions that the journal's statements use.


def read_all_ways(journal: counterfoil.Journal) -> list[object]:
    """Read what is read with lists."""
    view = journal.acting_as(PERSON)
    (operation,) = view.unresolved().rows
    page = view.timeline(TimelineFilter(connection="tg", conversation="c", actor="ann", types=["operation.admitted"]))
    explained = view.explain(operation.operation_id)
    recorder = JournalRecorder(journal.core)
    topics = recorder.select_notifications(None, 10, topics=["operation.admitted/1"])
    return [len(page.rows), len(explained), len(view.statistics().totals), len(topics)]


@pytest.mark.parametrize("name", ["json_each", "json_tree"])
@pytest.mark.parametrize("kind", ["TABLE {} (value)", "VIEW {} AS SELECT 'x' AS value", "VIRTUAL TABLE {} USING fts5(value)"])
@pytest.mark.parametrize("way", ["transact", "transact in memory", "a connection of its own"])
def test_a_table_of_the_hosts_hides_no_function_from_the_journal(journal_url: str, name: str, kind: str, way: str) -> None:
    text = "CREATE " + kind.format(name)
    with counterfoil.open(":memory:" if way == "transact in memory" else journal_url) as journal:
        journal.admit(HELLO, GRANT)
        before = read_all_ways(journal)
        assert [1, 1, 1, 1] == before
        if way == "a connection of its own":
            with closing(sqlite3.connect(journal_url)) as other:
                other.execute(text)
        else:
            run(journal, text)
        assert before == read_all_ways(journal)
        assert not journal.admit(HELLO.model_copy(update={"event_id": "2"}), GRANT).duplicate
        assert journal.verify().agrees


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMP TABLE json_each (value)",
        "CREATE TABLE temp.JSON_EACH AS SELECT 1 AS value",
        "CREATE TEMP VIEW json_each AS SELECT 1 AS value",
        "CREATE VIEW temp.json_each AS SELECT 1 AS value",
        "CREATE VIRTUAL TABLE temp.json_each USING fts5(value)",
        "ALTER TABLE scratch RENAME TO Json_Each",
    ],
)
def test_a_temporary_table_that_would_hide_one_is_refused(shop: counterfoil.Journal, text: str) -> None:
    """A journal in memory is read on the connection that it would be in."""
    run(shop, "CREATE TEMP TABLE scratch AS SELECT value FROM json_each('[1, 2]')")
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(HIDES)):
        run(shop, text)
    assert [1, 1, 1, 1] == read_all_ways(shop)
    assert [(1,), (2,)] == run(shop, "SELECT * FROM scratch")


def test_a_body_may_go_on_after_a_refusal(shop: counterfoil.Journal) -> None:
    def body(tx: counterfoil.Tx) -> int:
        for text in TOUCH_OURS:
            with pytest.raises(counterfoil.InvalidValue):
                tx.execute(text)
        return tx.execute("INSERT INTO orders (item) VALUES ('milk')").rowcount

    assert 1 == shop.transact(body)
    assert [("tea",), ("milk",)] == run(shop, "SELECT item FROM orders")


def test_a_statement_of_ours_is_refused_word_by_word(shop: counterfoil.Journal) -> None:
    """It lies compiled in the cache of the connection, from when everything was allowed."""
    shop.admit(HELLO, GRANT)
    ours = statements("sqlite/read.sql")
    assert ours.head == ours.head.strip()
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(OURS)):
        run(shop, ours.head)


def test_no_statement_of_ours_ends_in_a_space() -> None:
    """By that the texts of the host's are told from ours in the cache."""
    for name in ("append", "read", "schema", "timeline", "verify", "recorder"):
        texts = statements(f"sqlite/{name}.sql")._by_name.values()
        assert texts
        assert all(text == text.strip() for text in texts)


@pytest.mark.parametrize("first", ["host", "journal"])
def test_a_view_that_another_connection_made_is_refused_when_it_is_used(journal_url: str, first: str) -> None:
    """A statement that was compiled is looked at again when the schema has changed, and so is a trigger that it sets off."""
    with counterfoil.open(journal_url) as journal:
        journal.admit(HELLO, GRANT)
        run(journal, "CREATE TABLE orders (item TEXT)", "CREATE VIEW v AS SELECT item FROM orders")
        if first == "journal":  # so that both statements lie compiled in the cache
            assert [] == run(journal, "SELECT * FROM v")
            run(journal, "INSERT INTO orders VALUES ('tea')", "DELETE FROM orders")
        other = sqlite3.connect(journal_url)
        other.executescript("""
            DROP VIEW v;
            CREATE VIEW v AS SELECT state AS item FROM cf_event;
            CREATE TRIGGER t AFTER INSERT ON orders BEGIN UPDATE cf_head SET position = 0; END;
        """)
        other.close()

        for text in ("SELECT * FROM v", "INSERT INTO orders VALUES ('tea')"):
            with pytest.raises(counterfoil.InvalidValue, match=re.escape(OURS)):
                run(journal, text)
        run(journal, "DROP TRIGGER t", "DROP VIEW v", "CREATE VIEW v AS SELECT item FROM orders")
        run(journal, "INSERT INTO orders VALUES ('tea')")
        assert [("tea",)] == run(journal, "SELECT * FROM v")
        assert not journal.admit(HELLO.model_copy(update={"event_id": "2"}), GRANT).duplicate
        assert journal.verify().agrees


@pytest.mark.contract("JRN-17")
def test_a_host_does_with_its_tables_what_sqlite_can(shop: counterfoil.Journal) -> None:
    run(
        shop,
        "CREATE TABLE lines (id INTEGER PRIMARY KEY AUTOINCREMENT, orders INTEGER REFERENCES orders, n INTEGER, cf_ray TEXT)",
        "CREATE INDEX by_order ON lines (orders)",
        "CREATE VIEW totals AS SELECT orders, sum(n) AS n FROM lines GROUP BY orders",
        "CREATE TRIGGER one AFTER INSERT ON orders BEGIN INSERT INTO lines (orders, n) VALUES (new.id, 1); END",
        "INSERT INTO orders (item) VALUES ('milk')",
        "ALTER TABLE lines ADD COLUMN price INTEGER CHECK (price > 0)",
        "ALTER TABLE lines RENAME COLUMN n TO number",
        "ALTER TABLE lines RENAME TO rows",
        "CREATE TEMP TABLE scratch AS SELECT * FROM rows",
        "CREATE VIRTUAL TABLE words USING fts5(item)",
        "INSERT INTO words SELECT item FROM orders",
        "ANALYZE orders",
        "REINDEX by_order",
    )
    assert [(2, 1)] == run(shop, "SELECT * FROM totals")
    assert [("milk",)] == run(shop, "SELECT * FROM words WHERE words MATCH 'milk'")
    assert ("rows",) in run(shop, "SELECT name FROM sqlite_master WHERE type = 'table'")
    assert shop.verify().agrees
    run(shop, "DROP VIEW totals", "DROP TABLE rows", "DROP TABLE words", "DROP TRIGGER one", "DROP TABLE scratch")
    assert shop.verify().agrees


def test_foreign_keys_are_not_checked(shop: counterfoil.Journal) -> None:
    """As SQLite's defaults have it, and the documentation says; the pragma that changes that is refused inside."""
    run(shop, "CREATE TABLE lines (orders INTEGER REFERENCES orders)", "INSERT INTO lines VALUES (99)")
    assert [(99,)] == run(shop, "SELECT * FROM lines")
    with pytest.raises(counterfoil.InvalidValue, match=re.escape(SETTINGS)):
        run(shop, "PRAGMA foreign_keys = on")


def test_several_statements_in_one_text_are_refused_as_sqlite3_does(shop: counterfoil.Journal) -> None:
    with pytest.raises((sqlite3.ProgrammingError, sqlite3.Warning), match="one statement at a time"):
        run(shop, "DELETE FROM orders; SELECT 1")


def test_extensions_are_not_loaded(shop: counterfoil.Journal) -> None:
    with pytest.raises(sqlite3.OperationalError, match="not authorized"):
        run(shop, "SELECT load_extension('mod_spatialite')")


# A parameter that is an object of the host's, with code.


class Calls:
    """A value that calls the transaction when SQLite asks what to store."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __conform__(self, protocol: object) -> str:
        self._call()
        return "milk"


@pytest.mark.parametrize("what", ["append", "guard"])
def test_the_journals_own_statements_run_inside_one_of_the_hosts(url: str, hold: HoldKey, what: str) -> None:
    """They are compiled then, and the rules are for the host's alone, before and after."""
    with counterfoil.open(url) as journal:
        lease = hold(journal)
        run(journal, "CREATE TABLE orders (item TEXT)")
        sqlite_engine(journal.core)._caches.forget()

        def body(tx: counterfoil.Tx) -> None:
            def call() -> None:
                if what == "append":
                    tx.append(counterfoil.Admit(HELLO, GRANT))
                else:
                    tx.guard(lease)
                with pytest.raises(counterfoil.InvalidValue, match=re.escape(OURS)):
                    tx.execute("SELECT * FROM cf_event")

            tx.execute("INSERT INTO orders VALUES (?)", [Calls(call)])

        journal.transact(body)
        assert [("milk",)] == run(journal, "SELECT item FROM orders")
        assert journal.admit(HELLO, GRANT).duplicate == (what == "append")
        assert journal.verify().agrees


def test_a_statement_inside_another_leaves_its_rules_alone(shop: counterfoil.Journal) -> None:
    """What SQLite refuses in the outer one for reasons of its own stays SQLite's."""

    def body(tx: counterfoil.Tx) -> None:
        def refused() -> None:
            with pytest.raises(counterfoil.InvalidValue):
                tx.execute("SELECT * FROM cf_event")

        tx.execute("INSERT INTO orders (id, item) VALUES (1, ?)", [Calls(refused)])

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        shop.transact(body)
