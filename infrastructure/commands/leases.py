"""Renewal: one command extends every lease of this opening that has not run out."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.domain.lock import Deadline

from ..unit import Unit


@dataclass(frozen=True, slots=True)
class Renew:
    """Move the deadlines of this opening's leases. One that ran out is never renewed and never revived."""

    def run(self, unit: Unit) -> frozenset[str]:
        """Return the ids of the leases that stand."""
        world = unit.context.world
        standing: list[Deadline] = [
            deadline for deadline in unit.deadlines_of_opening() if not deadline.passed(world.boot_id, world.boot_now)
        ]
        for deadline in standing:
            unit.put_deadline(deadline._replace(at=world.boot_now + deadline.ttl * 1_000, renewal=deadline.renewal + 1))
        return frozenset(deadline.lease_id for deadline in standing)
