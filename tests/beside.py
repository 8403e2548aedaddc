"""Programs that run beside a test, on the files of a journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import counterfoil

ROOT = Path(counterfoil.__file__).parents[1]


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program, whose warnings are errors; it and its children end with the block."""
    command = (sys.executable, "-W", "error", "-c", program, *map(str, arguments))
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> str:
    """The next word that the process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
