"""How long a program takes from its start to its end."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Final

from .results import Sample

HELP: Final = (sys.executable, "-m", "counterfoil", "--help")
PASS: Final = (sys.executable, "-c", "pass")


def run(command: tuple[str, ...], *, count: int) -> Sample:
    """Measure a program that must succeed."""
    times = []
    for _ in range(count):
        began = perf_counter()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        times.append(perf_counter() - began)
    return {"median": median(times) * 1e3}
