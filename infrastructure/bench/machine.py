"""What the figures were measured on, and with which settings, wherever the journals lie."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from ..committer import GROUP
from ..unit import RELEASE
from . import workload


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processors, what else they do, versions."""
    return {
        "processors": os.cpu_count(),
        "processors_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "counterfoil": RELEASE,
        **{name: version(name) for name in ("eventsourcing", "pydantic")},
        "optimised": bool(sys.flags.optimize),
    }


def settings() -> dict[str, Any]:
    """Return the settings of the writer."""
    return {"commands_in_a_group": GROUP}


def limits() -> dict[str, Any]:
    """Return the limits of the journals that are measured."""
    return {name: str(value) if not isinstance(value, int) else value for name, value in asdict(workload.LIMITS).items()}
