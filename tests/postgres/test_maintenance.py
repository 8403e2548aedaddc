"""What whoever runs a server does beside those who write, and dumps that are restored."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound
from tests.copies import independently
from tests.postgres_server import Server
from tests.rows import database, rows

GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))
WRITERS = 3
BESIDE = 20
"""Commits that each writer makes beside what is done."""


class Writers:
    """Threads with an opening each, which admit one message after the other."""

    def __init__(self, url: str) -> None:
        self.counts = [0] * WRITERS
        self.faults: list[object] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(url, number)) for number in range(WRITERS)]

    def _write(self, url: str, number: int) -> None:
        try:
            with counterfoil.open(url, limits=counterfoil.Limits(max_pending_per_process=10_000)) as journal:
                locks = journal.lock("jobs")
                while not self._stop.is_set():
                    count = self.counts[number]
                    name = f"{number}-{count}"
                    inbound = Inbound(connection="tg", conversation=name, actor="ann", event_id=name, text="hello")
                    admission = journal.admit(inbound, GRANT)
                    if admission.status != "accepted":
                        self.faults.append(admission)
                    with locks.hold(f"key-{number}"):
                        self.counts[number] += 1
        except Exception as error:
            self.faults.append(error)

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def go_on(self) -> None:
        """Wait until each has made some more commits."""
        wanted = [count + BESIDE for count in self.counts]
        end = time.monotonic() + 60
        while not self.faults and any(have < want for have, want in zip(self.counts, wanted, strict=True)):
            assert time.monotonic() < end, "they stand still"
            time.sleep(0.01)
        assert [] == self.faults

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Have something done again and again, as long as the block lasts; at least once to its end."""
    stop, done, faults = threading.Event(), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not stop.is_set() or not done.is_set():
                work()
                done.set()
        except BaseException as error:
            faults.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join(120)
    assert [] == faults
    assert done.is_set()


STATEMENTS = {
    "vacuum": ["VACUUM {table}"],
    "freeze": ["VACUUM (FREEZE, ANALYZE) {table}"],
    "analyze": ["ANALYZE {table}"],
    "an index": ["CREATE INDEX CONCURRENTLY mine ON cf_event (type)", "DROP INDEX CONCURRENTLY mine"],
    "an index anew": ["REINDEX TABLE CONCURRENTLY cf_event", "REINDEX TABLE CONCURRENTLY cf_queues_v1"],
}


@pytest.mark.contract("JRN-09")
@pytest.mark.parametrize("case", STATEMENTS)
def test_maintenance_runs_beside_writers(own_postgres: Server, schema: str, case: str) -> None:
    """It comes to its end while they commit, and none of them fails or stands still."""
    url = own_postgres.url(schema)
    with Writers(url) as writers, database(url) as connection:
        tables = [name for (name,) in rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")]

        def work() -> None:
            for statement in STATEMENTS[case]:
                for table in tables if "{table}" in statement else [""]:
                    connection.execute(statement.format(table=table).encode(), prepare=False)

        with beside(work):
            writers.go_on()
            writers.go_on()
    assert [] == writers.faults
    with counterfoil.open(url, readonly=True) as journal:
        assert journal.verify().agrees


def dump(server: Server, schema: str, *options: str) -> str:
    """Dump a schema with the server's own program."""
    host, port = server.address
    words = ["--no-password", "-h", host, "-p", str(port), "-U", "counterfoil", "-n", f'"{schema}"', *options, "counterfoil"]
    done = subprocess.run([server.binaries / "pg_dump", *words], capture_output=True, text=True, timeout=120, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def restore(server: Server, dumped: str, to_database: str) -> None:
    host, port = server.address
    words = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", str(port), "-U", "counterfoil", "-f", "-", to_database]
    done = subprocess.run(
        [server.binaries / "psql", *words], input=dumped, capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == done.returncode, done.stderr


def fence(url: str) -> int:
    with counterfoil.open(url) as journal, journal.lock("fences").hold("k") as lease:
        return lease.fence


def admit(url: str, event_id: str) -> int:
    with counterfoil.open(url) as journal:
        inbound = Inbound(connection="tg", conversation="later", actor="ann", event_id=event_id, text="hello")
        position = journal.admit(inbound, GRANT).position
        assert position is not None
        return position


def histories(url: str) -> list[tuple[object, ...]]:
    return rows(url, "SELECT position, recorded_at, digest, state FROM cf_event ORDER BY position")


@pytest.fixture
def other_database(own_postgres: Server, schema: str) -> Iterator[str]:
    """A database beside."""
    name = f"{schema}_db"
    own_postgres.execute(f'CREATE DATABASE "{name}"')
    yield name
    own_postgres.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.contract("JRN-01", "JRN-09", "LCK-03")
def test_a_dump_is_taken_beside_writers_and_restored(own_postgres: Server, schema: str, other_database: str) -> None:
    """It is a journal of one moment; its first opening goes on above every position and every fence that was given before."""
    url = own_postgres.url(schema)
    dumps: list[str] = []
    with Writers(url) as writers, beside(lambda: dumps.append(dump(own_postgres, schema))):
        writers.go_on()
        writers.go_on()
    assert [] == writers.faults
    given, last = fence(url), admit(url, "before")

    restore(own_postgres, dumps[-1], other_database)
    restored = url.replace("/counterfoil?", f"/{other_database}?")
    assert restored != url
    whole = histories(url)
    part = histories(restored)
    assert part == whole[: len(part)]
    assert len(part) > WRITERS * BESIDE
    with counterfoil.open(restored, readonly=True) as journal:
        assert journal.verify().agrees
        assert [] == journal.holders()

    assert fence(restored) > given
    first = admit(restored, "after")
    assert first > last + 1_000_000
    with counterfoil.open(restored, readonly=True) as journal:
        assert journal.verify().agrees
    assert (0, "the chain agrees") == independently(restored)
    assert first < admit(restored, "once more") < first + 100  # once only


@pytest.mark.contract("JRN-01", "JRN-10", "LCK-03")
def test_a_dump_is_restored_into_another_schema(
    own_postgres: Server, schema: str, other_database: str, new_schema: Callable[[], str]
) -> None:
    """By a change of the name, after which the functions are the old one's until an upgrade; then it is a journal of its own."""
    from counterfoil.infrastructure.postgres.upgrading import check_schema, upgrade_schema

    url = own_postgres.url(schema)
    given, last = fence(url), admit(url, "before")
    dumped = dump(own_postgres, schema)
    own_postgres.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{schema}_kept"')
    restore(own_postgres, dumped, "counterfoil")
    moved = new_schema()
    own_postgres.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{moved}"; ALTER SCHEMA "{schema}_kept" RENAME TO "{schema}"')
    copy = own_postgres.url(moved)

    with pytest.raises(counterfoil.JournalRefused, match="functions that belong to another schema"):
        counterfoil.open(copy).__enter__()
    upgrade_schema(copy, lambda said: None)
    assert not check_schema(copy)
    before = histories(url)
    assert fence(copy) > given
    assert admit(copy, "after") > last + 1_000_000
    assert before == histories(url)
    for each in (url, copy):
        with counterfoil.open(each, readonly=True) as journal:
            assert journal.verify().agrees
