"""How much work a run of the bench does."""

from __future__ import annotations

from typing import Final, NamedTuple


class Sizes(NamedTuple):
    """The amounts of one round, but for the large journal and the long history, which are built once."""

    rounds: int
    callers: int
    """Tasks that admit at the same time."""
    admissions: int
    processes: int
    """Processes that share the callers and the admissions of one."""
    before: int
    """Admissions that were there before others read the journal."""
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
    lock_takes: int
    """Takes of one key, one after the other."""
    lock_keys: int
    """Tasks that take keys at the same time, each its own."""
    takes_per_key: int
    line_processes: int
    line_waiters: int
    """Tasks in these processes that stand in one line."""
    line_passes: int
    kills: int
    long_history: int
    """Events of the key whose loading is measured."""
    idle_seconds: float


FULL: Final = Sizes(
    rounds=5,
    callers=256,
    admissions=8_000,
    processes=4,
    before=2_000,
    raw_rows=16_000,
    threads=16,
    saves=2_500,
    alone=400,
    routes=256,
    turns_per_route=16,
    large=1_000_000,
    openings=5,
    starts=5,
    lock_takes=1_000,
    lock_keys=50,
    takes_per_key=100,
    line_processes=5,
    line_waiters=50,
    line_passes=4,
    kills=5,
    long_history=1_000_000,
    idle_seconds=5.0,
)
QUICK: Final = FULL._replace(
    rounds=3,
    admissions=4_000,
    raw_rows=8_000,
    saves=1_000,
    alone=200,
    turns_per_route=6,
    large=100_000,
    openings=3,
    starts=3,
    lock_takes=500,
    takes_per_key=40,
    line_passes=2,
    kills=3,
    long_history=100_000,
)
