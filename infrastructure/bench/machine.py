"""What the figures were measured on, and with which settings."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..committer import GROUP
from ..sqlite.engine import CHECKPOINT_FRAMES
from ..sqlite.store import connect
from ..unit import RELEASE
from . import workload

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def machine(folder: Path) -> dict[str, Any]:
    """Return what the figures depend on: processors, what else they do, versions, the file system."""
    return {
        "processors": os.cpu_count(),
        "processors_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": _file_system(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "counterfoil": RELEASE,
        **{name: version(name) for name in ("eventsourcing", "pydantic")},
        "optimised": bool(sys.flags.optimize),
    }


def settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the journal's connections as SQLite tells them, and of its writer."""
    path = folder / "settings.sqlite"
    connection = connect(path, readonly=False, busy_us=1_000_000)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        told = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "page_size", "cache_size", "secure_delete")
        }
    finally:
        connection.close()
    told["synchronous"] = _SYNCHRONOUS[told["synchronous"]]
    return {**told, "checkpoint_frames": CHECKPOINT_FRAMES, "commands_in_a_group": GROUP}


def limits() -> dict[str, Any]:
    """Return the limits of the journals that are measured."""
    return {name: str(value) if not isinstance(value, int) else value for name, value in asdict(workload.LIMITS).items()}


def _file_system(folder: Path) -> str:
    """Return the kind of the file system of a folder: on one in memory a sync costs nothing."""
    try:
        told = subprocess.run(("df", "--output=fstype", folder), capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return told[-1]
