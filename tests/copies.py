"""Copies of a journal, and what a verification or a stranger finds in one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from psycopg.sql import SQL, Identifier

from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.postgres.connecting import connect
from counterfoil.infrastructure.postgres.folding import fold_slice
from counterfoil.infrastructure.postgres.naming import parse
from counterfoil.infrastructure.postgres.store import PostgresStore
from counterfoil.infrastructure.postgres.unfolded import Unfolded
from counterfoil.infrastructure.postgres.verifying import verify_schema
from counterfoil.infrastructure.rows import EventRow
from counterfoil.infrastructure.sqlite.verifying import verify_file
from counterfoil.infrastructure.verification import Progress, Verification
from tests.rows import database, divided, is_postgres, rows, tables

VERIFIER = Path(__file__).with_name("independent_verifier.py")


def verify_at(url: str, progress: Progress | None = None) -> Verification:
    """Verify a journal that need not be good enough to be opened."""
    return verify_schema(url, progress) if is_postgres(url) else verify_file(Path(url), progress)


def copy_rows(url: str, to_url: str) -> None:
    """Copy a journal as tools of its engine do, row by row, to where there is none."""
    if not is_postgres(url):
        with closing(sqlite3.connect(url)) as source, closing(sqlite3.connect(to_url)) as target:
            source.backup(target)
        return
    Core(to_url).close()
    with database(to_url) as connection, connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")  # no trigger is to append what was staged once
        for table in sorted(tables(url)):
            named = {"target": Identifier(divided(to_url)[1], table), "source": Identifier(divided(url)[1], table)}
            connection.execute(SQL("TRUNCATE {target}").format(**named))
            connection.execute(SQL("INSERT INTO {target} OVERRIDING SYSTEM VALUE SELECT * FROM {source}").format(**named))


def fold(url: str) -> None:
    """Fold all that is folded late, so that every projection stands at the head of a journal."""
    if is_postgres(url):
        address = parse(url)
        with connect(address, purpose="writer", busy_us=5_000_000) as connection:
            while fold_slice(PostgresStore(connection, address.schema), Unfolded()):
                pass


@contextmanager
def as_file(url: str) -> Iterator[Path]:
    """The events of a journal in an SQLite file, with a head that is the newest of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.sqlite"
        columns = ", ".join(EventRow._fields)
        events = rows(url, f"SELECT {columns} FROM cf_event ORDER BY position")
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(f"CREATE TABLE cf_event ({columns})")
            file.executemany(f"INSERT INTO cf_event VALUES ({', '.join('?' * len(EventRow._fields))})", events)
            newest = EventRow(*events[-1]) if events else None
            head = (0, bytes(32)) if newest is None else (newest.position, newest.digest)
            file.execute("CREATE TABLE cf_head AS SELECT 1 AS format, ? AS position, ? AS digest", head)
        yield path


def independently(url: str) -> tuple[int, str]:
    """
    Have the chain of a journal verified by a program that knows the description of the format and nothing else; return its status
    and what it says. It reads files, so it gets the events of a schema in one.
    """
    if is_postgres(url):
        with as_file(url) as path:
            return independently(str(path))
    done = subprocess.run([sys.executable, "-I", VERIFIER, url], capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.strip()
