"""
The comparison of a schema with what this release makes.

What it should be is made once more, as temporary tables and functions in a transaction that is rolled back: so the server, of
whatever release it is, tells of both in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import psycopg

from counterfoil.domain.errors import JournalRefused
from counterfoil.projections.catalogue import BUILT_IN

from ..statements import statements
from . import ddl
from .naming import Address, quoted
from .projection_tables import TAG, name_in_record

CATALOGUE: Final = statements("postgres/catalogue.sql")
_ASIDE: Final = "pg_temp"
_OWN: Final = frozenset(map(name_in_record, BUILT_IN))


class Difference(NamedTuple):
    """Something in a schema that is not as this release makes it."""

    kind: str
    name: str
    what: str
    """As the end of a sentence that begins with kind and name."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.what}"


class Thing(NamedTuple):
    """What a schema has by one kind and name."""

    how: tuple[str, ...]
    """Several, where functions of one name differ in what they take."""
    texts: tuple[str | None, ...]


Things = dict[tuple[str, str], Thing]


def compare(connection: psycopg.Connection[Any], address: Address) -> list[Difference]:
    """
    Return every difference. Raises `JournalRefused` where the role may not make temporary tables; what psycopg raises passes.

    What belongs to projections of other releases is left out, and so are indexes that this release does not make and that only
    find things.
    """
    try:
        return _compare(connection, address)
    except psycopg.errors.InsufficientPrivilege:
        raise JournalRefused(
            f"{address.name}: to compare takes temporary tables, which this role may not make; grant it TEMPORARY on the database"
        ) from None


def _compare(connection: psycopg.Connection[Any], address: Address) -> list[Difference]:
    with connection.transaction(force_rollback=True):
        kept = _kept(connection)
        others = kept - _OWN
        for part in ddl.parts(_ASIDE, others):
            connection.execute(part.statement.replace("UNLOGGED ", "", 1).encode(), prepare=False)
        row = connection.execute(CATALOGUE.schema, {"schema": quoted(address.schema)}).fetchone()
        assert row is not None
        here, aside = (_things(connection, schema) for schema in row)
    bodies = {part.name: part.statement.split(TAG)[1] for part in ddl.parts(address.schema, others) if part.kind == "function"}
    found = list(_differences(here, aside, bodies))
    found += (Difference("projection", each.NAME, "is not entered") for each in BUILT_IN if name_in_record(each) not in kept)
    return [each for each in found if not _is_of(each, others)]


def kept_by_others(connection: psycopg.Connection[Any]) -> set[str]:
    """Return, as records call them, the projections that a journal keeps for other releases."""
    return _kept(connection) - _OWN


def _kept(connection: psycopg.Connection[Any]) -> set[str]:
    return {name for (name,) in connection.execute(CATALOGUE.kept)}


def _things(connection: psycopg.Connection[Any], schema: int) -> Things:
    things: Things = {}
    for kind, name, how, text in connection.execute(CATALOGUE.parts, {"schema": schema}):
        before = things.get((kind, name), Thing((), ()))
        things[kind, name] = Thing(tuple(sorted((*before.how, how))), (*before.texts, text))
    return things


def _differences(here: Things, aside: Things, bodies: dict[str, str]) -> Iterator[Difference]:
    for key in sorted(here.keys() | aside.keys()):
        kind, name = key
        table = ("table", name.partition(".")[0])
        if kind in ("column", "constraint") and (table not in here or table not in aside):
            continue  # the table as a whole is missing or unknown
        found, wanted = here.get(key), aside.get(key)
        if found is None:
            yield Difference(kind, name, "is missing")
        elif wanted is None:
            if kind != "index":
                yield Difference(kind, name, "is not part of this release")
        elif found.how != wanted.how:
            yield Difference(kind, name, f"is {' and '.join(found.how)}, and should be {' and '.join(wanted.how)}")
        elif kind == "function" and found.texts != (bodies[name],):
            yield Difference(kind, name, "has another body")


def _is_of(difference: Difference, projections: Iterable[str]) -> bool:
    """Tell whether a thing belongs to a projection of another release."""
    return any(
        difference.name in (f"cf_{name}", f"cf_write_{name}") or difference.name.startswith((f"cf_{name}.", f"cf_{name}_"))
        for name in projections
    )
