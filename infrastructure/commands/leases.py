"""Renewal: one command extends many leases of this opening, each by its token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from counterfoil.domain.lock import LockExpired, LockReleased, LockRevoked, LossReason, cause_of_passing

from ..unit import Unit


class Renewed(NamedTuple):
    """What has become of leases that were to be renewed."""

    standing: dict[bytes, int]
    """By token, the new deadlines of those that stand, in nanoseconds of the boot clock."""
    lost: dict[bytes, LossReason]


@dataclass(frozen=True, slots=True)
class Renew:
    """Move the deadlines of leases. One that ran out is never renewed and never revived."""

    UNSYNCED: ClassVar[bool] = True

    leases: Sequence[tuple[str, bytes]]
    """Each by the id of its lock's key and its token."""

    def run(self, unit: Unit) -> Renewed:
        world = unit.context.world
        renewed = Renewed({}, {})
        for lease_id, token in self.leases:
            deadline, reason = unit.deadline(lease_id), why_lost(unit, lease_id, token)
            if reason is not None:
                renewed.lost[token] = reason
            elif deadline is not None:
                moved = deadline.renewed(world.boot_now)
                unit.put_deadline(moved)
                renewed.standing[token] = moved.at
        return renewed


def why_lost(unit: Unit, lease_id: str, token: bytes) -> LossReason | None:
    """Return why the lease with this token has ended; None while it stands."""
    deadline, world = unit.deadline(lease_id), unit.context.world
    if deadline is None or deadline.token != token:
        return _recorded_end(unit, lease_id)
    if deadline.opening_id != unit.opening_id:
        return "opening_ended"
    return cause_of_passing(deadline) if deadline.passed(world.boot_id, world.boot_now) else None


def _recorded_end(unit: Unit, lease_id: str) -> LossReason:
    """Return why the lease before the present state of its key ended."""
    lease = unit.lease(lease_id)
    event = None if lease is None else unit.event_of(lease_id, lease.grant - 1 if lease.held else lease.version)
    match event:
        case LockRevoked():
            return "revoked"
        case LockReleased():
            return "released"
        case LockExpired():
            return event.cause
    return "ttl"
