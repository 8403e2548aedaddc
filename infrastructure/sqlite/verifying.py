"""The verification of a journal file that need not be good enough to be opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from counterfoil.domain.errors import JournalDamaged

from ..verification import Progress, Verification, verify
from .creation import check_kind, check_path
from .crossing import gate
from .faults import fault
from .store import SQLiteStore, connect


def verify_file(path: Path, progress: Progress | None = None) -> Verification:
    """
    Verify the journal in a file, also one that opening refuses because its end does not agree.

    Raises `JournalRefused` for what is no journal of a known format, or is truncated.
    """
    check_path(path, readonly=True)
    try:
        with gate.inside(), closing(connect(path, readonly=True, busy_us=5_000_000)) as connection:
            check_kind(connection, path)
            connection.execute("BEGIN")
            return verify(SQLiteStore(connection), progress)
    except sqlite3.Error as error:
        raise fault(error, str(path)) from None
    except UnicodeDecodeError:
        raise JournalDamaged(f"{path}: is damaged: it holds text that is none; restore a backup") from None
