"""Durations: what is read, what is refused, and how they are shown."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.domain.duration import in_words, microseconds
from counterfoil.domain.errors import InvalidValue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("250ms", 250_000),
        ("30s", 30_000_000),
        ("5m", 300_000_000),
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1m30ms", 60_030_000),
        ("1d2h3m4s5ms", 93_784_005_000),
        ("0s", 0),
        ("090s", 90_000_000),
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(days=1, microseconds=-1), 86_399_999_999),
        (timedelta(seconds=-1), -1_000_000),
    ],
)
def test_durations_are_read_in_microseconds(value: timedelta | str, expected: int) -> None:
    """Text and `timedelta`, exactly."""
    assert expected == microseconds(value, name="wait")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "30",
        "1.5s",
        "-1s",
        "1 s",
        "s",
        "30s1m",
        "1s1s",
        "1S",
        "1w",
        "30s\n",
        "٣s",
        "1μs",
        f"{'9' * 5_000}s",
    ],
)
def test_other_text_is_refused_with_an_example(value: str) -> None:
    """The refusal has the name of what was set, and not the text."""
    with pytest.raises(InvalidValue, match=r"^wait must be a duration like '30s', '1h30m' or '250ms'$"):
        microseconds(value, name="wait")


@pytest.mark.parametrize(("value", "kind"), [(30, "int"), (0.5, "float"), (True, "bool"), (None, "NoneType")])
def test_a_bare_number_is_refused(value: object, kind: str) -> None:
    """30 never means two things."""
    with pytest.raises(InvalidValue, match=f"^wait must be a timedelta or text like '30s', not {kind}$"):
        microseconds(value, name="wait")  # type: ignore[arg-type]


@given(st.integers(0, 10**15))
def test_a_timedelta_is_exact(value: int) -> None:
    """No floating point rounds on the way."""
    assert value == microseconds(timedelta(microseconds=value), name="wait")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 ms"),
        (500, "0.5 ms"),
        (250_000, "250 ms"),
        (999_499, "999 ms"),
        (999_500, "1 s"),
        (999_999, "1 s"),
        (1_000_000, "1 s"),
        (1_500_000, "1.5 s"),
        (30_000_000, "30 s"),
        (59_900_000, "59.9 s"),
        (60_000_000, "1 m"),
        (61_000_000, "1 m 1 s"),
        (5_400_000_000, "1 h 30 m"),
        (86_400_000_000, "1 d"),
        (93_784_005_000, "1 d 2 h"),
        (34_560_000_000_000, "400 d"),
    ],
)
def test_a_duration_is_shown_in_two_units_at_most(value: int, expected: str) -> None:
    """As a person reads it."""
    assert expected == in_words(value)
