"""That every test of the engines runs on each of them, or says why it does not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.engines import NONE, ONLY, Engine, reason_of, stores_of

TESTS = Path(__file__).parent
OF_ENGINES = ("cli", "fleet", "front", "journal", "locks", "reading", "runtime")
"""The folders whose tests run on every engine."""


def marks(*found: pytest.MarkDecorator) -> list[pytest.Mark]:
    return [each.mark for each in found]


@pytest.mark.parametrize(
    ("found", "asked", "in_memory", "stores"),
    [
        ((), ("sqlite", "postgres"), False, ["sqlite", "postgres"]),
        ((), ("sqlite", "postgres"), True, ["sqlite", "memory", "postgres"]),
        ((), ("postgres",), True, ["postgres"]),
        ((pytest.mark.sqlite_only("it is about files"),), ("sqlite", "postgres"), False, ["sqlite"]),
        ((pytest.mark.sqlite_only("it is about files"),), ("postgres",), True, ["sqlite", "memory"]),
        ((pytest.mark.postgres_only("it is about connections"),), ("sqlite",), True, ["postgres"]),
        ((pytest.mark.slow,), ("sqlite",), False, ["sqlite"]),
    ],
)
def test_a_test_runs_on_each_store_of_its_engines(
    found: tuple[pytest.MarkDecorator, ...], asked: tuple[Engine, ...], in_memory: bool, stores: list[str]
) -> None:
    assert stores == stores_of(marks(*found), asked, in_memory=in_memory)


@pytest.mark.parametrize(
    "mark",
    [
        pytest.mark.sqlite_only,
        pytest.mark.sqlite_only(""),
        pytest.mark.no_engine("no"),
        pytest.mark.sqlite_only(reason="of files it is"),
    ],
)
def test_a_mark_without_a_reason_is_refused(mark: pytest.MarkDecorator) -> None:
    with pytest.raises(pytest.UsageError, match="wants the reason"):
        reason_of(mark.mark)


def on_every_engine(request: pytest.FixtureRequest) -> list[pytest.Function]:
    """Those of the tests that are run with this one that do not say that one engine alone can, or none."""
    return [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path.relative_to(TESTS).parts[0] in OF_ENGINES
        and not any(mark.name in ONLY or mark.name == NONE for mark in item.iter_markers())
    ]


def test_every_test_of_the_engines_takes_its_engine_from_the_fixture(request: pytest.FixtureRequest) -> None:
    left_out = {item.nodeid.partition("[")[0] for item in on_every_engine(request) if "store" not in item.fixturenames}

    assert not left_out, "\n".join(["on which engine do these run?", *sorted(left_out)])


def test_no_test_of_every_engine_reaches_for_sqlite(request: pytest.FixtureRequest) -> None:
    reaches = {
        item.nodeid.partition("[")[0]
        for item in on_every_engine(request)
        if re.search(r"\b(sqlite3\.connect|sqlite_engine)\(", inspect.getsource(item.function))
    }

    assert not reaches, "\n".join(["these are about SQLite, and do not say so:", *sorted(reaches)])
