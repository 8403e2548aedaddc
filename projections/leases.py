"""leases: the newest grant of every key of every lock; epochs: what its fence is derived from."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.event import Recorded
from counterfoil.domain.lock import Lease, LockExpired, LockGranted, LockReleased, LockRevoked, evolve
from counterfoil.domain.opening import OpeningEpochRaised

from .projection import Key, Projection


class LeaseRow(NamedTuple):
    lease_id: str
    version: int
    lock: str
    held: int
    grant_version: int
    position: int
    opening_id: int
    granted_at: int
    ttl: int
    lock_delay: int | None

    def lease(self, epoch: int = 0) -> Lease:
        """Return the state of the key; the epoch, on which its fence depends, is in events of another aggregate."""
        return Lease(
            self.lease_id,
            self.version,
            self.lock,
            bool(self.held),
            self.grant_version,
            self.position,
            self.opening_id,
            self.granted_at,
            self.ttl,
            self.lock_delay,
            epoch,
        )


class Leases(Projection[LeaseRow]):
    """One row for each key, however long its history; a key is loaded from it and not from its events."""

    NAME = "leases"
    VERSION = 1
    ROW = LeaseRow
    POSITIONS = ("position",)
    TIMES = ("granted_at",)
    EVENTS = (LockGranted, LockReleased, LockExpired, LockRevoked)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.originator_id,)

    def fold(self, row: LeaseRow | None, recorded: Recorded) -> LeaseRow | None:
        state = evolve(None if row is None else row.lease(), recorded)
        return LeaseRow(
            state.lease_id,
            state.version,
            state.lock,
            int(state.held),
            state.grant,
            state.position,
            state.opening_id,
            state.granted_at,
            state.ttl,
            state.lock_delay,
        )


class EpochRow(NamedTuple):
    position: int
    epoch: int
    opening_id: int | None


class Epochs(Projection[EpochRow]):
    """Where each epoch was raised: a grant's fence takes the newest before its position."""

    NAME = "epochs"
    VERSION = 1
    ROW = EpochRow
    POSITIONS = ("position",)
    EVENTS = (OpeningEpochRaised,)
    BEGIN = (OpeningEpochRaised,)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.position,)

    def fold(self, row: EpochRow | None, recorded: Recorded) -> EpochRow | None:
        assert isinstance(recorded.event, OpeningEpochRaised)
        return EpochRow(recorded.position, recorded.event.epoch, recorded.header.opening_id)
