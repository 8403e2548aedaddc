"""Hosts' locks: what may be asked for, and what an asking finds: the key is free, or something is in the way."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, NamedTuple

from .decision import Step, Steps
from .duration import DAY, SECOND, in_words, microseconds
from .errors import InvalidValue
from .lock import Clockwork, Deadline, ExpiryCause, Lease, LockExpired, LockGranted, ended_by

KEY_BYTES: Final = 1_024
LINE_PLACES: Final = 10_000
"""How many may wait for one key."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HOUR: Final = 3_600 * SECOND
_TTL: Final = (SECOND, _HOUR)
_MAX_HOLD: Final = (1_000, 365 * DAY)
_LOCK_DELAY: Final = (0, _HOUR)
_WAIT: Final = (0, 365 * DAY)


# What may be asked for.


def checked_name(name: object) -> str:
    """Return the name of a lock; raises `InvalidValue` for anything else."""
    if not isinstance(name, str):
        raise InvalidValue(f"the name of a lock must be text, not {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            "the name of a lock must be 1 to 64 characters, a lower-case letter or digit and then letters, digits, _ and -; "
            f"this one has {len(name)}"
        )
    return name


def checked_key(key: object) -> str:
    """
    Return a key as text: an int as its decimal digits, bytes as the text whose UTF-8 they are; what is written alike is one key.

    Raises `InvalidValue` for other types, for what is not 1 to 1,024 bytes, and for NUL and lone surrogates.
    """
    if isinstance(key, bool) or not isinstance(key, str | int | bytes):
        raise InvalidValue(f"the key of a lock must be text, an int or bytes of UTF-8, not {type(key).__name__}")
    try:
        text = key.decode() if isinstance(key, bytes) else str(key)
        length = len(text.encode())
    except UnicodeDecodeError:
        raise InvalidValue("the key of a lock must be UTF-8 where it is bytes") from None
    except UnicodeEncodeError:
        raise InvalidValue("the key of a lock must not hold a lone surrogate") from None
    except ValueError:  # what Python says of an int of thousands of digits
        raise InvalidValue(f"the key of a lock must be 1 to {KEY_BYTES} bytes; this int has more digits") from None
    if not 1 <= length <= KEY_BYTES:
        raise InvalidValue(f"the key of a lock must be 1 to {KEY_BYTES} bytes, not {length}")
    if "\0" in text:
        raise InvalidValue("the key of a lock must not hold NUL")
    return text


def _within(value: timedelta | str, name: str, bounds: tuple[int, int]) -> int:
    duration = microseconds(value, name=name)
    least, most = bounds
    if not least <= duration <= most:
        raise InvalidValue(f"{name} must be {in_words(least) if least else '0 s'} to {in_words(most)}")
    return duration


def checked_wait(wait: timedelta | str) -> int:
    """Return in microseconds how long to wait for a key: 0 s to 365 days."""
    return _within(wait, "wait", _WAIT)


class Terms(NamedTuple):
    """What a lock gives its leases. Durations are in microseconds."""

    lock: str
    ttl: int
    max_hold: int | None
    lock_delay: int | None

    @property
    def grant(self) -> LockGranted:
        return LockGranted(lock=self.lock, ttl=self.ttl, max_hold=self.max_hold, lock_delay=self.lock_delay)


def checked_terms(name: str, ttl: timedelta | str, max_hold: timedelta | str | None, lock_delay: timedelta | str | None) -> Terms:
    """Return the terms of a lock; raises `InvalidValue` that names what is outside its range."""
    return Terms(
        checked_name(name),
        _within(ttl, "ttl", _TTL),
        None if max_hold is None else _within(max_hold, "max_hold", _MAX_HOLD),
        None if lock_delay is None else _within(lock_delay, "lock_delay", _LOCK_DELAY) or None,
    )


# What an asking finds.


class InTheWay(NamedTuple):
    """What keeps a key from whoever asks: an opening, or a delay; and when that ends at the latest unless it is renewed."""

    opening_id: int | None
    at: int
    """Nanoseconds of the boot clock."""


class Look(NamedTuple):
    """How a key stands: free when nothing is in the way."""

    in_the_way: InTheWay | None = None
    ended: ExpiryCause | None = None
    """Why the newest lease, recorded as held, has ended."""

    def expiry(self, lease_id: str) -> Steps:
        """Return the step that records the end of the lease before, if nothing has recorded it."""
        return () if self.ended is None else (Step(lease_id, LockExpired(cause=self.ended)),)


def look(lease: Lease | None, deadline: Deadline | None, held_back: int, world: Clockwork) -> Look:
    """
    Tell whether a key can be given to somebody now.

    The `lock_delay` of a lease that ended by itself holds its key back; `held_back` is until when that is, by the shared clock,
    where the end was recorded.
    """
    if lease is None or not lease.held:
        return Look(InTheWay(None, world.of_boot(held_back))) if held_back > world.shared_now else Look()
    cause = ended_by(lease, deadline, world)
    if cause is None:
        assert deadline is not None
        return Look(InTheWay(lease.opening_id, world.end_of(deadline)))
    ended_at = world.boot_now
    if cause != "opening_ended" and deadline is not None and deadline.boot_id == world.boot_id:
        ended_at = deadline.at
    free_at = ended_at + (lease.lock_delay or 0) * 1_000
    return Look(InTheWay(None, free_at) if free_at > world.boot_now else None, cause)
