"""Which engine opens a journal, by the name that it is given."""

from __future__ import annotations

import os
from pathlib import Path

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.limits import Limits

from .clock import Clock
from .engine import Engine
from .sqlite.engine import SQLiteEngine
from .sqlite.store import MEMORY

POSTGRES = ("postgresql", "postgres")


def checked_url(url: str | os.PathLike[str]) -> str:
    """Return the name of a journal as text; raises `InvalidValue` for what can be none."""
    if not isinstance(url, str | os.PathLike):
        raise InvalidValue(f"a journal is named by a path or a URL, not {type(url).__name__}")
    text = os.fspath(url)
    if not isinstance(text, str):
        raise InvalidValue("a journal is named by text, not bytes")
    if not text or "\0" in text:
        raise InvalidValue("the name of a journal must not be empty or hold NUL")
    return text


def open_engine(name: str, *, readonly: bool, create: bool, limits: Limits, clock: Clock, keep_inbound: bool) -> Engine:
    """Open the journal of a name: a URL of PostgreSQL's, `:memory:`, or the path of an SQLite file."""
    if is_postgres(name):
        from .postgres.naming import parse

        address = parse(name)
        from .postgres.engine import PostgresEngine

        return PostgresEngine(address, readonly=readonly, create=create, limits=limits, clock=clock, keep_inbound=keep_inbound)
    return SQLiteEngine(path_of(name), readonly=readonly, create=create, limits=limits, clock=clock, keep_inbound=keep_inbound)


def is_postgres(name: str) -> bool:
    """Tell whether a journal's name is a URL of PostgreSQL's, be it one that is refused."""
    return _scheme(name).partition("+")[0] in POSTGRES


def path_of(name: str) -> Path | None:
    """Return the path of a journal file, None for one in memory; raises `InvalidValue` for what can be neither."""
    if name == MEMORY:
        return None
    scheme = _scheme(name)
    if scheme:
        raise InvalidValue(
            f"a journal is the path of an SQLite file or a URL that begins with postgresql://, not a URL of {scheme[:32]}"
        )
    try:
        name.encode()
        return Path(os.path.realpath(name))
    except (UnicodeEncodeError, OSError, ValueError):
        raise InvalidValue("the name of a journal must be a path that this system can have") from None


def _scheme(name: str) -> str:
    scheme, separator, _ = name.partition("://")
    return scheme.lower() if separator else ""
