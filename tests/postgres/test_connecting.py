"""Connections: what a session is whatever the defaults of a server are, and what is refused, in words that give nobody away."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from counterfoil.domain.errors import JournalRefused, JournalUnavailable, NotAJournal
from counterfoil.infrastructure.postgres import connecting
from counterfoil.infrastructure.postgres.connecting import Purpose, connect
from counterfoil.infrastructure.postgres.connection import Connection, _bounded, open_connection
from counterfoil.infrastructure.postgres.faults import Silence, fault
from counterfoil.infrastructure.postgres.naming import parse
from tests.beside import running, said
from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy

BUSY_US = 5_000_000
PATIENCE = 60
PURPOSES: tuple[Purpose, ...] = ("writer", "reader", "sign", "watch")
EVERY = pytest.mark.parametrize("purpose", PURPOSES)


@pytest.fixture
def role(postgres: Postgres, schema: str) -> Iterator[str]:
    """The name of a role that may log in."""
    postgres.execute(f"CREATE ROLE {schema} LOGIN PASSWORD 's3cret'")
    yield schema
    postgres.execute(f"DROP OWNED BY {schema}")
    postgres.execute(f"DROP ROLE {schema}")


def as_role(postgres: Postgres, role: str, *, schema: str = "counterfoil", **parameters: str) -> str:
    """Name a journal as that role does."""
    host, port = postgres.address
    database = psycopg.conninfo.conninfo_to_dict(postgres.database_url)["dbname"]
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"postgresql://{role}:s3cret@{host}:{port}/{database}?schema={schema}{more}"


def shown(connection: psycopg.Connection[tuple[str]], *names: str) -> list[str]:
    """What these settings are in a session."""
    rows = [connection.execute(SQL("SHOW {}").format(Identifier(name))).fetchone() for name in names]
    return [row[0] for row in rows if row is not None]


HOSTILE = {
    "search_path": "pg_temp, public",
    "client_encoding": "LATIN1",
    "timezone": "Asia/Kathmandu",
    "datestyle": "German",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "extra_float_digits": "-15",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1234",
    "lock_timeout": "1234",
    "idle_in_transaction_session_timeout": "1234",
    "idle_session_timeout": "1234",
    "synchronous_commit": "off",
    "log_parameter_max_length_on_error": "-1",
}
USUAL = {
    "search_path": "counterfoil, pg_temp",
    "client_encoding": "UTF8",
    "timezone": "UTC",
    "datestyle": "ISO, DMY",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "extra_float_digits": "1",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "5s",
    "idle_session_timeout": "0",
    "synchronous_commit": "on",
    "log_parameter_max_length_on_error": "0",
}
SPECIAL: dict[Purpose, dict[str, str]] = {
    "writer": {"lock_timeout": "5s", "statement_timeout": "10s"},
    "reader": {
        "lock_timeout": "5s",
        "default_transaction_isolation": "repeatable read",
        "idle_in_transaction_session_timeout": "1min",
    },
    "sign": {"lock_timeout": "5s", "statement_timeout": "10s"},
    "watch": {},
}


@EVERY
def test_no_default_of_a_role_is_left(postgres: Postgres, role: str, purpose: Purpose) -> None:
    for name, value in HOSTILE.items():
        postgres.execute(f"ALTER ROLE {role} SET {name} TO {value if name == 'search_path' else repr(value)}")
    expected = USUAL | SPECIAL[purpose]

    with closing(connect(parse(as_role(postgres, role)), purpose=purpose, busy_us=BUSY_US)) as connection:
        assert expected == dict(zip(expected, shown(connection, *expected), strict=True))
        assert [("ü", b"\x00\xff", ["a", None])] == connection.execute(
            "SELECT 'ü', %s::bytea, %s::text[]", (b"\x00\xff", ["a", None])
        ).fetchall()


def test_longer_sync_of_a_role_stays(postgres: Postgres, role: str) -> None:
    """Only a role that would lose what has returned is set right."""
    postgres.execute(f"ALTER ROLE {role} SET synchronous_commit TO remote_apply")

    with closing(connect(parse(as_role(postgres, role)), purpose="writer", busy_us=BUSY_US)) as connection:
        assert ["remote_apply"] == shown(connection, "synchronous_commit")


def test_newer_server_has_one_timeout_more(postgres: Postgres, role: str) -> None:
    """PostgreSQL 17 and later can end any long transaction; not ours."""
    version = postgres.execute("SELECT current_setting('server_version_num')::int")[0][0]
    if version >= 170_000:
        postgres.execute(f"ALTER ROLE {role} SET transaction_timeout TO 1234")

    with closing(connect(parse(as_role(postgres, role)), purpose="reader", busy_us=BUSY_US)) as connection:
        timeouts = connection.execute("SELECT setting FROM pg_settings WHERE name = 'transaction_timeout'").fetchall()

    assert ([("0",)] if version >= 170_000 else []) == timeouts


@pytest.mark.parametrize("schema_name", ["counterfoil", 'a"b', "a b", "Ü€", "SELECT", "a" * 63, "a;b--", "a'b", "%s", "$body$"])
def test_any_name_of_a_schema_is_found(postgres: Postgres, schema_name: str) -> None:
    """Tables are looked for in it, and before those of the same name that are temporary."""
    made = Identifier(schema_name).as_string()
    postgres.execute(f"CREATE SCHEMA {made}")
    postgres.execute(f"CREATE TABLE {made}.cf_found AS SELECT 'kept'")
    url = postgres.url("".join(f"%{byte:02x}" for byte in schema_name.encode()))
    try:
        with closing(connect(parse(url), purpose="writer", busy_us=BUSY_US)) as connection:
            connection.execute("CREATE TEMPORARY TABLE cf_found AS SELECT 'temporary'")

            assert [("kept",)] == connection.execute("SELECT * FROM cf_found").fetchall()
    finally:
        postgres.drop(schema_name)


def test_reader_has_one_snapshot_a_transaction_and_changes_nothing(postgres: Postgres, schema: str) -> None:
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE TABLE {schema}.cf_counted (value int)")
    with closing(connect(parse(postgres.url(schema)), purpose="reader", busy_us=BUSY_US)) as connection:
        with connection.transaction():
            assert [(0,)] == connection.execute("SELECT count(*) FROM cf_counted").fetchall()
            postgres.execute(f"INSERT INTO {schema}.cf_counted VALUES (1)")
            assert [(0,)] == connection.execute("SELECT count(*) FROM cf_counted").fetchall()
        assert [(1,)] == connection.execute("SELECT count(*) FROM cf_counted").fetchall()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("INSERT INTO cf_counted VALUES (2)")


def test_statements_are_prepared_when_first_used(postgres: Postgres) -> None:
    with closing(connect(parse(postgres.url("counterfoil")), purpose="writer", busy_us=BUSY_US)) as connection:
        connection.execute("SELECT %s::int", (1,))

        assert [("SELECT $1::int",)] == connection.execute(
            "SELECT statement FROM pg_prepared_statements", prepare=False
        ).fetchall()


@pytest.mark.parametrize(("given", "name"), [({}, "counterfoil"), ({"application_name": "bot"}, "bot")])
def test_server_sees_who_is_connected(postgres: Postgres, role: str, given: dict[str, str], name: str) -> None:
    with closing(connect(parse(as_role(postgres, role, **given)), purpose="writer", busy_us=BUSY_US)) as connection:
        assert [name] == shown(connection, "application_name")


def test_dead_host_is_found_by_either_end(postgres: Postgres) -> None:
    """After ten seconds: the server frees what the client had, and the client knows."""
    with closing(connect(parse(postgres.url("counterfoil")), purpose="sign", busy_us=BUSY_US)) as connection:
        at_server = shown(
            connection, "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"
        )
        with socket.socket(fileno=socket.dup(connection.fileno())) as client:
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            at_client = [client.getsockopt(socket.IPPROTO_TCP, option) for option in options]
            kept_alive = client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    assert ["4", "2", "3", "10s"] == at_server or ["4", "2", "3", "10000"] == at_server
    assert [4, 2, 3, 10_000] == at_client
    assert kept_alive


def test_what_a_url_says_of_the_network_stands(postgres: Postgres, role: str) -> None:
    url = as_role(postgres, role, tcp_user_timeout="7000", keepalives_idle="9")
    with closing(connect(parse(url), purpose="sign", busy_us=BUSY_US)) as connection:
        with socket.socket(fileno=socket.dup(connection.fileno())) as client:
            assert 7_000 == client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert 9 == client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)


# What is refused.


def refusal(url: str, purpose: Purpose = "writer", *, busy_us: int = BUSY_US) -> Exception:
    """What connecting raises, with nothing behind it that would be logged too."""
    with pytest.raises((JournalRefused, JournalUnavailable)) as refused:
        connect(parse(url), purpose=purpose, busy_us=busy_us)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert str(refused.value).startswith(parse(url).name + ": ")
    for secret in ("s3cret", "zoe", "127.0.0.1", "localhost"):
        assert secret not in str(refused.value)
    return refused.value


@pytest.mark.contract("DIA-01")
def test_stranger_is_refused_in_words_that_name_nobody(postgres: Postgres, role: str) -> None:
    """The server's own words name user, host and database."""
    error = refusal(as_role(postgres, "zoe"))

    assert isinstance(error, JournalRefused)
    assert "does not let this user in" in str(error)


def test_missing_database_is_refused(postgres: Postgres, role: str) -> None:
    """What it is called is not taken for a word of the server's."""
    host, port = postgres.address
    error = refusal(f"postgresql://{role}:s3cret@{host}:{port}/starting%20up?schema=a")

    assert isinstance(error, JournalRefused)
    assert "no such database" in str(error)


def test_full_server_is_unavailable(postgres: Postgres, role: str) -> None:
    postgres.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
    error = refusal(as_role(postgres, role))

    assert isinstance(error, JournalUnavailable)
    assert "no more connections" in str(error)


def test_encryption_that_is_not_to_be_had_is_refused(postgres: Postgres, role: str) -> None:
    error = refusal(as_role(postgres, role, sslmode="verify-full", sslrootcert="/nowhere"))

    assert isinstance(error, JournalRefused)
    assert "check sslmode" in str(error)


def test_value_that_libpq_refuses_is_the_urls_fault(postgres: Postgres, role: str) -> None:
    error = refusal(as_role(postgres, role, sslmode="zoe"))

    assert isinstance(error, JournalRefused)
    assert "libpq refuses" in str(error)


@pytest.mark.parametrize(
    "url", ["postgresql://127.0.0.1:1/chat", "postgresql:///chat?host=/nowhere", "postgresql://zoe.invalid/chat"]
)
def test_absent_server_is_unavailable(url: str) -> None:
    error = refusal(url)

    assert isinstance(error, JournalUnavailable)
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize("asked", ["", "?connect_timeout=600", "?connect_timeout=0"])
def test_server_that_takes_connections_and_says_nothing_is_unavailable(asked: str) -> None:
    """After `busy_wait`, and not before psycopg's two seconds."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        error = refusal(f"postgresql://127.0.0.1:{mute.getsockname()[1]}/chat{asked}", busy_us=1_000_000)

    assert isinstance(error, JournalUnavailable)
    assert "does not answer" in str(error)
    assert time.monotonic() - started < PATIENCE


def test_server_that_stalls_after_the_greeting_is_unavailable(
    postgres: Postgres, proxy: Proxy, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for ever for an answer, be it to the first statement."""

    def stalled(conninfo: str) -> Connection:
        connection = open_connection(conninfo)
        proxy.stall()
        return connection

    monkeypatch.setattr(connecting, "open_connection", stalled)
    error = refusal(proxy.url(schema), busy_us=100_000)
    proxy.resume()

    assert isinstance(error, JournalUnavailable)
    assert "does not answer" in str(error)


def test_starting_server_is_unavailable() -> None:
    """It speaks, but takes nobody yet; this one speaks the protocol and no more."""
    words = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"

    def speak(server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                while client.recv(1_000)[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
                    client.sendall(b"N")
                client.sendall(b"E" + (len(words) + 4).to_bytes(4, "big") + words)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=speak, args=(server,))
        thread.start()
        error = refusal(f"postgresql://127.0.0.1:{server.getsockname()[1]}/chat")
        server.shutdown(socket.SHUT_RDWR)
        thread.join()

    assert isinstance(error, JournalUnavailable)
    assert "starting up or shutting down" in str(error)


def test_database_in_another_encoding_is_refused(postgres: Postgres, role: str) -> None:
    """It could not hold what others can."""
    postgres.execute(f"CREATE DATABASE {role} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    host, port = postgres.address
    try:
        error = refusal(f"postgresql://{role}:s3cret@{host}:{port}/{role}")
    finally:
        postgres.execute(f"DROP DATABASE {role} WITH (FORCE)")

    assert isinstance(error, JournalRefused)
    assert "encoding of the database is LATIN1" in str(error)


def test_older_server_is_refused(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "OLDEST_SERVER", 990_000)
    error = refusal(postgres.url("counterfoil"))

    assert isinstance(error, JournalRefused)
    assert "a journal needs 15 or later" in str(error)


def test_standby_is_for_readers(standby: Server) -> None:
    """Whatever the default of the role is: `serializable` cannot be had there."""
    for purpose in ("writer", "sign", "watch"):
        error = refusal(standby.url("counterfoil"), purpose)

        assert isinstance(error, JournalUnavailable)
        assert "standby" in str(error)

    url = f"{standby.url('counterfoil')}&options=-c%20default_transaction_isolation%3Dserializable"
    with closing(connect(parse(url), purpose="reader", busy_us=BUSY_US)) as connection:
        with connection.transaction():
            assert [(True,)] == connection.execute("SELECT pg_is_in_recovery()").fetchall()


def test_primary_is_looked_for_among_several_hosts(standby: Server, postgres: Postgres) -> None:
    """A reader takes the first that there is."""
    if standby.address == postgres.address:
        other = Server()
        primary = other.address
    else:
        other, primary = None, postgres.address
    try:
        hosts = ",".join(f"{host}:{port}" for host, port in (standby.address, primary))
        url = f"postgresql://counterfoil@{hosts}/counterfoil"
        ports = {}
        for purpose in PURPOSES[:3]:
            with closing(connect(parse(url), purpose=purpose, busy_us=BUSY_US)) as connection:
                ports[purpose] = connection.info.port
    finally:
        if other is not None:
            other.close()

    assert {"writer": primary[1], "reader": standby.address[1], "sign": primary[1]} == ports


# Answers that do not come, and forks.


def test_answer_that_does_not_come_closes_the_connection(proxy: Proxy, schema: str) -> None:
    with closing(connect(parse(proxy.url(schema)), purpose="writer", busy_us=BUSY_US)) as connection:
        connection.silence_s = 0.2
        proxy.stall()
        with pytest.raises(Silence) as silence:
            connection.execute("SELECT 1")

        assert connection.closed
        assert "does not answer" in str(fault(silence.value, "name"))
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    proxy.resume()


def test_slow_answer_within_the_time_is_taken(postgres: Postgres) -> None:
    with closing(connect(parse(postgres.url("counterfoil")), purpose="reader", busy_us=BUSY_US)) as connection:
        assert connection.silence_s is None
        connection.silence_s = PATIENCE

        assert [("",)] == connection.execute("SELECT pg_sleep(0.3)::text").fetchall()


def test_silence_is_not_believed_at_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was frozen for longer finds the answer that came meanwhile."""
    now = [0.0]
    monkeypatch.setattr("counterfoil.infrastructure.postgres.connection.monotonic", lambda: now[0])

    def statement() -> Generator[Any, Any, str]:
        while (yield "wait") != "answer":
            pass
        return "answered"

    waits = _bounded(statement(), 3.0)
    assert "wait" == next(waits)
    now[0] = 100.0
    assert "wait" == waits.send(0)
    with pytest.raises(StopIteration) as ended:
        waits.send("answer")
    assert "answered" == ended.value.value

    waits = _bounded(statement(), 3.0)
    next(waits)
    now[0] = 200.0
    waits.send(0)
    with pytest.raises(Silence):
        waits.send(0)


PRELUDE = """
import os, signal, sys, threading, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.postgres import connection as connections
from counterfoil.infrastructure.postgres.connecting import connect
from counterfoil.infrastructure.postgres.naming import parse
address = parse(sys.argv[1])
def say(word):
    sys.stdout.write(f"{word}\\n")
    sys.stdout.flush()
"""
FORK = """
connection = connect(address, purpose="reader", busy_us=5_000_000)
told, tell = os.pipe()
if os.fork() == 0:
    try:
        connection.execute("SELECT 1")
    except ForkedError:
        os.write(tell, b"refused")
    connection.close()
    os.close(tell)
    del connection
    signal.pause()
os.close(tell)
with open(told) as child_says:
    say(child_says.read())
say(connection.execute("SELECT pg_backend_pid()").fetchone()[0])
sys.stdin.read()
"""
FORK_WHILE_CONNECTING = """
connect_once, children = connections._connect, []
def forking_connect(conninfo):
    connection = connect_once(conninfo)
    if len(children) < 2:
        children.append(os.fork())
        if children[-1] == 0:
            signal.pause()
    return connection
connections._connect = forking_connect
connection = connect(address, purpose="reader", busy_us=5_000_000)
say(connection.execute("SELECT pg_backend_pid()").fetchone()[0])
sys.stdin.read()
"""


@pytest.fixture
def beside(postgres: Postgres, schema: str) -> Callable[[str], AbstractContextManager[subprocess.Popen[str]]]:
    """What runs a program beside the test, with the URL of a journal; the server sees it under the name of the schema."""
    return lambda program: running(PRELUDE + program, f"{postgres.url(schema)}&application_name={schema}")


def sessions(postgres: Postgres, name: str) -> int:
    """How many sessions of that name there are."""
    found: int = postgres.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,))[0][0]
    return found


def until_none(postgres: Postgres, name: str) -> None:
    end = time.monotonic() + PATIENCE
    while sessions(postgres, name):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.contract("JRN-15")
def test_forked_child_is_refused_and_keeps_no_session(
    postgres: Postgres, schema: str, beside: Callable[[str], AbstractContextManager[subprocess.Popen[str]]]
) -> None:
    """Closing and letting go in the child costs the parent nothing; its death ends the session while the child lives."""
    with beside(FORK) as process:
        assert "refused" == said(process)
        assert said(process).isdigit()
        assert 1 == sessions(postgres, schema)

        process.kill()
        until_none(postgres, schema)

        assert process.wait()


@pytest.mark.contract("JRN-15")
def test_child_that_is_forked_while_it_connects_keeps_no_session(
    postgres: Postgres, schema: str, beside: Callable[[str], AbstractContextManager[subprocess.Popen[str]]]
) -> None:
    """Nobody can wait with a fork until a server answers: what was opened meanwhile is given up, and opened again."""
    with beside(FORK_WHILE_CONNECTING) as process:
        assert said(process).isdigit()

        process.kill()
        until_none(postgres, schema)


def test_nothing_of_a_connection_is_shown(postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in its `repr`, nor as a warning when it is let go of; and psycopg's loggers are the host's."""
    before = [(name, logging.getLogger(name).level) for name in ("psycopg", "psycopg.pool")]
    connection = connect(parse(postgres.url("counterfoil")), purpose="writer", busy_us=BUSY_US)

    assert "Connection(open)" == repr(connection)
    connection.close()
    connection.close()
    assert "Connection(closed)" == repr(connection)
    connection = connect(parse(postgres.url("counterfoil")), purpose="writer", busy_us=BUSY_US)
    del connection

    assert before == [(name, logging.getLogger(name).level) for name, _ in before]
    assert [] == caplog.messages


def test_absent_schema_is_no_matter_of_connecting(postgres: Postgres, schema: str) -> None:
    """Whoever looks for a table learns it."""
    with closing(connect(parse(postgres.url(schema)), purpose="reader", busy_us=BUSY_US)) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable) as absent:
            connection.execute("SELECT 1 FROM cf_head")

    assert isinstance(fault(absent.value, "name"), NotAJournal)
