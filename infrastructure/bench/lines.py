"""The lines of the table: what each says, what it is made of, what must be reached and what is aimed at."""

from __future__ import annotations

import sys
from typing import Final, Literal, NamedTuple, TypeAlias

CellName: TypeAlias = Literal[
    "admissions",
    "application",
    "raw event",
    "raw bare",
    "alone",
    "raw alone",
    "turns",
    "opening",
    "help",
    "python",
    "lock alone",
    "lock alone, TinyStore",
    "lock alone, TinyStore's server",
    "locks",
    "locks, TinyStore",
    "locks, TinyStore's server",
    "handover",
    "kill",
    "pages",
    "idle",
    "raw autocommit",
    "together",
    "beside nothing",
    "beside a reader",
    "beside a query",
    "beside a host",
]

TINYSTORE: Final = frozenset[CellName](
    ("lock alone, TinyStore", "lock alone, TinyStore's server", "locks, TinyStore", "locks, TinyStore's server")
)
"""What needs an environment with TinyStore."""


class Line(NamedTuple):
    """A measure, alone or as a ratio to another of the same round."""

    name: str
    """What `--only` calls it."""
    measure: str
    unit: str
    cell: CellName
    value: str
    """Which of the values of the cell it shows."""
    must: float | None
    """None, like the aim, where a line only informs."""
    aim: float | None
    more_is_better: bool = False
    against: str = ""
    """What it is compared with, in words, also where this run did not; empty when the value itself is judged."""
    other_cell: CellName | None = None
    other_value: str = ""

    @property
    def is_ratio(self) -> bool:
        return self.other_cell is not None

    def reaches(self, result: float, bound: float | None) -> bool | None:
        """Tell whether a result is on the right side of a bound; None without one."""
        if bound is None:
            return None
        return result >= bound if self.more_is_better else result <= bound


PAGES: Final = Line(
    "pages", "pages read to load a key with a long history", "pages", "pages", "long", 1, 1, False,
    "a key with ten events", "pages", "short",
)  # fmt: skip
"""Only on Linux: elsewhere nobody tells how much a process reads."""

IN_FILES: Final = (
    Line(
        "admissions", "admissions a second, 256 callers", "/s", "admissions", "rate", 4, 8, True,
        "create and save in a plain eventsourcing application, 16 threads", "application", "rate",
    ),
    Line(
        "raw", "admissions a second, 256 callers", "/s", "admissions", "rate", 0.2, 0.5, True,
        "raw group commit that inserts the row of the event, made by its caller, and nothing else", "raw event", "rate",
    ),
    Line(
        "bare", "admissions a second, 256 callers", "/s", "admissions", "rate", None, None, True,
        "raw group commit of a key and JSON: what SQLite and asyncio do at best", "raw bare", "rate",
    ),
    Line("latency", "p50 of these admissions", "ms", "admissions", "p50", 100, 30),
    Line("latency", "p95 of these admissions", "ms", "admissions", "p95", 100, 30),
    Line("latency", "p99 of these admissions", "ms", "admissions", "p99", 100, 30),
    Line(
        "alone", "one admission, one caller alone", "µs", "alone", "median", 4, 2, False,
        "raw INSERT and COMMIT", "raw alone", "median",
    ),
    Line("turns", "complete turns a second, 256 routes", "/s", "turns", "rate", 800, 4_000, True),
    Line("opening", "opening and closing the large journal", "ms", "opening", "median", 100, 20),
    Line("size", "journal size of a complete turn, text aside", "bytes", "turns", "bytes", 5_000, 2_500),
    Line(
        "help", "counterfoil --help", "ms", "help", "median", 6, 6, False,
        "python -c pass", "python", "median",
    ),
    Line(
        "lock", "a key taken and let go, one after the other", "µs", "lock alone", "median", 1, 0.5, False,
        "TinyStore embedded, in memory", "lock alone, TinyStore", "median",
    ),
    Line(
        "lock", "a key taken and let go, one after the other", "µs", "lock alone", "median", None, None, False,
        "TinyStore's server, in memory", "lock alone, TinyStore's server", "median",
    ),
    Line(
        "locks", "keys taken and let go a second, 50 tasks, 50 keys", "/s", "locks", "rate", 1.5, 4, True,
        "TinyStore embedded, in memory", "locks, TinyStore", "rate",
    ),
    Line(
        "locks", "keys taken and let go a second, 50 tasks, 50 keys", "/s", "locks", "rate", None, None, True,
        "TinyStore's server, in memory", "locks, TinyStore's server", "rate",
    ),
    Line("handover", "p99 of a hand-over, 50 waiters in 5 processes", "ms", "handover", "p99", 30, 10),
    Line("kill", "from SIGKILL of a holder to the next grant", "ms", "kill", "median", 100, 20),
    Line("idle", "of a core, used by a process that only waits", "%", "idle", "share", 1, None),
    *((PAGES,) if sys.platform == "linux" else ()),
)  # fmt: skip

IN_SCHEMAS: Final = (
    Line(
        "admissions", "admissions a second, 256 callers", "/s", "admissions", "rate", 8, 20, True,
        "create and save in a plain eventsourcing application, 16 threads", "application", "rate",
    ),
    Line("latency", "p50 of these admissions", "ms", "admissions", "p50", None, None),
    Line("latency", "p95 of these admissions", "ms", "admissions", "p95", None, None),
    Line("latency", "p99 of these admissions", "ms", "admissions", "p99", None, None),
    Line(
        "together", "the same from four processes together", "/s", "together", "rate", 1, 1.5, True,
        "one process alone", "admissions", "rate",
    ),
    Line(
        "alone", "one admission, one caller alone", "µs", "alone", "median", 3, 1.5, False,
        "raw INSERT and COMMIT", "raw alone", "median",
    ),
    Line(
        "alone", "one admission, one caller alone", "µs", "alone", "median", 3, 1.5, False,
        "raw INSERT that commits itself", "raw autocommit", "median",
    ),
    Line("turns", "complete turns a second, 256 routes", "/s", "turns", "rate", 500, 2_000, True),
    Line("size", "journal size of a complete turn, text aside", "bytes", "turns", "bytes", None, None),
    Line(
        "reader", "admissions a second beside a slow reader", "/s", "beside a reader", "rate", 0.8, 0.95, True,
        "beside nothing", "beside nothing", "rate",
    ),
    Line("reader", "longest wait of these admissions", "ms", "beside a reader", "longest", None, None, False,
         "beside nothing", "beside nothing", "longest"),
    Line(
        "query", "admissions a second beside a long query", "/s", "beside a query", "rate", 0.8, 0.95, True,
        "beside nothing", "beside nothing", "rate",
    ),
    Line("query", "longest wait of these admissions", "ms", "beside a query", "longest", None, None, False,
         "beside nothing", "beside nothing", "longest"),
    Line(
        "host", "admissions a second while a host's transaction is open", "/s", "beside a host", "rate", 0.8, 0.95, True,
        "beside nothing", "beside nothing", "rate",
    ),
    Line("host", "longest wait of these admissions", "ms", "beside a host", "longest", None, None, False,
         "beside nothing", "beside nothing", "longest"),
    Line("lock", "a key taken and let go, one after the other", "µs", "lock alone", "median", None, None),
    Line("locks", "keys taken and let go a second, 50 tasks, 50 keys", "/s", "locks", "rate", None, None, True),
    Line("handover", "p99 of a hand-over, 50 waiters in 5 processes", "ms", "handover", "p99", None, None),
    Line("kill", "from SIGKILL of a holder to the next grant", "ms", "kill", "median", None, None),
    Line("idle", "of a core, used by a process that only waits", "%", "idle", "share", None, None),
)  # fmt: skip


def names(lines: tuple[Line, ...]) -> tuple[str, ...]:
    """Return what `--only` takes, each once."""
    return tuple(dict.fromkeys(line.name for line in lines))


def cells_of(lines: tuple[Line, ...]) -> tuple[CellName, ...]:
    """Return what has to be measured for these lines, each once, what is compared next to each other."""
    cells: dict[CellName, None] = {}
    for line in lines:
        cells[line.cell] = None
        if line.other_cell is not None:
            cells[line.other_cell] = None
    return tuple(cells)


def without_tinystore(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """
    Return what is left of lines where there is no TinyStore.

    What has a bound is measured alone then, and not judged; what only tells how it compares is left out.
    """
    return tuple(
        line._replace(must=None, aim=None, other_cell=None, other_value="") if line.other_cell in TINYSTORE else line
        for line in lines
        if line.other_cell not in TINYSTORE or line.must is not None
    )
