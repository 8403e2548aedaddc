"""What is measured of journals in SQLite files: which measurement is taken how, and what it is compared with."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..sqlite.engine import CHECKPOINT_FRAMES
from ..sqlite.store import connect
from ..statements import statements
from . import admissions, application, large, locks, long_key, parties, programs, raw, turns
from .lines import CellName
from .results import Sample
from .rounds import Say
from .sizes import Sizes
from .tinystore import TinyStore

SQL: Final = statements("sqlite/bench.sql")
_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Lend a folder of its own, which is removed with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="counterfoil-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Files:
    """Journals in files of one folder, each measurement in a folder of its own."""

    def __init__(self, folder: Path, tinystore: TinyStore | None) -> None:
        self._folder = folder
        self._tinystore = tinystore
        self._large = folder / "large.sqlite"
        self._long_key = folder / "long-key.sqlite"

    def machine(self) -> dict[str, Any]:
        """Return what the figures depend on beside the processors: SQLite, and the file system."""
        return {"file_system": _file_system(self._folder), "sqlite": sqlite3.sqlite_version}

    def settings(self) -> dict[str, Any]:
        """Return the settings of the journal's connections as SQLite tells them."""
        connection = connect(self._folder / "settings.sqlite", readonly=False, busy_us=1_000_000)
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            told = {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "page_size", "cache_size", "secure_delete")
            }
        finally:
            connection.close()
        told["synchronous"] = _SYNCHRONOUS[told["synchronous"]]
        return {**told, "checkpoint_frames": CHECKPOINT_FRAMES}

    def prepare(self, cells: tuple[CellName, ...], sizes: Sizes, say: Say) -> dict[str, Any]:
        """Build what all rounds read, and return what was built and what is compared with, in words."""
        built: dict[str, Any] = {"large_events": None, "long_history": None}
        if "opening" in cells:
            built["large_events"] = large.build(
                self._large, sizes.large, lambda done: say(f"large journal: {done:,} of {sizes.large:,} events")
            )
        if "pages" in cells:
            built["long_history"] = long_key.build(
                self._long_key, sizes.long_history, lambda done: say(f"long history: {done:,} of {sizes.long_history:,} events")
            )
        return {**built, "tinystore": None if self._tinystore is None else self._tinystore.version}

    def sample(self, cell: CellName, sizes: Sizes) -> Sample:
        """Measure it once."""
        with scratch(self._folder) as folder:
            return self._sample(cell, folder, sizes)

    def _sample(self, cell: CellName, folder: Path, sizes: Sizes) -> Sample:
        path = folder / "journal.sqlite"
        match cell:
            case "admissions":
                return admissions.concurrent(str(path), callers=sizes.callers, count=sizes.admissions)
            case "application":
                env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "application.sqlite")}
                return application.create_and_save(env, threads=sizes.threads, count=sizes.saves)
            case "raw event":
                return raw.group_commit(folder, raw.EVENT, callers=sizes.callers, count=sizes.raw_rows)
            case "raw bare":
                return raw.group_commit(folder, raw.BARE, callers=sizes.callers, count=sizes.raw_rows)
            case "alone":
                return admissions.alone(str(path), count=sizes.alone)
            case "raw alone":
                return raw.alone(folder, count=sizes.alone)
            case "turns":
                rate = turns.turns(str(path), routes=sizes.routes, turns_per_route=sizes.turns_per_route)
                return {**rate, "bytes": _size(path) / (sizes.routes * sizes.turns_per_route)}
            case "opening":
                return large.opening(self._large, count=sizes.openings)
            case "help":
                return programs.run(programs.HELP, count=sizes.starts)
            case "python":
                return programs.run(programs.PASS, count=sizes.starts)
            case "lock alone":
                return locks.alone(str(path), count=sizes.lock_takes)
            case "lock alone, TinyStore":
                return self._compared_with.alone("embedded", folder, count=sizes.lock_takes)
            case "lock alone, TinyStore's server":
                return self._compared_with.alone("private", folder, count=sizes.lock_takes)
            case "locks":
                return locks.at_once(str(path), tasks=sizes.lock_keys, each=sizes.takes_per_key)
            case "locks, TinyStore":
                return self._compared_with.at_once("embedded", folder, tasks=sizes.lock_keys, each=sizes.takes_per_key)
            case "locks, TinyStore's server":
                return self._compared_with.at_once("private", folder, tasks=sizes.lock_keys, each=sizes.takes_per_key)
            case "handover":
                return parties.handover(
                    str(path), processes=sizes.line_processes, waiters=sizes.line_waiters, passes=sizes.line_passes
                )
            case "kill":
                return parties.kill(str(path), count=sizes.kills)
            case "pages":
                return long_key.pages(self._long_key)
            case "idle":
                return parties.idle(str(path), seconds=sizes.idle_seconds)
        raise ValueError(cell)

    @property
    def _compared_with(self) -> TinyStore:
        """What the locks are compared with, where they are."""
        assert self._tinystore is not None
        return self._tinystore


def _size(path: Path) -> int:
    """Return the bytes of a closed journal, but for those of the texts that it keeps."""
    connection = sqlite3.connect(path)
    try:
        return path.stat().st_size - int(connection.execute(SQL.payload_bytes).fetchone()[0])
    finally:
        connection.close()


def _file_system(folder: Path) -> str:
    """Return the kind of the file system of a folder: on one in memory a sync costs nothing."""
    try:
        told = subprocess.run(("df", "--output=fstype", folder), capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return told[-1]
