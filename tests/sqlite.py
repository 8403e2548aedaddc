"""What tests that are about SQLite reach behind the public face for."""

from __future__ import annotations

from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.sqlite.engine import SQLiteEngine


def sqlite_engine(core: Core) -> SQLiteEngine:
    """Return the engine of a journal in an SQLite file."""
    assert isinstance(core.engine, SQLiteEngine)
    return core.engine
