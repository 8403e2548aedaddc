"""Whether the SQLite that Python brings is new enough."""

from __future__ import annotations

import sqlite3
from typing import Final

from counterfoil.domain.errors import JournalRefused

LEAST: Final = (3, 37, 0)
"""The first that knows STRICT tables; an older one takes a journal's schema for damage."""


def check_version() -> None:
    """Refuse an SQLite that is older than what a journal needs."""
    if sqlite3.sqlite_version_info < LEAST:
        least = ".".join(map(str, LEAST[:2]))
        raise JournalRefused(
            f"this Python comes with SQLite {sqlite3.sqlite_version}, and a journal needs {least} or newer; "
            "use a Python with a newer one"
        )
