"""What a schema is made of: printed, compared, upgraded, and refused where it is not what this release needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import counterfoil
from counterfoil import FormatUnknown, Grant, Identity, Inbound, JournalRefused
from counterfoil.infrastructure.cli.group import cli
from counterfoil.infrastructure.postgres import ddl
from counterfoil.infrastructure.postgres.naming import quoted
from counterfoil.infrastructure.postgres.opening import FORMAT
from tests.postgres_server import Postgres, Server
from tests.rows import change, rows

GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, words, prog_name="counterfoil")
    assert status == result.exit_code, result.output
    assert "Traceback" not in result.output
    return result


def admit(url: str, event_id: str = "1") -> None:
    with counterfoil.open(url, create=False) as journal:
        inbound = Inbound(connection="tg", conversation="c", actor="ann", event_id=event_id, text="hello")
        assert "accepted" == journal.admit(inbound, GRANT).status


def execute(server: Postgres, sql: str, database: str = "counterfoil") -> subprocess.CompletedProcess[str]:
    """Run a script as its reader would: by psql, in one transaction."""
    assert isinstance(server, Server)
    host, port = server.address
    words = ["-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", str(port), "-U", "counterfoil", "-f", "-", database]
    return subprocess.run([server.binaries / "psql", *words], input=sql, capture_output=True, text=True, timeout=60, check=False)


NAMES = ["support", "odd \"name\\ with'quotes", "ÄÖ %s {schema} :x", "UPPER"]


@pytest.mark.contract("JRN-11")
@pytest.mark.parametrize("name", NAMES)
def test_the_script_makes_a_journal(own_postgres: Server, name: str) -> None:
    """By psql, whatever the schema is called; with what `schema check` compares, and what an opening needs."""
    url = own_postgres.database_url + "?schema=" + "".join(f"%{byte:02x}" for byte in name.encode())
    by_name, by_url = run("schema", "sql", "--schema", name).stdout, run("schema", "sql", url).stdout
    roles = run("schema", "roles", url).stdout
    try:
        assert by_name == by_url
        done = execute(own_postgres, by_name + roles)
        assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
        run("schema", "check", url)
        admit(url)
        run("verify", url)
        again = execute(own_postgres, by_name)
        assert again.returncode
        assert "already exists" in again.stderr
        assert 0 == execute(own_postgres, roles).returncode
    finally:
        own_postgres.drop(name)
        for kind in ("owner", "writer", "reader"):
            own_postgres.execute(f"DROP OWNED BY {quoted(f'{name}_{kind}')}; DROP ROLE {quoted(f'{name}_{kind}')}")


@pytest.mark.contract("JRN-11", "CLI-04")
def test_the_script_is_printed_without_a_driver(tmp_path: Path) -> None:
    """And without a word of the URL but the schema's name; the key of the journal is in none."""
    program = "import sys\nsys.modules['psycopg'] = None\nfrom counterfoil.infrastructure.cli import main\nmain()"
    words = ("schema", "sql", "postgresql://zoe:s3cret@db.example/chat?schema=bot")
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    again = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert 'CREATE SCHEMA "bot";' in done.stdout
    assert not any(secret in done.stdout for secret in ("zoe", "s3cret", "db.example"))
    assert done.stdout == again.stdout


@pytest.mark.contract("JRN-11")
def test_keys_are_made_by_the_database(postgres: Postgres, new_schema: Callable[[], str]) -> None:
    keys = set()
    for url in (postgres.url(new_schema()), postgres.url(new_schema())):
        counterfoil.open(url).__enter__().close()
        ((key, version, form),) = rows(url, "SELECT journal_key, schema_version, format FROM cf_head")
        assert (32, ddl.VERSION, FORMAT) == (len(key), version, form)
        keys.add(key)
    assert 2 == len(keys)


@pytest.mark.contract("JRN-11")
def test_creation_can_be_off(postgres: Postgres, schema: str) -> None:
    url = postgres.url(schema)
    with pytest.raises(JournalRefused, match="does not exist, and is not to be created here"):
        counterfoil.open(url, create=False).__enter__()
    assert [(None,)] == postgres.execute("SELECT to_regnamespace(%s)", (schema,))
    said = run(
        "run", url, "--agent", "counterfoil.demo:echo", "--deliver", "counterfoil.demo:print_reply", "--no-create", status=1
    )
    assert "does not exist" in said.stderr
    counterfoil.open(url).__enter__().close()
    admit(url)


# Differences.


@pytest.fixture
def url(postgres: Postgres, schema: str) -> str:
    """A journal with a history."""
    url = postgres.url(schema)
    counterfoil.open(url).__enter__().close()
    for number in range(3):
        admit(url, f"e{number}")
    return url


MENDED = {
    "an older function": (
        "CREATE OR REPLACE FUNCTION cf_ring(rings jsonb) RETURNS void LANGUAGE sql AS 'SELECT'",
        {("function", "cf_ring")},
    ),
    "a function without its settings": ("ALTER FUNCTION cf_append RESET ALL", {("function", "cf_append")}),
    "a function that took something else": (
        "DROP FUNCTION cf_erase; CREATE FUNCTION cf_erase(what text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        {("function", "cf_erase")},
    ),
    "a function that took something else beside it": (
        "CREATE FUNCTION cf_append(record text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        {("function", "cf_append")},
    ),
    "a function that is gone": ("DROP FUNCTION cf_arrive", {("function", "cf_arrive")}),
    "a right too many": ("GRANT EXECUTE ON FUNCTION cf_show_texts TO PUBLIC", {("function", "cf_show_texts")}),
    "an index that is gone": ("DROP INDEX cf_event_actor", {("index", "cf_event_actor")}),
    "another index": (
        "DROP INDEX cf_waiter_token; CREATE INDEX cf_waiter_token ON cf_waiter (token)",
        {("unique index", "cf_waiter_token")},
    ),
    "no trigger": ("DROP TRIGGER cf_staged ON cf_staged", {("trigger", "cf_staged")}),
    "a trigger that is off": ("ALTER TABLE cf_staged DISABLE TRIGGER cf_staged", {("trigger", "cf_staged")}),
    "a projection of an older release": (
        "DROP TABLE cf_unresolved_v1; DROP FUNCTION cf_write_unresolved_v1; DELETE FROM cf_projection WHERE name = 'unresolved'",
        {("table", "cf_unresolved_v1"), ("function", "cf_write_unresolved_v1"), ("projection", "unresolved")},
    ),
    "a projection that is not entered": ("DELETE FROM cf_projection WHERE name = 'statistics'", {("projection", "statistics")}),
    "a projection without its table": ("DROP TABLE cf_leases_v1", {("table", "cf_leases_v1")}),
    "an older version": ("UPDATE cf_head SET schema_version = 0", {("schema", "version")}),
}


@pytest.mark.contract("JRN-08", "JRN-11")
@pytest.mark.parametrize("case", MENDED)
def test_an_upgrade_makes_what_is_different(url: str, case: str) -> None:
    """Each difference is named, with status 3; afterwards there is none, the history is as it was, and there is nothing to do."""
    change_, expected = MENDED[case]
    before = rows(url, "SELECT position, digest FROM cf_event ORDER BY position")
    for statement in change_.split("; "):
        change(url, statement)

    found = json.loads(run("schema", "check", url, "--json", status=3).stdout)
    assert not found["agrees"]
    named = {(row["kind"], row["name"]) for row in found["rows"]}
    if any(kind == "table" for kind, _ in expected):
        named = {(kind, name) for kind, name in named if kind != "index"}
    assert expected == named
    assert all(name in run("schema", "check", url, status=3).stdout for _, name in expected)

    done = run("schema", "upgrade", url)
    assert all(name.removeprefix("cf_") in done.stdout for _, name in expected)
    assert "nothing to do" not in done.stderr
    assert {"rows": [], "next": None, "agrees": True} == json.loads(run("schema", "check", url, "--json").stdout)
    assert "There is nothing to do.\n" == run("schema", "upgrade", url).stderr
    assert before == rows(url, "SELECT position, digest FROM cf_event ORDER BY position")
    run("verify", url)
    admit(url, "after")
    assert 4 == len(json.loads(run("unresolved", url, "--json").stdout)["rows"])
    run("verify", url)


LEFT = {
    "a column of a host's": ("ALTER TABLE cf_event ADD COLUMN mine integer", ("column", "cf_event.mine")),
    "a column that may be absent": ("ALTER TABLE cf_event ALTER COLUMN state DROP NOT NULL", ("column", "cf_event.state")),
    "a constraint": ("ALTER TABLE cf_event ADD CONSTRAINT mine CHECK (position > 0)", ("constraint", "cf_event.mine")),
    "a table of ours": ("DROP TABLE cf_repeat", ("table", "cf_repeat")),
    "a table by our names": ("CREATE TABLE cf_mine (x integer)", ("table", "cf_mine")),
    "a function by our names": ("CREATE FUNCTION cf_mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'", ("function", "cf_mine")),
    "a unique index": ("CREATE UNIQUE INDEX mine ON cf_event (digest)", ("unique index", "mine")),
    "a trigger": (
        "CREATE TRIGGER mine BEFORE INSERT ON cf_event EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        ("trigger", "mine"),
    ),
}


@pytest.mark.contract("JRN-11")
@pytest.mark.parametrize("case", LEFT)
def test_what_no_upgrade_makes_is_left_and_told(url: str, case: str) -> None:
    statement, expected = LEFT[case]
    change(url, statement)

    (row,) = json.loads(run("schema", "check", url, "--json", status=3).stdout)["rows"]
    left = json.loads(run("schema", "upgrade", url, "--json", status=3).stdout)["left"]
    assert [row] == left
    assert expected == (row["kind"], row["name"])


@pytest.mark.contract("JRN-11", "JRN-17")
def test_what_is_the_hosts_is_no_difference(url: str) -> None:
    """Tables of its own, indexes that find things, how tables are stored, and what a projection of another release has."""
    for statement in (
        "CREATE TABLE mine (x integer)",
        "CREATE INDEX mine_too ON cf_event (type)",
        "ALTER TABLE cf_event SET (autovacuum_vacuum_scale_factor = 0.1)",
        "INSERT INTO cf_projection VALUES ('unresolved', 9, 0)",
        "CREATE TABLE cf_unresolved_v9 (x integer PRIMARY KEY)",
        "CREATE UNIQUE INDEX cf_unresolved_v9_x ON cf_unresolved_v9 (x)",
        "CREATE FUNCTION cf_write_unresolved_v9(jsonb, bigint, bigint, bigint, bigint) RETURNS void LANGUAGE sql AS 'SELECT'",
    ):
        change(url, statement)
    assert [("function", "cf_write", "has another body")] == [
        tuple(row.values()) for row in json.loads(run("schema", "check", url, "--json", status=3).stdout)["rows"]
    ]
    run("schema", "upgrade", url)
    run("schema", "check", url)
    admit(url, "after")
    run("verify", url)


# What an opening refuses.


@pytest.mark.contract("JRN-08", "JRN-10")
@pytest.mark.parametrize("readonly", [True, False])
def test_a_newer_format_is_refused_as_a_whole(url: str, readonly: bool) -> None:
    """In one sentence, whatever it is that it has; and an upgrade does not bring it down."""
    change(url, "UPDATE cf_head SET format = 2")
    change(url, "ALTER TABLE cf_head RENAME COLUMN epoch TO another")

    with pytest.raises(FormatUnknown, match="is in format 2, and this release knows format 1; install a newer release"):
        counterfoil.open(url, readonly=readonly).__enter__()
    for verb in (("verify",), ("stats",), ("schema", "check"), ("schema", "upgrade")):
        said = run(*verb, url, status=1)
        assert "" == said.stdout
        assert 1 == said.stderr.count("\n")
        assert "format" in said.stderr
    assert [(2,)] == rows(url, "SELECT format FROM cf_head")


@pytest.mark.contract("JRN-08", "JRN-11")
def test_a_schema_of_a_newer_release_is_refused(url: str) -> None:
    change(url, "UPDATE cf_head SET schema_version = schema_version + 1")

    with pytest.raises(
        FormatUnknown, match="its schema is of version 2, and this release knows version 1; install a newer release"
    ):
        counterfoil.open(url).__enter__()
    for verb in (("schema", "check"), ("schema", "upgrade")):
        assert "install a newer release" in run(*verb, url, status=1).stderr


@pytest.mark.contract("JRN-11")
@pytest.mark.parametrize("older", ["UPDATE cf_head SET schema_version = 0", "DELETE FROM cf_projection WHERE name = 'queues'"])
def test_an_older_schema_asks_for_its_upgrade(url: str, older: str) -> None:
    """Nothing is upgraded unless somebody says so."""
    change(url, older)

    for readonly in (True, False):
        with pytest.raises(JournalRefused, match="is older; have its owner run `counterfoil schema upgrade`"):
            counterfoil.open(url, readonly=readonly).__enter__()
    run("schema", "upgrade", url)
    admit(url, "after")


@pytest.mark.contract("JRN-10", "JRN-11")
def test_a_schema_that_was_renamed_does_not_write_to_its_old_name(
    postgres: Postgres, url: str, schema: str, new_schema: Callable[[], str]
) -> None:
    """Its functions would append to whatever lies there now; reading goes on."""
    moved = new_schema()
    postgres.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{moved}"')
    counterfoil.open(url).__enter__().close()

    with counterfoil.open(postgres.url(moved), readonly=True) as journal:
        assert journal.position()
    with pytest.raises(JournalRefused, match="has functions that belong to another schema"):
        counterfoil.open(postgres.url(moved)).__enter__()
    run("schema", "upgrade", postgres.url(moved))
    run("schema", "check", postgres.url(moved))
    admit(postgres.url(moved), "after")
    run("verify", postgres.url(moved))
    assert [] == rows(url, "SELECT * FROM cf_event")


# Beside others.


@pytest.mark.contract("JRN-11")
def test_an_upgrade_beside_writers(url: str) -> None:
    """Those who have the journal open wait, and go on with what is new."""
    with counterfoil.open(url) as journal:
        inbound = Inbound(connection="tg", conversation="c", actor="ann", event_id="x1", text="hello")
        assert "accepted" == journal.admit(inbound, GRANT).status
        change(url, "DROP INDEX cf_event_thread")
        change(url, "DELETE FROM cf_projection WHERE name = 'unresolved'")
        change(url, "CREATE OR REPLACE FUNCTION cf_ring(rings jsonb) RETURNS void LANGUAGE sql AS 'SELECT'")
        run("schema", "upgrade", url)
        assert "accepted" == journal.admit(inbound.model_copy(update={"event_id": "x2"}), GRANT).status
        assert journal.verify().agrees
    run("schema", "check", url)


# Bad input.


@pytest.mark.contract("CLI-03")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("schema",), "name what to do: sql, roles, check, upgrade"),
        (("schema", "make"), "there is no such verb; there are sql, roles, check, upgrade"),
        (("schema", "sql", "j.sqlite"), "begins with postgresql://"),
        (("schema", "sql", "postgresql:///x", "--schema", "y"), "name a URL or --schema, not both"),
        (("schema", "sql", "--schema", "pg_mine"), "must not be one of PostgreSQL's own"),
        (("schema", "sql", "--schema", "x" * 64), "must have 1 to 63 bytes, not 64"),
        (("schema", "sql", "--schema", ""), "must have 1 to 63 bytes, not 0"),
        (("schema", "sql", "--schema", "\udcff"), "lone surrogates"),
        (("schema", "roles", "--schema", "x" * 60), "the names of its roles would be longer than 63 bytes"),
        (("schema", "sql", "--schema", "a$function$b"), "must not hold what functions are written between"),
        (("schema", "check"), "Missing argument"),
        (("schema", "check", "j.sqlite"), "begins with postgresql://"),
        (("schema", "upgrade", "postgresql://u:s3cret@h:port/x"), "the port in the URL"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], said: str) -> None:
    result = run(*words, status=2)

    assert "" == result.stdout
    assert said in result.stderr
    assert "s3cret" not in result.stderr
    assert 1 == result.stderr.count("\n")


def test_what_is_no_journal_is_told(postgres: Postgres, schema: str) -> None:
    for verb in ("check", "upgrade"):
        assert "does not exist; create it by what" in run("schema", verb, postgres.url(schema), status=1).stderr


@pytest.mark.contract("JRN-11")
def test_a_role_that_may_not_make_temporary_tables_is_told_so(postgres: Postgres, url: str, schema: str) -> None:
    name: Any = postgres.execute("SELECT current_database()")[0][0]
    user = f"{schema}_plain"
    postgres.execute(f'CREATE ROLE "{user}" LOGIN PASSWORD \'x\'; GRANT USAGE ON SCHEMA "{schema}" TO "{user}"')
    postgres.execute(
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{user}"; REVOKE TEMPORARY ON DATABASE "{name}" FROM PUBLIC'
    )
    try:
        theirs = url.replace("://counterfoil@", f"://{user}:x@", 1)
        assert theirs != url
        assert "grant it TEMPORARY on the database" in run("schema", "check", theirs, status=1).stderr
    finally:
        postgres.execute(f'GRANT TEMPORARY ON DATABASE "{name}" TO PUBLIC')
        postgres.execute(f'DROP OWNED BY "{user}"; DROP ROLE "{user}"')
