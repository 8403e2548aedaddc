"""How much work a run of the bench does."""

from __future__ import annotations

from typing import Final, NamedTuple


class Sizes(NamedTuple):
    """The amounts of one round, but for the large journal, which is built once."""

    rounds: int
    callers: int
    """Tasks that admit at the same time."""
    admissions: int
    raw_rows: int
    """Rows of the raw group commit."""
    threads: int
    saves: int
    """Aggregates that a plain application creates and saves."""
    alone: int
    """Admissions of one caller alone, and raw inserts beside them."""
    routes: int
    turns_per_route: int
    large: int
    """Events of the journal that is opened."""
    openings: int
    starts: int


FULL: Final = Sizes(
    rounds=5,
    callers=256,
    admissions=8_000,
    raw_rows=16_000,
    threads=16,
    saves=2_500,
    alone=400,
    routes=256,
    turns_per_route=16,
    large=1_000_000,
    openings=5,
    starts=5,
)
QUICK: Final = FULL._replace(
    rounds=3, admissions=4_000, raw_rows=8_000, saves=1_000, alone=200, turns_per_route=6, large=100_000, openings=3, starts=3
)
