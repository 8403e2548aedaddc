"""Many who come to an empty schema at once all have the same journal."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound, NotAJournal
from tests.postgres_server import Postgres
from tests.rows import rows

GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))
PROCESSES = 8

WORKER = """
import sys
import counterfoil
from counterfoil import Grant, Identity, Inbound

url, number = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with counterfoil.open(url) as journal:
    grant = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))
    inbound = Inbound(connection="tg", conversation=f"c{number}", actor="ann", event_id=number, text="hello")
    assert journal.admit(inbound, grant).status == "accepted"
    assert journal.admit(inbound.model_copy(update={"event_id": "same", "conversation": "same"}), grant).status == "accepted"
"""


def together(url: str) -> None:
    """Let processes open one journal at the same moment, and admit a message each and one that is the same for all."""
    words = [sys.executable, "-c", WORKER, url]
    workers = [
        subprocess.Popen([*words, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert "ready\n" == worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        _, err = worker.communicate(timeout=120)
        assert (0, "") == (worker.returncode, err)


@pytest.mark.contract("JRN-09", "JRN-11")
@pytest.mark.parametrize("made", ["nothing", "schema"])
def test_processes_that_open_an_empty_schema_together_all_succeed(postgres: Postgres, schema: str, made: str) -> None:
    """Be it there or not; the message that all of them bring is one."""
    if made == "schema":
        postgres.execute(f'CREATE SCHEMA "{schema}"')
    url = postgres.url(schema)
    together(url)

    assert [(PROCESSES + 1,)] == rows(url, "SELECT count(*) FROM cf_event WHERE type = 'operation.admitted'")
    assert [(PROCESSES,)] == rows(url, "SELECT opening_id FROM cf_head")
    with counterfoil.open(url, readonly=True) as journal:
        assert journal.verify().agrees


@pytest.mark.contract("JRN-09", "JRN-11")
@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_a_schema_that_somebody_else_is_just_making(postgres: Postgres, schema: str, ends: str) -> None:
    """Whoever makes the schema by other means is waited for; then it is used, or made if they have not made it after all."""
    opened: list[object] = []

    def open_it() -> None:
        try:
            with counterfoil.open(postgres.url(schema)) as journal:
                inbound = Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")
                opened.append(journal.admit(inbound, GRANT).status)
        except Exception as error:
            opened.append(error)

    with postgres.connect() as other:
        other.execute("BEGIN")
        other.execute(f'CREATE SCHEMA "{schema}"'.encode())
        opener = threading.Thread(target=open_it)
        opener.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%' || %s || '%%'"
        while opener.is_alive() and postgres.execute(waiting, (schema,)) == [(0,)]:
            opener.join(0.01)
        other.execute(ends.encode())
    opener.join(60)
    assert ["accepted"] == opened


@pytest.mark.contract("JRN-10")
def test_tables_by_our_names_are_left_alone(postgres: Postgres, schema: str) -> None:
    postgres.execute(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".cf_event (x integer)')
    with pytest.raises(NotAJournal, match="has tables whose names begin with cf_ and is no journal; choose another schema"):
        counterfoil.open(postgres.url(schema)).__enter__()
    assert [(1,)] == postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", (schema,))


@pytest.mark.contract("JRN-17")
def test_tables_of_a_host_stay_beside(postgres: Postgres, schema: str) -> None:
    postgres.execute(
        f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".chats (id text); INSERT INTO "{schema}".chats VALUES (\'x\')'
    )
    with counterfoil.open(postgres.url(schema)) as journal:
        inbound = Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")
        assert "accepted" == journal.admit(inbound, GRANT).status
        assert journal.verify().agrees
    assert [("x",)] == rows(postgres.url(schema), "SELECT id FROM chats")
