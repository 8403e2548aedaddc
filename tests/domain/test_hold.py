"""What may be asked of a lock, and what an asking finds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.hold import InTheWay, Look, Terms, checked_key, checked_name, checked_terms, checked_wait, look
from counterfoil.domain.lock import Clockwork, Deadline, Lease

SECOND = 1_000_000_000
"""Of the boot clock."""


@pytest.mark.parametrize("name", ["a", "0", "summaries", "a-b_c9", "a" * 64])
def test_a_name_is_a_word(name: str) -> None:
    assert name == checked_name(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a.b", "a b", "é", "a" * 65, "a\n", None, 7, b"a", True])
def test_any_other_name_is_refused_by_its_length_or_type(name: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^the name of a lock must be (text|1 to 64 characters, a lower-case letter)"):
        checked_name(name)


@pytest.mark.parametrize(
    ("key", "text"),
    [("chat", "chat"), (7, "7"), (-7, "-7"), (b"7", "7"), ("é", "é"), ("é".encode(), "é"), ("a" * 1_024, "a" * 1_024)],
)
def test_a_key_is_text_however_it_comes(key: str | int | bytes, text: str) -> None:
    """What is written alike is one key."""
    assert text == checked_key(key)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("", "1 to 1024 bytes, not 0"),
        (b"", "1 to 1024 bytes, not 0"),
        ("é" * 513, "1 to 1024 bytes, not 1026"),
        (10**1024, "1 to 1024 bytes, not 1025"),
        pytest.param(10**9_999, "1 to 1024 bytes; this int has more digits", id="digits"),
        (True, "not bool"),
        (1.5, "not float"),
        (None, "not NoneType"),
        (b"\xff", "UTF-8"),
        ("\ud800", "lone surrogate"),
        ("a\0", "NUL"),
    ],
)
def test_any_other_key_is_refused_and_not_quoted(key: Any, what: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked_key(key)

    assert str(refused.value).startswith("the key of a lock must")
    assert what in str(refused.value)


def test_terms_are_in_microseconds() -> None:
    terms = checked_terms("jobs", timedelta(seconds=5), "1m30s", "250ms")

    assert Terms("jobs", 5_000_000, 90_000_000, 250_000) == terms
    assert terms.grant.model_dump() == {"lock": "jobs", "ttl": 5_000_000, "max_hold": 90_000_000, "lock_delay": 250_000}
    assert ("jobs", 1_000_000, None, None) == checked_terms("jobs", "1s", None, "0s")


@pytest.mark.parametrize("value", [30, 30.0, True, "30", "30 s", "", None])
@pytest.mark.parametrize("name", ["ttl", "wait"])
def test_a_duration_has_a_unit(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"^{name} must be"):
        checked_wait(value) if name == "wait" else checked_terms("jobs", value, None, None)


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        (("999ms", None, None), "ttl must be 1 s to 1 h"),
        (("1h1ms", None, None), "ttl must be 1 s to 1 h"),
        (("30s", "0s", None), "max_hold must be 1 ms to 365 d"),
        (("30s", "366d", None), "max_hold must be 1 ms to 365 d"),
        (("30s", None, "61m"), "lock_delay must be 0 s to 1 h"),
        (("30s", None, timedelta(seconds=-1)), "lock_delay must be 0 s to 1 h"),
    ],
)
def test_a_duration_outside_its_range_is_refused_with_the_range(terms: tuple[Any, Any, Any], what: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{what}$"):
        checked_terms("jobs", *terms)


# What an asking finds.


def lease(*, held: bool = True, lock_delay: int | None = None) -> Lease:
    return Lease("lk-1", 1, "jobs", held, 1, 10, 2, 0, 30_000_000, lock_delay)


def deadline(at: int, *, ends: int | None = None, boot: str = "boot") -> Deadline:
    return Deadline("lk-1", 2, b"t", boot, at, 0, 30_000_000, ends)


def world(now: int, *, alive: bool = True) -> Clockwork:
    return Clockwork(1, "boot", now, lambda opening_id: alive)


@pytest.mark.contract("LCK-05", "LCK-07", "LCK-08")
@pytest.mark.parametrize(
    ("now", "alive", "ends", "found"),
    [
        (99, True, None, Look(InTheWay(2, 100))),
        (100, True, None, Look(None, "ttl")),
        (100, True, 100, Look(None, "max_hold")),
        (100, True, 101, Look(None, "ttl")),
        (99, False, None, Look(None, "opening_ended")),
    ],
)
def test_a_key_is_free_when_its_lease_has_ended(now: int, alive: bool, ends: int | None, found: Look) -> None:
    assert found == look(lease(), deadline(100, ends=ends), 0, world(now, alive=alive))


@pytest.mark.contract("LCK-08")
@pytest.mark.parametrize(
    ("now", "alive", "boot", "free_at"),
    [
        (100, True, "boot", 100 + 5 * SECOND),  # it ran out at 100
        (101, True, "boot", 100 + 5 * SECOND),
        (100 + 5 * SECOND, True, "boot", None),
        (90, False, "boot", 90 + 5 * SECOND),  # when it died is not known: the delay counts from the first look
        (90, True, "other", 90 + 5 * SECOND),
    ],
)
def test_a_delay_counts_from_the_end_of_the_lease(now: int, alive: bool, boot: str, free_at: int | None) -> None:
    found = look(lease(lock_delay=5_000_000), deadline(100, boot=boot), 0, world(now, alive=alive))

    assert found.ended is not None
    assert found.in_the_way == (None if free_at is None else InTheWay(None, free_at))


@pytest.mark.contract("LCK-08")
def test_a_key_is_held_back_until_then() -> None:
    assert Look(InTheWay(None, 100)) == look(lease(held=False), None, 100, world(99))
    assert Look() == look(lease(held=False), None, 100, world(100))
    assert Look() == look(None, None, 0, world(0))
