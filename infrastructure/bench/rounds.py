"""Measure in interleaved rounds: everything once, then everything again in the opposite order, each on fresh files."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from . import admissions, application, large, machine, programs, raw, turns
from .lines import CellName, Line, cells_of
from .results import Result, Sample, result
from .sizes import Sizes


class Report(NamedTuple):
    """Everything that one run found out."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    limits: dict[str, Any]
    sizes: Sizes
    large_events: int | None
    """Events of the journal that was opened, None when none was."""
    results: tuple[Result, ...]
    samples: dict[CellName, list[Sample]]


Say = Callable[[str], None]


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Lend a folder of its own, which is removed with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="counterfoil-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(lines: tuple[Line, ...], sizes: Sizes, parent: Path | None, say: Say) -> Report:
    """Measure what these lines need, and judge them. `say` is told what happens, in words."""
    cells = cells_of(lines)
    samples: dict[CellName, list[Sample]] = {cell: [] for cell in cells}
    with scratch(parent) as folder:
        known = machine.machine(folder), machine.settings(folder), machine.limits()
        journal = folder / "large.sqlite"
        events = None
        if "opening" in cells:
            events = large.build(journal, sizes.large, lambda done: say(f"large journal: {done:,} of {sizes.large:,} events"))
        for number in range(sizes.rounds):
            for cell in cells if number % 2 == 0 else cells[::-1]:
                say(f"round {number + 1} of {sizes.rounds}: {cell}")
                gc.collect()
                with scratch(folder) as own:
                    samples[cell].append(_sample(cell, own, journal, sizes))
    return Report(*known, sizes, events, tuple(result(line, samples) for line in lines), samples)


def _sample(cell: CellName, folder: Path, journal: Path, sizes: Sizes) -> Sample:
    match cell:
        case "admissions":
            return admissions.concurrent(folder, callers=sizes.callers, count=sizes.admissions)
        case "application":
            return application.create_and_save(folder, threads=sizes.threads, count=sizes.saves)
        case "raw event":
            return raw.group_commit(folder, raw.EVENT, callers=sizes.callers, count=sizes.raw_rows)
        case "raw bare":
            return raw.group_commit(folder, raw.BARE, callers=sizes.callers, count=sizes.raw_rows)
        case "alone":
            return admissions.alone(folder, count=sizes.alone)
        case "raw alone":
            return raw.alone(folder, count=sizes.alone)
        case "turns":
            return turns.turns(folder, routes=sizes.routes, turns_per_route=sizes.turns_per_route)
        case "opening":
            return large.opening(journal, count=sizes.openings)
        case "help":
            return programs.run(programs.HELP, count=sizes.starts)
        case "python":
            return programs.run(programs.PASS, count=sizes.starts)
