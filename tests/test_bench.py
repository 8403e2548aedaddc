"""The bench measures what it says, with very little work: its output has the right form. No test looks at a time."""

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from counterfoil.infrastructure.bench import sizes
from counterfoil.infrastructure.bench.lines import IN_FILES, IN_SCHEMAS, TINYSTORE, Line, without_tinystore
from counterfoil.infrastructure.bench.lock_party import Block
from counterfoil.infrastructure.bench.parties import NotInOrder, hand_overs
from counterfoil.infrastructure.bench.results import percentile, result, summary
from counterfoil.infrastructure.cli.bench import bench
from tests.postgres_server import Postgres

TINY = sizes.Sizes(
    rounds=2,
    callers=4,
    admissions=20,
    processes=2,
    before=20,
    raw_rows=20,
    threads=2,
    saves=6,
    alone=3,
    routes=4,
    turns_per_route=2,
    large=3_000,
    openings=1,
    starts=1,
    lock_takes=5,
    lock_keys=3,
    takes_per_key=2,
    line_processes=2,
    line_waiters=5,
    line_passes=1,
    kills=1,
    long_history=1_000,
    idle_seconds=0.1,
)

FAKE = """
import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace


class Store:
    def __init__(self):
        self._fence = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    def lock(self, name, *, ttl):
        return self

    @asynccontextmanager
    async def hold(self, key, *, wait):
        await asyncio.sleep(0)
        self._fence += 1
        yield SimpleNamespace(fence=self._fence)


async def open(directory, *, embedded=False, private=False):
    assert embedded != private
    return Store()
"""
"""What stands for TinyStore, which is never installed with this project."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to measure in; a quick bench does next to nothing."""
    monkeypatch.setattr(sizes, "QUICK", TINY)
    return tmp_path


def run(*arguments: str | Path) -> Result:
    """Run the verb in this process."""
    return CliRunner().invoke(bench, [str(each) for each in arguments])


def measured(*arguments: str | Path) -> dict[str, Any]:
    """Run the verb and read the object that it prints."""
    done = run("--quick", "--json", *arguments)

    assert 0 == done.exit_code, done.output

    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.contract("CLI-02")
def test_bench_on_postgresql_drops_what_it_makes(folder: Path, postgres: Postgres) -> None:
    """Every line is measured, in schemas of its own; the one that the URL names is not touched."""
    level = logging.getLogger("psycopg").level
    document = measured(postgres.url("untouched"))

    assert [line.name for line in IN_SCHEMAS] == [row["name"] for row in document["rows"]]
    for row, line in zip(document["rows"], IN_SCHEMAS, strict=True):
        assert 0 < row["value"]["low"] <= row["value"]["median"] <= row["value"]["high"]
        assert (row["ratio"] is not None) == line.is_ratio == (row["other"] is not None)
    assert {len(samples) for samples in document["samples"].values()} == {TINY.rounds}
    assert document["settings"].keys() >= {"server_version", "fsync", "synchronous_commit"}
    assert [] == schemas_of(postgres)
    assert level == logging.getLogger("psycopg").level


def test_failed_measurement_on_postgresql_leaves_nothing(
    folder: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.infrastructure.bench.raw_server.median", lambda times: [].pop())

    assert isinstance(run("--quick", "--only", "alone", postgres.url("untouched")).exception, IndexError)
    assert [] == schemas_of(postgres)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_bench_on_postgresql_leaves_nothing(postgres: Postgres, number: int, status: int) -> None:
    """While processes of its own are at work."""
    command = (sys.executable, "-m", "counterfoil", "bench", postgres.url("untouched"), "--only", "together", "--rounds", "100")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(number)

        assert status == process.wait(60)
    assert [] == schemas_of(postgres)


def schemas_of(postgres: Postgres) -> list[Any]:
    """Return what is left of benches."""
    return postgres.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'counterfoil\\_bench\\_%'")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "pages", "postgresql:///a"), "in files alone"),
        (("--only", "together"), "name a URL"),
        (("--folder", ".", "postgresql:///a"), "--folder"),
        (("journal.sqlite",), "postgresql://"),
    ],
)
def test_what_is_not_measured_there_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)

    assert 2 == done.exit_code
    assert words in done.stderr


def test_bench_prints_one_object_and_leaves_nothing(folder: Path) -> None:
    """Every line has its medians, spreads and bounds, beside what the figures depend on."""
    document = measured("--folder", folder)

    lines = without_tinystore(IN_FILES)
    assert [line.name for line in lines] == [row["name"] for row in document["rows"]]
    for row, line in zip(document["rows"], lines, strict=True):
        assert 0 < row["value"]["low"] <= row["value"]["median"] <= row["value"]["high"]
        assert (row["ratio"] is not None) == line.is_ratio == (row["other"] is not None)
        assert (row["must"], row["aim"]) == (line.must, line.aim)
        assert isinstance(row["reached"], bool) == (line.must is not None)
    assert {len(samples) for samples in document["samples"].values()} == {TINY.rounds}
    assert "FULL" == document["settings"]["synchronous"]
    assert document["machine"].keys() >= {"processors", "python", "sqlite", "file_system", "load_average"}
    assert document["limits"]["max_pending_per_process"] == 10_000
    assert document["large_events"] >= TINY.large
    assert document["long_history"] in (None, TINY.long_history)
    assert document["tinystore"] is None
    assert [] == list(folder.iterdir())


def test_only_measures_what_a_line_needs(folder: Path) -> None:
    """A line brings what it is compared with, and nothing else."""
    document = measured("--only", "alone", "--rounds", "1", "--folder", folder)

    assert {"alone", "raw alone"} == document["samples"].keys()
    assert ["alone"] == [row["name"] for row in document["rows"]]
    assert document["large_events"] is None


def test_table_is_data_and_progress_is_talk(folder: Path) -> None:
    """People get a table with what was measured beside it; what is going on is told on standard error."""
    done = run("--quick", "--only", "alone", "--only", "size", "--rounds", "1", "--folder", folder)

    assert 0 == done.exit_code
    assert "one admission, one caller alone" in done.stdout
    assert "against raw INSERT and COMMIT" in done.stdout
    assert "synchronous FULL" in done.stdout
    assert "round 1 of 1" not in done.stdout
    assert "round 1 of 1" in done.stderr


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python in whose environment something stands for TinyStore."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "tinystore.py").write_text(FAKE)
    (packages / "tinyshed_tinystore-7.dist-info").mkdir()
    (packages / "tinyshed_tinystore-7.dist-info" / "METADATA").write_text("Name: tinyshed-tinystore\nVersion: 7\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    return sys.executable


def test_locks_are_compared_with_tinystore_where_its_python_is_named(folder: Path, python: str) -> None:
    """In the same rounds, with as much to do."""
    document = measured("--only", "lock", "--only", "locks", "--tinystore", python, "--folder", folder)

    assert {"lock alone", "locks", *TINYSTORE} == document["samples"].keys()
    assert {TINY.rounds} == {len(samples) for samples in document["samples"].values()}
    assert [line.against for line in IN_FILES if line.name in ("lock", "locks")] == [row["against"] for row in document["rows"]]
    assert all(row["ratio"]["median"] > 0 for row in document["rows"])
    assert document["tinystore"].startswith("7 on Python 3.")


def test_locks_alone_are_not_judged(folder: Path) -> None:
    """Without TinyStore the table says that nothing was compared, and how that is done."""
    done = run("--quick", "--only", "lock", "--rounds", "1", "--folder", folder)

    assert 0 == done.exit_code
    assert 1 == done.stdout.count("a key taken and let go, one after the other")
    assert "not compared with TinyStore embedded" in done.stdout
    assert "--tinystore" in done.stdout
    assert "≤" not in done.stdout


def test_python_without_tinystore_is_refused(folder: Path) -> None:
    """Before anything is measured."""
    done = run("--quick", "--only", "lock", "--tinystore", sys.executable, "--folder", folder)

    assert 2 == done.exit_code
    assert "no Python that has TinyStore" in done.stderr
    assert "round" not in done.stderr


@pytest.mark.parametrize(
    ("places", "entered", "words"),
    [
        ((0, 2, 1), (0, 10, 20), "overtaken"),
        ((0, 1), (0, 10), None),
        ((0, 2), (0, 10), "not at all"),
        ((0, 1), (0, 4), "same time"),
    ],
)
def test_line_that_is_not_served_in_order_ends_the_bench(
    places: tuple[int, ...], entered: tuple[int, ...], words: str | None
) -> None:
    """Order is checked; blocks of these five nanoseconds come in the order of their fences."""
    blocks = [Block(fence, place, at, at + 5) for fence, (place, at) in enumerate(zip(places, entered, strict=True))]
    if words is None:
        assert [5e-6] == hand_overs(blocks)
        return
    with pytest.raises(NotInOrder, match=words):
        hand_overs(blocks)


@pytest.mark.parametrize("arguments", [("--only", "speed"), ("--rounds", "0"), ("--folder", "no-such-folder")])
def test_wrong_usage_measures_nothing(arguments: tuple[str, str]) -> None:
    """What is wrong on the command line is said at once."""
    assert 2 == run(*arguments).exit_code


def test_failed_measurement_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files go also when a measurement ends early."""
    monkeypatch.setattr("counterfoil.infrastructure.bench.raw.alone", lambda folder, count: {})

    assert isinstance(run("--quick", "--only", "alone", "--folder", folder).exception, KeyError)
    assert [] == list(folder.iterdir())


def test_ratio_is_taken_within_a_round() -> None:
    """A slow round slows both sides, so ratios are compared and not medians."""
    line = Line("a", "a", "/s", "alone", "rate", 4, 8, True, "b", "raw alone", "rate")
    found = result(
        line, {"alone": [{"rate": 50}, {"rate": 500}, {"rate": 60}], "raw alone": [{"rate": 10}, {"rate": 100}, {"rate": 10}]}
    )

    assert found.ratio is not None
    assert (5, 5, 6) == (found.ratio.median, found.ratio.low, found.ratio.high)
    assert found.reached
    assert not found.aim_reached


@pytest.mark.parametrize(
    ("more_is_better", "value", "reached"),
    [(True, 4, True), (True, 3.9, False), (False, 4, True), (False, 4.1, False)],
)
def test_bound_is_on_the_right_side(more_is_better: bool, value: float, reached: bool) -> None:
    """Rates must not fall below their bounds, times not rise above them."""
    line = Line("a", "a", "ms", "alone", "median", 4, 4, more_is_better)

    assert reached == result(line, {"alone": [{"median": value}]}).reached


def test_percentile_is_a_value_that_was_measured() -> None:
    """The 99th of a hundred is the last but one."""
    values = [float(number) for number in range(1, 101)]

    assert [50, 95, 99] == [percentile(values, percent) for percent in (50, 95, 99)]
    assert 7 == percentile([7], 99)
    assert (2, 1, 3) == summary([3, 1, 2])
