"""Renewal: one command extends many leases of this opening, each by its token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from counterfoil.domain.lock import LockExpired, LockRevoked, LossReason, cause_of_passing, position_of

from ..unit import Unit


class Renewed(NamedTuple):
    """What has become of leases that were to be renewed."""

    standing: dict[bytes, int]
    """By token, the new deadlines of those that stand, in nanoseconds of the boot clock."""
    lost: dict[bytes, LossReason]

    def __repr__(self) -> str:
        return f"Renewed(standing={len(self.standing)}, lost={sorted(self.lost.values())})"


class Ticket(NamedTuple):
    """What a holder has of its lease: with the token it renews and releases it, and the fence tells which grant it came of."""

    lease_id: str
    token: bytes
    fence: int

    def __repr__(self) -> str:
        return f"Ticket({self.lease_id}, fence={self.fence})"


@dataclass(frozen=True, slots=True)
class Renew:
    """Move the deadlines of leases. One that ran out is never renewed and never revived."""

    UNSYNCED: ClassVar[bool] = True

    tickets: Sequence[Ticket]

    def run(self, unit: Unit) -> Renewed:
        renewed = Renewed({}, {})
        for ticket in self.tickets:
            deadline, reason = unit.deadline(ticket.lease_id), why_lost(unit, ticket)
            if reason is not None:
                renewed.lost[ticket.token] = reason
            elif deadline is not None:
                moved = deadline.renewed(unit.context.world.boot_now)
                unit.put_deadline(moved)
                renewed.standing[ticket.token] = moved.at
        return renewed


def has(unit: Unit, lease_id: str, token: bytes) -> bool:
    """Tell whether this opening has a key under this token, and its time has not run out."""
    deadline, world = unit.deadline(lease_id), unit.context.world
    if deadline is None or deadline.token != token or deadline.opening_id != unit.opening_id:
        return False
    return not world.has_passed(deadline)


def why_lost(unit: Unit, ticket: Ticket) -> LossReason | None:
    """Return why a lease has ended; None while it stands."""
    if has(unit, ticket.lease_id, ticket.token):
        return None
    deadline = unit.deadline(ticket.lease_id)
    if deadline is not None and deadline.token == ticket.token:
        return cause_of_passing(deadline) if deadline.opening_id == unit.opening_id else "opening_ended"
    grant = unit.grant_at(ticket.lease_id, position_of(ticket.fence))
    return "released" if grant is None else end_of(unit, ticket.lease_id, grant[1])


def end_of(unit: Unit, lease_id: str, version: int) -> LossReason:
    """Return how the grant of this version ended, as the event after it tells."""
    event = unit.event_of(lease_id, version + 1)
    if isinstance(event, LockExpired):
        return event.cause
    return "revoked" if isinstance(event, LockRevoked) else "released"
