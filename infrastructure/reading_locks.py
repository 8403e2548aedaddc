"""What is read of locks: who holds what, who waits, and what happened to a key. Reads through one store, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from counterfoil.domain.event import REGISTRY
from counterfoil.domain.identity import instant_of
from counterfoil.domain.limits import Limits
from counterfoil.domain.lock import Deadline, LockExpired, LockGranted, LockRevoked, fence_of, fence_text

from .clocks import Clocks
from .pages import LARGEST, Page, cursor_position, page_limit
from .statements import Names
from .store import Store

LOCKS: Final = Names("locks")
PREFIX: Final = "lock."


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Somebody has a key."""

    lock: str
    key: str | None = field(repr=False)
    """None where it was erased, and for the lock of routes, whose keys are ids of routes."""
    lease_id: str
    """What stands for the key in events."""
    fence: int
    opening_id: int
    """Of the process that has it."""
    since: datetime
    ttl: timedelta
    remaining: timedelta
    """Until it runs out, unless it is renewed."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the fence as text of 40 digits."""
        return {
            "lock": self.lock,
            "key": self.key,
            "lease_id": self.lease_id,
            "fence": fence_text(self.fence),
            "opening_id": self.opening_id,
            "since": self.since.isoformat(timespec="microseconds"),
            "ttl_seconds": self.ttl.total_seconds(),
            "remaining_seconds": self.remaining.total_seconds(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """Somebody waits for a key."""

    lock: str
    key: str | None = field(repr=False)
    lease_id: str
    place: int
    """In the line of the key, from 1."""
    opening_id: int
    since: datetime

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "lock": self.lock,
            "key": self.key,
            "lease_id": self.lease_id,
            "place": self.place,
            "opening_id": self.opening_id,
            "since": self.since.isoformat(timespec="microseconds"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """Something happened to a key."""

    position: int
    at: datetime
    happened: str
    """`granted`, `released`, `expired` or `revoked`."""
    fence: int
    """Of the lease that began or ended."""
    opening_id: int | None
    """Of the process that recorded it."""
    actor_kind: str | None
    reason: str | None = None
    """Why it expired or was revoked."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the fence as text of 40 digits."""
        return {
            "position": self.position,
            "at": self.at.isoformat(timespec="microseconds"),
            "happened": self.happened,
            "fence": fence_text(self.fence),
            "opening_id": self.opening_id,
            "actor_kind": self.actor_kind,
            "reason": self.reason,
        }


def holders(store: Store, clocks: Clocks, lock: str | None = None) -> list[Holder]:
    """Return who holds which keys, of one lock or of all, the oldest grant first."""
    world = clocks.world(0)
    rows = store.rows(LOCKS.holders, {"lock": lock})
    return [
        Holder(
            lock=name,
            key=key,
            lease_id=deadline.lease_id,
            fence=fence_of(store.epoch_at(position), position),
            opening_id=deadline.opening_id,
            since=instant_of(granted_at),
            ttl=timedelta(microseconds=deadline.ttl),
            remaining=timedelta(microseconds=(world.end_of(deadline) - world.boot_now) // 1_000),
        )
        for name, key, position, granted_at, *running in rows
        if not world.has_passed(deadline := Deadline(*running)) and world.is_live(deadline.opening_id)
    ]


def waiters(store: Store, is_live: Callable[[int], bool], lock: str | None = None) -> list[Waiter]:
    """Return who waits for which keys, of one lock or of all, in the order in which they came."""
    found: list[Waiter] = []
    lengths: dict[str, int] = {}
    for lease_id, name, key, opening_id, asked_at in store.rows(LOCKS.waiters, {"lock": lock}):
        if is_live(opening_id):
            place = lengths[lease_id] = lengths.get(lease_id, 0) + 1
            since = instant_of(asked_at)
            found.append(Waiter(lock=name, key=key, lease_id=lease_id, place=place, opening_id=opening_id, since=since))
    return found


def history(
    store: Store, limits: Limits, lease_id: str, *, limit: int | None, after: str | None, newest_first: bool
) -> Page[KeyEvent]:
    """Return a page of what happened to a key, in order or newest first; a cursor goes on in the order that is asked for."""
    most, cursor = page_limit(limit, limits), cursor_position(after)
    if newest_first:
        edge = LARGEST if cursor is None else cursor
        rows = list(store.rows(LOCKS.history_newest_first, (lease_id, edge, most + 1)))
    else:
        rows = list(store.rows(LOCKS.history, (lease_id, cursor or 0, most + 1)))
    entries = tuple(_key_event(store, lease_id, *row) for row in rows[:most])
    return Page(entries, str(rows[most - 1][2]) if len(rows) > most else None)


def _key_event(
    store: Store,
    lease_id: str,
    position: int,
    recorded_at: int,
    version: int,
    opening_id: int | None,
    actor_kind: str | None,
    kind: str,
    kind_version: int,
    state: bytes,
) -> KeyEvent:
    event = REGISTRY.decode(kind, kind_version, state)
    granted = position
    if not isinstance(event, LockGranted):  # an end follows its grant, with nothing between them
        granted = store.position_of(lease_id, version - 1) or 0
    reason = event.cause if isinstance(event, LockExpired) else event.reason if isinstance(event, LockRevoked) else None
    return KeyEvent(
        position=position,
        at=instant_of(recorded_at),
        happened=kind.removeprefix(PREFIX),
        fence=fence_of(store.epoch_at(granted), granted),
        opening_id=opening_id,
        actor_kind=actor_kind,
        reason=reason,
    )
