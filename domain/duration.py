"""Durations: `timedelta`, or text like `30s`, `1h30m`, `250ms`. A bare number is refused, so that 30 never means two things."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

from .errors import InvalidValue

_TEXT: Final = re.compile(r"(?:(\d{1,15})d)?(?:(\d{1,15})h)?(?:(\d{1,15})m(?!s))?(?:(\d{1,15})s)?(?:(\d{1,15})ms)?")
SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND

_UNITS: Final = (DAY, 3_600_000_000, 60_000_000, 1_000_000, 1_000)


def microseconds(value: timedelta | str, *, name: str) -> int:
    """
    Return a duration in microseconds.

    Raises `InvalidValue`, which names `name`, for anything but a `timedelta` or text like `30s`.
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not isinstance(value, str):
        raise InvalidValue(f"{name} must be a timedelta or text like '30s', not {type(value).__name__}")
    duration = _parsed(value)
    if duration is None:
        raise InvalidValue(f"{name} must be a duration like '30s', '1h30m' or '250ms'")
    return duration


@lru_cache(maxsize=256)
def _parsed(text: str) -> int | None:
    match = _TEXT.fullmatch(text) if text.isascii() else None
    if match is None or not text:
        return None
    return sum(int(count) * unit for count, unit in zip(match.groups(), _UNITS, strict=True) if count)


def in_words(duration: int) -> str:
    """Return a duration in microseconds as a person reads it: `250 ms`, `30 s`, `1 h 30 m`."""
    if duration < 999_500:
        return f"{duration / 1_000:.3g} ms"
    if duration < 60_000_000:
        return f"{duration / 1_000_000:.3g} s"
    parts = []
    for unit, word in zip(_UNITS[:4], ("d", "h", "m", "s"), strict=True):
        count, duration = divmod(duration, unit)
        if count:
            parts.append(f"{count} {word}")
    return " ".join(parts[:2])
