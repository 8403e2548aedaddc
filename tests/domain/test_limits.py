"""Limits: each name, its default, its range, and how a value outside is refused."""

from dataclasses import fields
from datetime import timedelta

import pytest

from counterfoil.domain.errors import CounterfoilError, InvalidValue
from counterfoil.domain.limits import Limits

SECOND, DAY = 1_000_000, 86_400_000_000

COUNTS = {
    "max_input_bytes": (32_768, 65_536),
    "max_response_bytes": (65_536, 131_072),
    "max_pending_per_binding": (8, 32),
    "max_pending_per_process": (100, 10_000),
    "max_active_sessions": (4, 1_024),
    "max_routes": (1_000, 10_000),
    "max_journal_page": (100, 500),
    "max_attachment_bytes": (1_048_576, 4_194_304),
    "retention_days": (7, 90),
    "command_id_days": (7, 400),
    "dedup_days": (30, 400),
}
"""name -> (default, most); the least is 1."""

DURATIONS = {
    "stop_deadline": (30 * SECOND, 1_000, 300 * SECOND, "1 ms to 5 m"),
    "lease_ttl": (30 * SECOND, SECOND, 300 * SECOND, "1 s to 5 m"),
    "approval_ttl": (300 * SECOND, SECOND, 300 * SECOND, "1 s to 5 m"),
    "busy_wait": (5 * SECOND, 1_000, 300 * SECOND, "1 ms to 5 m"),
    "max_wait": (900 * SECOND, 1_000, 400 * DAY, "1 ms to 400 d"),
    "max_turn": (3_600 * SECOND, 1_000, DAY, "1 ms to 1 d"),
}
"""name -> (default, least, most) in microseconds, and the range in words."""


def limits(name: str, value: object) -> Limits:
    return Limits(**{name: value})  # type: ignore[arg-type]


def refusal(name: str, value: object) -> str:
    with pytest.raises(InvalidValue) as caught:
        limits(name, value)
    return str(caught.value)


@pytest.mark.contract("LIM-01")
def test_these_are_all_the_limits() -> None:
    """No limit is without a row in this module."""
    assert {*COUNTS, *DURATIONS} == {each.name for each in fields(Limits)}


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_has_its_default_and_its_range(name: str) -> None:
    """Both ends belong to the range; what is outside is refused with the name, the value and the range."""
    default, most = COUNTS[name]

    assert default == getattr(Limits(), name)
    assert [1, most] == [getattr(limits(name, value), name) for value in (1, most)]
    for value in (0, -1, most + 1):
        assert f"{name} must be from 1 to {most}, not {value}" == refusal(name, value)


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(("value", "kind"), [(True, "bool"), (1.0, "float"), ("8", "str"), (None, "NoneType")])
def test_a_count_is_a_whole_number(name: str, value: object, kind: str) -> None:
    """Nothing is rounded or read out of a text."""
    assert f"{name} must be a whole number from 1 to {COUNTS[name][1]}, not {kind}" == refusal(name, value)


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_has_its_default_and_its_range(name: str) -> None:
    """Both ends belong to the range, to the microsecond."""
    default, least, most, _ = DURATIONS[name]

    assert default == Limits().duration(name)
    for value in (least, most):
        assert value == limits(name, timedelta(microseconds=value)).duration(name)


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_outside_is_refused_with_name_value_and_range(name: str) -> None:
    """The value is shown as it was given, or so exactly that it is not taken for the end of the range."""
    _, least, most, words = DURATIONS[name]
    above = (most + 1) / SECOND
    below = (least - 1) / SECOND

    assert f"{name} must be from {words}, not 401d" == refusal(name, "401d")
    assert f"{name} must be from {words}, not 0s" == refusal(name, "0s")
    assert f"{name} must be from {words}, not {above:.15g} s" == refusal(name, timedelta(microseconds=most + 1))
    assert f"{name} must be from {words}, not {below:.15g} s" == refusal(name, timedelta(microseconds=least - 1))
    assert f"{name} must be from {words}, not -1 s" == refusal(name, timedelta(seconds=-1))


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", [30, 30.0, None, "30", "soon", "", "-1s"])
def test_a_duration_is_never_a_bare_number(name: str, value: object) -> None:
    """Whether 30 are seconds or milliseconds is not guessed."""
    assert refusal(name, value).startswith(f"{name} must be a ")


def test_limits_are_refused_as_what_a_caller_catches() -> None:
    """The error is ours and a `ValueError`; no driver's and no library's."""
    with pytest.raises(CounterfoilError):
        limits("max_routes", 0)
    with pytest.raises(TypeError):
        Limits(max_rows=1)  # type: ignore[call-arg]
