"""The lines of the table: what each says, what it is made of, what must be reached and what is aimed at."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

CellName: TypeAlias = Literal[
    "admissions", "application", "raw event", "raw bare", "alone", "raw alone", "turns", "opening", "help", "python"
]


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
    """What it is compared with, in words; empty when the value itself is judged."""
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


LINES: Final = (
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
)  # fmt: skip

NAMES: Final = tuple(dict.fromkeys(line.name for line in LINES))


def cells_of(lines: tuple[Line, ...]) -> tuple[CellName, ...]:
    """Return what has to be measured for these lines, each once, what is compared next to each other."""
    cells: dict[CellName, None] = {}
    for line in lines:
        cells[line.cell] = None
        if line.other_cell is not None:
            cells[line.other_cell] = None
    return tuple(cells)
