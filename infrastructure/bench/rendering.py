"""A report in words for people, and as one object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .results import Result, Summary
from .rounds import Report

COLUMNS: Final = ("measure", "#median", "#spread", "#ratio", "#spread of it", "#must reach", "#aim", "ok?")
"""Those that begin with `#` hold numbers."""


def document(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        "machine": report.machine,
        "settings": report.settings,
        "limits": report.limits,
        "sizes": report.sizes._asdict(),
        **report.prepared,
        "rows": [_object(found) for found in report.results],
        "samples": {cell: [dict(sample) for sample in samples] for cell, samples in report.samples.items()},
    }


def _object(found: Result) -> dict[str, Any]:
    line = found.line
    return {
        "name": line.name,
        "measure": line.measure,
        "unit": line.unit,
        "value": found.value._asdict(),
        "against": line.against or None,
        "other": None if found.other is None else found.other._asdict(),
        "ratio": None if found.ratio is None else found.ratio._asdict(),
        "more_is_better": line.more_is_better,
        "must": line.must,
        "aim": line.aim,
        "reached": found.reached,
        "aim_reached": found.aim_reached,
    }


def rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: each line, and below it what it is compared with."""
    for found in report.results:
        line = found.line
        unit = "×" if line.is_ratio else line.unit
        yield (
            line.measure,
            _number(found.value.median, line.unit),
            _spread(found.value),
            "" if found.ratio is None else _number(found.ratio.median, unit),
            "" if found.ratio is None else _spread(found.ratio),
            _bound(line.must, unit, more=line.more_is_better),
            _bound(line.aim, unit, more=line.more_is_better),
            "" if found.reached is None else "aim" if found.aim_reached else "yes" if found.reached else "no",
        )
        if found.other is not None:
            yield (
                f"  against {line.against}",
                _number(found.other.median, line.unit),
                _spread(found.other),
                *[""] * (len(COLUMNS) - 3),
            )
        elif line.against:
            yield f"  not compared with {line.against}", *[""] * (len(COLUMNS) - 1)


def facts(report: Report) -> Iterator[str]:
    """Yield what the figures were measured on, and how."""
    yield "Medians of the rounds, with the lowest and the highest; a ratio is taken within each round."
    for name, value in report.prepared.items():
        if value is not None:
            yield f"{name.replace('_', ' ')}: {value:,}" if isinstance(value, int) else f"{name}: {value}"
    if any(found.line.against and found.other is None for found in report.results):
        yield "TinyStore: none, because no --tinystore names a Python that has it"
    for name, values in (
        ("done", report.sizes._asdict()),
        ("machine", report.machine),
        ("settings", report.settings),
        ("limits", report.limits),
    ):
        yield f"{name}: {', '.join(f'{key} {value}' for key, value in values.items()).replace('_', ' ')}"


def _bound(value: float | None, unit: str, *, more: bool) -> str:
    return "" if value is None else f"{'≥' if more else '≤'} {_number(value, unit)}"


def _spread(found: Summary) -> str:
    return f"{_plain(found.low)} to {_plain(found.high)}" if found.low != found.high else ""


def _number(value: float, unit: str) -> str:
    return f"{_plain(value)}{'' if unit.startswith('/') else ' '}{unit}"


def _plain(value: float) -> str:
    """Return a number with no more digits than mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
