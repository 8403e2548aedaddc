"""Measure in interleaved rounds: everything once, then everything again in the opposite order, each in a journal of its own."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from . import machine
from .lines import CellName, Line, cells_of
from .results import Result, Sample, result
from .sizes import Sizes

Say = Callable[[str], None]


class Place(Protocol):
    """Where journals are made to be measured."""

    def machine(self) -> dict[str, Any]:
        """Return what the figures depend on there, beside the processors."""

    def settings(self) -> dict[str, Any]:
        """Return the settings on which the costs of a commit depend."""

    def prepare(self, cells: tuple[CellName, ...], sizes: Sizes, say: Say) -> dict[str, Any]:
        """Build what all rounds read; return by name what was built and what is compared with."""

    def sample(self, cell: CellName, sizes: Sizes) -> Sample:
        """Measure it once; whatever was made for that is gone afterwards."""


class Report(NamedTuple):
    """Everything that one run found out."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    limits: dict[str, Any]
    sizes: Sizes
    prepared: dict[str, Any]
    """What was built for all rounds, and which others it was compared with; None for what was not."""
    results: tuple[Result, ...]
    samples: dict[CellName, list[Sample]]


def measure(lines: tuple[Line, ...], sizes: Sizes, place: Place, say: Say) -> Report:
    """Measure what these lines need, and judge them. `say` is told what happens, in words."""
    cells = cells_of(lines)
    samples: dict[CellName, list[Sample]] = {cell: [] for cell in cells}
    known = {**machine.machine(), **place.machine()}, {**place.settings(), **machine.settings()}, machine.limits()
    prepared = place.prepare(cells, sizes, say)
    for number in range(sizes.rounds):
        for cell in cells if number % 2 == 0 else cells[::-1]:
            say(f"round {number + 1} of {sizes.rounds}: {cell}")
            gc.collect()
            samples[cell].append(place.sample(cell, sizes))
    return Report(*known, sizes, prepared, tuple(result(line, samples) for line in lines), samples)
