"""TinyStore, in an environment of its own that a person names: its Python runs a program that measures its locks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final, Literal, TypeAlias

from .results import Sample

Mode: TypeAlias = Literal["embedded", "private"]
"""Its core in the measured process, or in a server that this process starts for itself."""

PROGRAM: Final = Path(__file__).with_name("takes.py")


class TinyStoreFails(Exception):
    """The Python that was named does not run TinyStore."""


class TinyStore:
    """What a Python has; `version` tells which TinyStore and which Python. Raises `TinyStoreFails` when it has none."""

    def __init__(self, python: Path) -> None:
        self._python = python
        try:
            self.version = self._run()
        except (OSError, subprocess.CalledProcessError):
            raise TinyStoreFails(f"{python} is no Python that has TinyStore; CONTRIBUTING.md tells how to make one") from None

    def alone(self, mode: Mode, folder: Path, *, count: int) -> Sample:
        """Measure one take and release after the other."""
        return self._sample(mode, folder / "tinystore", "alone", count)

    def at_once(self, mode: Mode, folder: Path, *, tasks: int, each: int) -> Sample:
        """Measure the rate at which so many tasks take and release, each a key of its own."""
        return self._sample(mode, folder / "tinystore", "at once", tasks, each)

    def _sample(self, *arguments: str | Path | int) -> Sample:
        sample: Sample = json.loads(self._run(*arguments))
        return sample

    def _run(self, *arguments: str | Path | int) -> str:
        words = [
            str(each) for each in (self._python, "-P", PROGRAM, *arguments)
        ]  # -P: what lies beside it is not for it to import
        done = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        return done.stdout.strip()
