"""Measure in interleaved rounds: everything once, then everything again in the opposite order, each on fresh files."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from . import admissions, application, large, locks, long_key, machine, parties, programs, raw, turns
from .lines import CellName, Line, cells_of, without_tinystore
from .results import Result, Sample, result
from .sizes import Sizes
from .tinystore import TinyStore


class Report(NamedTuple):
    """Everything that one run found out."""

    machine: dict[str, Any]
    settings: dict[str, Any]
    limits: dict[str, Any]
    sizes: Sizes
    large_events: int | None
    """Events of the journal that was opened, None when none was."""
    long_history: int | None
    """Events of the key whose loading was measured, None when none was."""
    tinystore: str | None
    """Which TinyStore the locks were compared with, None when with none."""
    results: tuple[Result, ...]
    samples: dict[CellName, list[Sample]]


class Made(NamedTuple):
    """What is there for all rounds."""

    large: Path
    long_key: Path
    tinystore: TinyStore | None

    @property
    def compared_with(self) -> TinyStore:
        """What the locks are compared with, where they are."""
        assert self.tinystore is not None
        return self.tinystore


Say = Callable[[str], None]


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Lend a folder of its own, which is removed with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="counterfoil-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(lines: tuple[Line, ...], sizes: Sizes, parent: Path | None, tinystore: TinyStore | None, say: Say) -> Report:
    """
    Measure what these lines need, and judge them. `say` is told what happens, in words.

    Without TinyStore the locks are measured alone.
    """
    if tinystore is None:
        lines = without_tinystore(lines)
    cells = cells_of(lines)
    samples: dict[CellName, list[Sample]] = {cell: [] for cell in cells}
    with scratch(parent) as folder:
        known = machine.machine(folder), machine.settings(folder), machine.limits()
        made = Made(folder / "large.sqlite", folder / "long-key.sqlite", tinystore)
        events = history = None
        if "opening" in cells:
            events = large.build(made.large, sizes.large, lambda done: say(f"large journal: {done:,} of {sizes.large:,} events"))
        if "pages" in cells:
            history = long_key.build(
                made.long_key, sizes.long_history, lambda done: say(f"long history: {done:,} of {sizes.long_history:,} events")
            )
        for number in range(sizes.rounds):
            for cell in cells if number % 2 == 0 else cells[::-1]:
                say(f"round {number + 1} of {sizes.rounds}: {cell}")
                gc.collect()
                with scratch(folder) as own:
                    samples[cell].append(_sample(cell, own, made, sizes))
    compared = None if tinystore is None else tinystore.version
    results = tuple(result(line, samples) for line in lines)
    return Report(*known, sizes, events, history, compared, results, samples)


def _sample(cell: CellName, folder: Path, made: Made, sizes: Sizes) -> Sample:
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
            return large.opening(made.large, count=sizes.openings)
        case "help":
            return programs.run(programs.HELP, count=sizes.starts)
        case "python":
            return programs.run(programs.PASS, count=sizes.starts)
        case "lock alone":
            return locks.alone(folder, count=sizes.lock_takes)
        case "lock alone, TinyStore":
            return made.compared_with.alone("embedded", folder, count=sizes.lock_takes)
        case "lock alone, TinyStore's server":
            return made.compared_with.alone("private", folder, count=sizes.lock_takes)
        case "locks":
            return locks.at_once(folder, tasks=sizes.lock_keys, each=sizes.takes_per_key)
        case "locks, TinyStore":
            return made.compared_with.at_once("embedded", folder, tasks=sizes.lock_keys, each=sizes.takes_per_key)
        case "locks, TinyStore's server":
            return made.compared_with.at_once("private", folder, tasks=sizes.lock_keys, each=sizes.takes_per_key)
        case "handover":
            return parties.handover(folder, processes=sizes.line_processes, waiters=sizes.line_waiters, passes=sizes.line_passes)
        case "kill":
            return parties.kill(folder, count=sizes.kills)
        case "pages":
            return long_key.pages(made.long_key)
        case "idle":
            return parties.idle(folder, seconds=sizes.idle_seconds)
