"""What the role of a connection may read. The journal's writer sees all, its reader neither texts nor ids of people nor keys."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

from ..statements import statements

ACCESS: Final = statements("postgres/access.sql")


class Access(NamedTuple):
    """What a role may read beside the history."""

    names: bool
    """Whom pseudonyms stand for, ids of platforms, keys of locks, whose scope is whose."""
    texts: bool
    journal_key: bytes | None
    """None where it may not."""

    def __repr__(self) -> str:
        return f"Access(names={self.names}, texts={self.texts})"


def access_of(connection: psycopg.Connection[Any]) -> Access:
    """Ask what the role of a connection may read in the schema that comes first for it. What psycopg raises passes."""
    row = connection.execute(ACCESS.rights).fetchone()
    assert row is not None
    names, texts, has_key = row
    key = connection.execute(ACCESS.journal_key, binary=True).fetchone() if has_key else None
    return Access(names, texts, None if key is None else key[0])
