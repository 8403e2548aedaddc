"""On which engine a test runs: on each, unless it says why one alone can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import pytest

Engine: TypeAlias = Literal["sqlite", "postgres"]
Store: TypeAlias = Literal["sqlite", "memory", "postgres"]
"""Where a journal lies: in a file, in memory, or in a schema."""

ENGINES: Final[tuple[Engine, ...]] = ("sqlite", "postgres")
USUAL: Final[tuple[Engine, ...]] = ENGINES
"""The engines on which the tests run when `--engine` names none."""

ONLY: Final[dict[str, Engine]] = {"sqlite_only": "sqlite", "postgres_only": "postgres"}
"""The marks of a test that one engine alone can run, with the reason."""
NONE: Final = "no_engine"
"""The mark of a test among those of the engines that opens no journal, with the reason."""


def reason_of(mark: pytest.Mark) -> str:
    """Return why a test is marked."""
    match mark.args, mark.kwargs:
        case (str(reason),), {} if len(reason.split()) > 2 and not mark.kwargs:
            return reason
    raise pytest.UsageError(f"{mark.name} wants the reason, in words")


def stores_of(marks: Iterable[pytest.Mark], asked: Sequence[Engine], *, in_memory: bool) -> list[Store]:
    """
    Return the stores on which a test runs: those of the engines that are asked for, but on its own one if it has such a mark.
    In memory too, if it wants to.
    """
    only = [ONLY[mark.name] for mark in marks if mark.name in ONLY]
    stores: list[Store] = []
    for engine in only[:1] or asked:
        stores += ["sqlite", "memory"] if engine == "sqlite" and in_memory else [engine]
    return stores
