"""What a host's statement may be inside `transact` on PostgreSQL, by its text; and what the text does not tell."""

from __future__ import annotations

import psycopg
import pytest

import counterfoil
from counterfoil.infrastructure.postgres.host_statements import OURS, SETTINGS, SEVERAL, TRANSACTIONS, refusal
from tests.postgres.hosts import Shop

REFUSED: dict[str, list[str]] = {
    OURS: [
        "SELECT * FROM cf_event",
        "select 1 from CF_Event",
        'SELECT 1 FROM "cf_event"',
        'SELECT 1 FROM "CF_event"',
        'SELECT 1 FROM counterfoil . "cf_head"',
        "WITH e AS (SELECT * FROM cf_event) SELECT count(*) FROM e",
        "EXPLAIN SELECT * FROM cf_event",
        "INSERT INTO orders SELECT state FROM cf_event",
        "UPDATE cf_head SET position = 0",
        "DROP TABLE cf_event",
        "ALTER TABLE orders RENAME TO cf_orders",
        "CREATE TABLE cf_mine (x int)",
        "CREATE VIEW v AS SELECT * FROM cf_event",
        "SELECT cf_append('{}')",
        "SELECT/**/cf_clock()",
        "SELECT 'it''s' || cf_clock()",
        r"SELECT E'it\'s' || cf_clock()",
        "SELECT $$text$$, cf_clock()",
        "SELECT $a$ $b$ $a$, cf_clock()",
        "DO $$ BEGIN DELETE FROM cf_event; END $$",
        "CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $f$ DELETE FROM Cf_event $f$",
        "SELECT %s::text, cf_clock()",
        "SELECT %(cf_x)s, cf_clock()",
        "COPY cf_event TO STDOUT",
        "LOCK TABLE cf_event",
    ],
    TRANSACTIONS: [
        "BEGIN",
        " begin isolation level serializable",
        "START TRANSACTION",
        "COMMIT",
        "commit and chain",
        "END",
        "ROLLBACK",
        "ABORT",
        "SAVEPOINT s",
        "RELEASE s",
        "ROLLBACK TO s",
        "PREPARE TRANSACTION 'x'",
        "COMMIT PREPARED 'x'",
        "ROLLBACK PREPARED 'x'",
        "SET TRANSACTION READ ONLY",
        "SET LOCAL TRANSACTION READ ONLY",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "-- why\n/* because /* of */ that */ COMMIT",
        ";; ROLLBACK",
    ],
    SETTINGS: [
        "SET search_path TO elsewhere",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SET ROLE nobody",
        "RESET ALL",
        "DISCARD ALL",
        "LISTEN x",
        "UNLISTEN *",
        "PREPARE p AS SELECT 1",
        "DEALLOCATE ALL",
        "LOAD 'x'",
    ],
    SEVERAL: [
        "SELECT 1; SELECT 2",
        "SELECT 1; COMMIT",
        "SELECT ';'; -- one\nSELECT 2",
        "DELETE FROM orders;;x",
    ],
}
ALLOWED = [
    "",
    "-- nothing",
    "SELECT 1",
    "SELECT 1;",
    "SELECT 1 ; -- the end; COMMIT\n ;",
    "SELECT 'cf_event'",
    "SELECT 'cf_event' AS \"a cf_b\"",
    r"SELECT E'it\'s cf_event; COMMIT'",
    "SELECT 'a;b'",
    'SELECT 1 AS "a;b"',
    "SELECT acf_b, a.bcf_c FROM xcf_",
    "SELECT %(cf_value)s",
    "SELECT $1, $cf$text$cf$",
    "/* cf_event */ SELECT 1 -- cf_event",
    "/* unended cf_event",
    "SELECT 1e5, 0xcf, 1cf_",
    "SET LOCAL statement_timeout TO '1s'",
    "INSERT INTO orders VALUES ('BEGIN') RETURNING item",
    "CREATE TABLE begin_at (commit_at int)",
    "DECLARE c CURSOR FOR SELECT 1",
    "NOTIFY x",
    "LOCK TABLE orders",
    "SELECT 'unended",
    "SELECT $$unended",
    'SELECT "unended',
    "é ñ ü",
]


@pytest.mark.contract("JRN-17")
@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in REFUSED.items() for text in texts])
def test_what_is_refused(rule: str, text: str) -> None:
    assert refusal(text) == rule


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_not(text: str) -> None:
    assert refusal(text) is None


@pytest.mark.contract("JRN-17")
def test_a_body_may_go_on_after_a_refusal(shop: Shop) -> None:
    def body(tx: counterfoil.Tx) -> int:
        for rule, texts in REFUSED.items():
            for text in texts:
                with pytest.raises(counterfoil.InvalidValue) as refused:
                    tx.execute(text)
                assert str(refused.value) == rule
        return tx.execute("INSERT INTO orders VALUES ('milk')").rowcount

    assert shop.journal.transact(body) == 1
    assert shop.items == ["milk"]


@pytest.mark.contract("JRN-17")
def test_a_host_does_with_its_tables_what_postgresql_can(shop: Shop) -> None:
    def body(tx: counterfoil.Tx) -> None:
        for text in (
            "CREATE TABLE lines (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text REFERENCES orders, n int)",
            "CREATE INDEX by_item ON lines (item)",
            "CREATE VIEW totals AS SELECT item, sum(n) AS n FROM lines GROUP BY item",
            "CREATE FUNCTION one() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO lines (item, n) VALUES (new.item, 1); RETURN NULL; END $$",
            "CREATE TRIGGER one AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION one()",
            "INSERT INTO orders VALUES ('milk')",
            "ALTER TABLE lines ADD COLUMN price int CHECK (price > 0)",
            "CREATE TEMP TABLE scratch ON COMMIT DROP AS SELECT * FROM lines",
            "ANALYZE orders",
        ):
            tx.execute(text)
        assert tx.execute("SELECT * FROM totals").rows == [("milk", 1)]
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            tx.execute("INSERT INTO lines (item, n) VALUES ('tea', 1)")
        assert tx.execute("INSERT INTO orders VALUES ('tea') ON CONFLICT DO NOTHING").rowcount == 1
        assert tx.execute("SELECT count(*) FROM orders").rowcount == -1
        assert tx.execute("SELECT '100%'").rows == [("100%",)]
        assert tx.execute("SELECT %s || '%%'", ("100",)).rows == [("100%",)]
        assert tx.execute("SELECT %(a)s::int + 1", {"a": 1}).rows == [(2,)]

    shop.journal.transact(body)
    assert shop.items == ["milk", "tea"]


def test_what_a_view_or_a_function_reaches_is_a_matter_of_rights(shop: Shop) -> None:
    """The text of a statement does not tell; the documentation says so."""
    shop.postgres.execute(f'CREATE VIEW "{shop.schema}".history AS SELECT type FROM "{shop.schema}".cf_event')
    assert shop.journal.transact(lambda tx: tx.execute("SELECT * FROM history").rows) == []
