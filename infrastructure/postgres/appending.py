"""One append: a unit is sent as a record, and what has become of it is heard, or found out when the answer was lost."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ..statements import Names
from ..unit import Unit
from .record import Standpoint, record
from .store import PostgresStore

CALLS: Final = Names("calls")


class Appended(NamedTuple):
    """What has become of a record."""

    status: Literal["appended", "conflict", "behind"]
    conflict: str | None
    """What no longer stands, as a word."""
    before: int
    """The head that the record met."""
    first: int | None
    """The position of its first event; None when it has none."""
    recorded_at: int | None
    """The time of its first event, in microseconds since 1970."""
    epoch: int
    """The epoch that stands after it."""
    clock: int
    """The server's clock, in microseconds since 1970."""


def append(store: PostgresStore, unit: Unit, standpoint: Standpoint, *, least: int | None, synced: bool) -> Appended:
    """Append what a unit did. What the driver raises passes, a unique violation included: somebody else was first."""
    body = record(unit, standpoint, least=least, synced=synced)
    row = store.one(CALLS.append, (body.decode(),))
    assert row is not None
    return Appended(*row)
