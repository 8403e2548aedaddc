"""
A key of a lock: who holds it, under which fence. Routes are run under the lock `counterfoil.route`.

In reading order: events, state and its fold, decisions. A renewal is not an event: it moves the deadline in a row beside the
history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from .errors import InvalidValue
from .event import REGISTRY, Event, Recorded
from .ids import ClassWord

ExpiryCause: TypeAlias = Literal["ttl", "opening_ended", "max_hold"]
LossReason: TypeAlias = ExpiryCause | Literal["revoked", "released"]
"""Why a holder no longer has its lease."""


# Events: the storage format.


@REGISTRY.register
class LockGranted(Event):
    TYPE = "lock.granted"
    lock: str
    ttl: int
    max_hold: int | None = None
    lock_delay: int | None = None


@REGISTRY.register
class LockReleased(Event):
    TYPE = "lock.released"


@REGISTRY.register
class LockExpired(Event):
    TYPE = "lock.expired"
    cause: ExpiryCause


@REGISTRY.register
class LockRevoked(Event):
    TYPE = "lock.revoked"
    reason: ClassWord


# State and fold.

_POSITION_BITS: Final = 64
FENCE_DIGITS: Final = 40


def fence_of(epoch: int, position: int) -> int:
    """Return the fence of a grant: a 128-bit number, the epoch above the position."""
    return epoch << _POSITION_BITS | position


def position_of(fence: int) -> int:
    """Return the position of the grant that a fence was given with."""
    return fence & ((1 << _POSITION_BITS) - 1)


def fence_text(fence: int) -> str:
    """Return a fence as text that sorts as the number does."""
    return f"{fence:0{FENCE_DIGITS}d}"


def checked_fence(fence: int | None) -> int | None:
    """Return a fence to compare with, or None for any; raises `InvalidValue` for what is no number."""
    if fence is not None and (not isinstance(fence, int) or isinstance(fence, bool)):
        raise InvalidValue(f"fence must be a number, as `holders()` shows it, not {type(fence).__name__}")
    return fence


class Lease(NamedTuple):
    """The state of one key: its newest grant, and whether it still stands."""

    lease_id: str
    version: int
    lock: str
    held: bool
    grant: int
    """Version of the newest grant in the key's stream."""
    position: int
    """Position of the newest grant."""
    opening_id: int
    granted_at: int
    ttl: int
    lock_delay: int | None = None
    """For how long, in microseconds, the key is held back if the lease ends by itself."""
    epoch: int = 0
    """
    The epoch that stands at the newest grant; who loads the state looks it up, because it is in events of another aggregate.
    """

    @property
    def fence(self) -> int:
        return fence_of(self.epoch, self.position)


class Deadline(NamedTuple):
    """The running deadline of a live lease, in nanoseconds of the boot clock of the boot it names."""

    lease_id: str
    opening_id: int
    token: bytes
    boot_id: str
    at: int
    renewal: int
    ttl: int
    ends: int | None = None
    """Where no renewal moves it: the end of the `max_hold`."""

    def __repr__(self) -> str:
        return f"Deadline({self.lease_id}, at={self.at})"

    def renewed(self, now: int) -> Deadline:
        """Return the deadline after a renewal."""
        return self._replace(at=end_of(now, self.ttl, self.ends), renewal=self.renewal + 1)


def end_of(now: int, ttl: int, ends: int | None) -> int:
    """Return when a lease runs out that is granted or renewed now; the ttl is in microseconds."""
    at = now + ttl * 1_000
    return at if ends is None else min(at, ends)


def evolve(state: Lease | None, recorded: Recorded) -> Lease:
    """Fold one event into the state of a key."""
    event = recorded.event
    if isinstance(event, LockGranted):
        assert recorded.header.opening_id is not None
        return Lease(
            lease_id=recorded.originator_id,
            version=recorded.originator_version,
            lock=event.lock,
            held=True,
            grant=recorded.originator_version,
            position=recorded.position,
            opening_id=recorded.header.opening_id,
            granted_at=recorded.recorded_at,
            ttl=event.ttl,
            lock_delay=event.lock_delay,
        )
    assert state is not None and isinstance(event, LockReleased | LockExpired | LockRevoked)
    return state._replace(version=recorded.originator_version, held=False)


# Decisions.


def _at_once(deadline: Deadline) -> int:
    return 0


class Clockwork(NamedTuple):
    """What a decision about leases needs to know of the world: the boot, its clock in nanoseconds, and which openings live."""

    opening_id: int
    boot_id: str
    boot_now: int
    is_live: Callable[[int], bool]
    shared: tuple[str, int] | None = None
    """
    The clock by which those who wait and keys that are held back go, in nanoseconds, and what names it, where the openings are on
    several machines; None where the clock of the boot does.
    """
    elsewhere: Callable[[Deadline], int] = _at_once
    """
    When, in nanoseconds of the own boot's clock, a deadline of another boot is taken for passed: at once on one machine, where
    another boot has ended every lease.
    """

    @property
    def shared_id(self) -> str:
        return self.boot_id if self.shared is None else self.shared[0]

    @property
    def shared_now(self) -> int:
        return self.boot_now if self.shared is None else self.shared[1]

    def end_of(self, deadline: Deadline) -> int:
        """Return when a lease runs out unless it is renewed, in nanoseconds of the own boot's clock."""
        return deadline.at if deadline.boot_id == self.boot_id else self.elsewhere(deadline)

    def has_passed(self, deadline: Deadline) -> bool:
        """Tell whether a lease has run out: now >= deadline."""
        return self.boot_now >= self.end_of(deadline)

    def of_boot(self, shared: int) -> int:
        """Return an instant of the shared clock by the own boot's."""
        return shared - self.shared_now + self.boot_now

    def of_shared(self, boot: int) -> int:
        """Return an instant of the own boot's clock by the shared one."""
        return boot - self.boot_now + self.shared_now


def cause_of_passing(deadline: Deadline) -> ExpiryCause:
    """Return what a deadline that has passed stood for."""
    return "max_hold" if deadline.ends is not None and deadline.at >= deadline.ends else "ttl"


def ended_by(lease: Lease, deadline: Deadline | None, world: Clockwork) -> ExpiryCause | None:
    """Return why a lease that is recorded as held has ended, or None while it stands."""
    if not world.is_live(lease.opening_id):
        return "opening_ended"
    if deadline is None or deadline.opening_id != lease.opening_id:
        return "ttl"
    if not world.has_passed(deadline):
        return None
    return cause_of_passing(deadline)


def stands(lease: Lease | None, deadline: Deadline | None, world: Clockwork) -> bool:
    """Tell whether a key is held now."""
    return lease is not None and lease.held and ended_by(lease, deadline, world) is None


def is_current(lease: Lease | None, deadline: Deadline | None, fence: int, world: Clockwork) -> bool:
    """Tell whether the grant with this fence is the one that stands, held by this opening."""
    return lease is not None and lease.opening_id == world.opening_id and lease.fence == fence and stands(lease, deadline, world)
