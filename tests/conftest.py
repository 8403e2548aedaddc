"""What every test shares: the engines on which it runs, and where its journals are."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.amber import AmberSnapshotExtension
from syrupy.location import PyTestLocation
from syrupy.types import SnapshotIndex

from tests.clocks import JournalClock
from tests.engines import ENGINES, NONE, ONLY, USUAL, Engine, Store, reason_of, stores_of
from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy

# A slow machine is no failure: speed is measured by `counterfoil bench`, never by a test.
settings.register_profile("counterfoil", deadline=None)
settings.load_profile("counterfoil")

FreshURL = Callable[[], str]


class Site(NamedTuple):
    """Where processes work beside a test: a folder for what they note, and the journal that they share."""

    folder: Path
    url: str


NewSite = Callable[[], Site]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", action="append", choices=ENGINES, help=f"run on this engine; {' and '.join(USUAL)} by default")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = list(metafunc.definition.iter_markers())
    for mark in marks:
        if mark.name in ONLY or mark.name == NONE:
            reason_of(mark)
    if "store" in metafunc.fixturenames:
        asked = metafunc.config.getoption("engine") or USUAL
        metafunc.parametrize("store", stores_of(marks, asked, in_memory="url" in metafunc.fixturenames), indirect=True)


class OneForAllEngines(AmberSnapshotExtension):
    """What a person reads is the same on every engine, so it is kept once."""

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        name = super().get_snapshot_name(test_location=test_location, index=index)
        return re.sub(r"\[(sqlite|memory|postgres)(-|\])", lambda found: "[" if found[2] == "-" else "", name, count=1)


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(OneForAllEngines)


def pytest_xdist_auto_num_workers() -> int:
    """Three for a core, but twelve at most: tests mostly wait, for leases to run out and for other processes."""
    return min(12, 3 * (os.cpu_count() or 1))


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """What the journals of this test lie in; a test runs on each that there is."""
    kind: Store = request.param
    return kind


@pytest.fixture
def engine(store: Store) -> Engine:
    """The engine on which this test runs."""
    return "postgres" if store == "postgres" else "sqlite"


@pytest.fixture
def fresh_url(request: pytest.FixtureRequest, engine: Engine, tmp_path: Path) -> FreshURL:
    """Name journals that are not there yet, and that any process can open; they are gone after the test."""
    if engine == "postgres":
        new_schema: Callable[[], str] = request.getfixturevalue("new_schema")
        postgres: Postgres = request.getfixturevalue("postgres")
        return lambda: postgres.url(new_schema())
    numbers = count(1)
    return lambda: str(tmp_path / f"journal-{next(numbers)}.sqlite")


@pytest.fixture
def journal_url(fresh_url: FreshURL) -> str:
    """Where the journal of this test is: not there yet, and for any process to open."""
    return fresh_url()


@pytest.fixture
def new_site(fresh_url: FreshURL, tmp_path: Path) -> NewSite:
    """Make an empty folder and name a journal that is not there yet."""
    numbers = count(1)

    def new() -> Site:
        folder = tmp_path / f"site-{next(numbers)}"
        folder.mkdir()
        return Site(folder, fresh_url())

    return new


@pytest.fixture
def site(new_site: NewSite) -> Site:
    return new_site()


@pytest.fixture
def url(store: Store, journal_url: str) -> str:
    """The same, and in memory too, for a test that opens its journal once."""
    return ":memory:" if store == "memory" else journal_url


@pytest.fixture
def quick_url(engine: Engine, journal_url: str) -> str:
    """In memory where that can be, for tests of which there are many and for which the store does not matter."""
    return ":memory:" if engine == "sqlite" else journal_url


@pytest.fixture
def clock(journal_url: str) -> Iterator[JournalClock]:
    """A clock that stands until it is moved, for the host and for the journal of this test."""
    clock = JournalClock()
    clock.drive(journal_url)
    yield clock
    clock.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL of this run, or of each of its processes: its own, unless `COUNTERFOIL_TEST_POSTGRES` names another."""
    if named := os.environ.get("COUNTERFOIL_TEST_POSTGRES"):
        other = Postgres(named)
        yield other
        other.disconnect()
    else:
        server = Server()
        yield server
        server.close()


@pytest.fixture(scope="session")
def own_postgres(postgres: Postgres) -> Iterator[Server]:
    """A PostgreSQL that a test may stop and start, and has to leave running: tests of one process run one after the other."""
    if isinstance(postgres, Server):
        yield postgres
    else:
        server = Server()
        yield server
        server.close()


_schemas = count(1)


@pytest.fixture
def new_schema(postgres: Postgres) -> Iterator[Callable[[], str]]:
    """Name schemas of `postgres` that are not there yet; they are dropped after the test."""
    named: list[str] = []

    def new() -> str:
        named.append(f"test_{os.getpid()}_{next(_schemas)}")
        return named[-1]

    yield new
    for schema in named:
        postgres.drop(schema)


@pytest.fixture
def schema(new_schema: Callable[[], str]) -> str:
    """A schema of `postgres` that is not there yet; it is dropped after the test."""
    return new_schema()


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    """A wire to `postgres` that can be cut."""
    proxy = Proxy(postgres)
    yield proxy
    proxy.close()
