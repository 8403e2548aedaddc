"""The PostgreSQL of the tests: that it can be cut off, killed and started again, and never outlives them."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy
from tests.rows import change, database, rows

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0

STARTS = """
import signal
from tests.postgres_server import Server
server = Server()
print(server.port, server.folder, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("immediate", [True, False])
def test_what_was_committed_outlasts_a_restart(own_postgres: Server, immediate: bool) -> None:
    own_postgres.execute("CREATE TABLE kept (value int)")
    with own_postgres.connect(autocommit=False) as cut:
        own_postgres.execute("INSERT INTO kept VALUES (%s)", (1,))
        cut.execute("INSERT INTO kept VALUES (2)")
        own_postgres.restart(immediate=immediate)
        with pytest.raises(psycopg.OperationalError):
            cut.execute("SELECT")

    assert [(1,)] == own_postgres.execute("SELECT value FROM kept")
    own_postgres.execute("DROP TABLE kept")


def test_nothing_answers_while_it_is_stopped(own_postgres: Server) -> None:
    own_postgres.stop()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        own_postgres.connect()
    own_postgres.start()

    assert [(1,)] == own_postgres.execute("SELECT 1")


def test_it_ends_with_the_process_that_started_it() -> None:
    """Killed without a word, as a run is that takes too long."""
    with subprocess.Popen([sys.executable, "-c", STARTS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port, folder = process.stdout.readline().split()
        psycopg.connect(f"postgresql://counterfoil@127.0.0.1:{port}/counterfoil").close()
        process.send_signal(signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while os.path.exists(folder):
        assert time.monotonic() < end
        time.sleep(0.01)

    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(f"postgresql://counterfoil@127.0.0.1:{port}/counterfoil")


def test_connections_are_cut_by_name(postgres: Postgres) -> None:
    with postgres.connect(application_name="cut") as cut, postgres.connect(application_name="kept") as kept:
        assert 1 == postgres.terminate_backends("cut")
        with pytest.raises(psycopg.OperationalError):
            cut.execute("SELECT 1")
        assert (1,) == kept.execute("SELECT 1").fetchone()
        assert 1 <= postgres.terminate_backends()
        with pytest.raises(psycopg.OperationalError):
            kept.execute("SELECT 1")


def test_a_wire_is_cut(postgres: Postgres, proxy: Proxy) -> None:
    """Who connects anew is served again."""
    with database(proxy.url("public")) as cut:
        assert (1,) == cut.execute("SELECT 1").fetchone()
        proxy.drop()
        with pytest.raises(psycopg.OperationalError):
            cut.execute("SELECT 1")
    assert [(1,)] == rows(proxy.url("public"), "SELECT 1")


def test_a_wire_stalls_and_loses_nothing(proxy: Proxy) -> None:
    """Asked whether it speaks TLS, a server answers with one letter."""
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE) as client:
        proxy.stall()
        client.sendall(struct.pack("!ii", 8, 80_877_103))
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.resume()
        client.settimeout(PATIENCE)
        assert client.recv(1) in b"NS"


def test_a_wire_to_a_server_that_is_away_is_closed(own_postgres: Server) -> None:
    wire = Proxy(own_postgres)
    own_postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        rows(wire.url("public"), "SELECT 1")
    own_postgres.start()

    assert [(1,)] == rows(wire.url("public"), "SELECT 1")
    wire.close()


def test_rows_are_read_and_changed_as_on_sqlite(postgres: Postgres, schema: str) -> None:
    url = postgres.url(schema)
    postgres.execute(f"CREATE SCHEMA {schema}")
    postgres.execute(f"CREATE TABLE {schema}.goods (item text, body bytea)")

    assert 1 == change(url, "INSERT INTO goods VALUES (?, ?)", "50% tea", b"\0\xff")
    assert [("50% tea", b"\0\xff")] == rows(url, "SELECT * FROM goods WHERE item LIKE '50%' AND body <> ?", b"")
    assert [("50% tea",)] == rows(url, "SELECT item FROM goods WHERE item LIKE '50%'")
