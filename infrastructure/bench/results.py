"""From samples to results: medians and spreads, and ratios within a round, so that a slow minute slows both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from .lines import CellName, Line

Sample = Mapping[str, float]


class Summary(NamedTuple):
    """The median of a number over the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float


class Result(NamedTuple):
    line: Line
    value: Summary
    other: Summary | None
    ratio: Summary | None
    reached: bool | None
    aim_reached: bool | None


def summary(values: Sequence[float]) -> Summary:
    return Summary(median(values), min(values), max(values))


def result(line: Line, samples: Mapping[CellName, Sequence[Sample]]) -> Result:
    """Judge a line by the median of its ratios, or of its values when it has nothing to be compared with."""
    values = [sample[line.value] for sample in samples[line.cell]]
    other = ratio = None
    judged = summary(values)
    if line.other_cell is not None:
        others = [sample[line.other_value] for sample in samples[line.other_cell]]
        other = summary(others)
        judged = ratio = summary([mine / theirs for mine, theirs in zip(values, others, strict=True)])
    return Result(
        line,
        summary(values),
        other,
        ratio,
        line.reaches(judged.median, line.must),
        line.reaches(judged.median, line.aim),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
