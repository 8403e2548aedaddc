"""The highest position that was ever appended here, so that an older copy of the journal gives no position out again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from counterfoil.domain.errors import JournalDamaged, JournalUnavailable

from .side_files import Descriptor

_TEXT: Final = re.compile(rb"[0-9]{20}\n")
_BYTES: Final = 21


class HighestPosition(Protocol):
    """Where the highest position is kept."""

    def read(self) -> int:
        """Return it, 0 when nothing was kept."""

    def write(self, position: int) -> None:
        """Keep it."""

    def close(self) -> None:
        """Close what is open."""


class MemoryHead:
    """A journal in memory is never put back from a copy."""

    def read(self) -> int:
        return 0

    def write(self, position: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class HeadFile:
    """
    The file `J-head`, written in place before each commit and not synced.

    It outlives the process, which is what counts: after a power cut it may be behind the journal, and then says nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open `J-head`, and make it where it is missing. Raises `JournalRefused`."""
        self._path = path
        self._descriptor = Descriptor(path)

    def read(self) -> int:
        """
        Return the highest position, 0 for a file that is empty, or as long as it was and without its bytes.

        Raises `JournalDamaged` if it holds anything else, and `JournalUnavailable` if it cannot be read.
        """
        with self._faults():
            text = os.pread(self._descriptor.number, _BYTES + 1, 0)
        if not text.strip(b"\0"):
            return 0
        if _TEXT.fullmatch(text) is None:
            raise JournalDamaged(
                f"{self._path} does not hold a position: put it back from a backup, "
                "or remove it if the journal is the newest there is"
            )
        return int(text)

    def write(self, position: int) -> None:
        """Keep it. Raises `JournalUnavailable` if it cannot be written."""
        with self._faults():
            os.pwrite(self._descriptor.number, b"%020d\n" % position, 0)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalUnavailable(f"{self._path}: reading or writing failed ({error.strerror}); try again") from None

    def close(self) -> None:
        self._descriptor.close()
