"""Whether anybody has committed to a journal file, be it rows without an event."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .crossing import gate
from .faults import fault
from .store import connect


class Outside:
    """Ask again and again whether the file has changed since; for one thread. A journal in memory is changed by nobody else."""

    def __init__(self, path: Path | None, busy_us: int) -> None:
        """Open nothing yet."""
        self._path = path
        self._busy = busy_us
        self._connection: sqlite3.Connection | None = None
        self._version = 0

    def changed(self) -> bool:
        """Tell whether a commit has come since the last call; the first tells True. Raises what a store that fails raises."""
        if self._path is None:
            return False
        try:
            with gate.inside():
                if self._connection is None:
                    self._connection = connect(self._path, readonly=True, busy_us=self._busy)
                version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise fault(error, str(self._path)) from None
        before, self._version = self._version, version
        return version != before

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
