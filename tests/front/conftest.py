"""Journals through the public face, as a plain program has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import counterfoil

OpenJournal = Callable[..., counterfoil.Journal]


@pytest.fixture(params=["file", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[counterfoil.Journal]:
    with counterfoil.open(tmp_path / "journal.sqlite" if request.param == "file" else ":memory:") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"
