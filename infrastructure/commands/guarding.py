"""Check that a lease is the current one, as the last thing before something commits in its name."""

from __future__ import annotations

from typing import Final

from counterfoil.domain.errors import InvalidValue, LeaseLost
from counterfoil.domain.lock import ended_by, is_current, position_of

from ..tx import Fenced
from ..unit import Unit
from .leases import end_of

FOREIGN: Final = "the guard is a lease of another journal; guard with one of this journal's own"
_LARGEST: Final = 2**63 - 1


def check_lease(unit: Unit, held: Fenced) -> None:
    """
    Raise `LeaseLost` with the reason unless the lease is the current one now; the clocks are read anew.

    Raises `InvalidValue` for a lease of another journal or opening.
    """
    unit.look_at_clocks()
    lease_id, fence = held.lease_id, held.fence
    lease, deadline, world = unit.lease(lease_id), unit.deadline(lease_id), unit.context.world
    if is_current(lease, deadline, fence, world):
        return
    position = position_of(fence)
    grant = unit.grant_at(lease_id, position) if 0 < position <= _LARGEST else None
    if lease is None or grant is None or (lease.position == position and lease.fence != fence):
        raise InvalidValue(FOREIGN)
    opening_id, version = grant
    if opening_id != unit.opening_id:
        raise InvalidValue("the guard is a lease of another opening of this journal; guard with one that this journal object got")
    reason = ended_by(lease, deadline, world) if lease.held and lease.fence == fence else end_of(unit, lease_id, version)
    key = getattr(held, "key", None)
    raise LeaseLost(str(reason), lock=lease.lock, lease_id=lease_id, key=key if isinstance(key, str) else None)
