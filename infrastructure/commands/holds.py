"""Hosts' locks: ask for a key, wait for it in line, take it when it is free, and let it go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from counterfoil.domain.decision import SYSTEM, Actor, Step
from counterfoil.domain.errors import LockHeld
from counterfoil.domain.event import Header
from counterfoil.domain.hold import LINE_PLACES, InTheWay, Look, Terms, look
from counterfoil.domain.identity import Identity
from counterfoil.domain.lock import LockReleased, LockRevoked, LossReason, fence_of, stands
from counterfoil.domain.placing import Placing

from ..needs import Foresees, Needs
from ..places import Place
from ..unit import Unit
from .leases import Ticket, has, why_lost


class Granted(NamedTuple):
    """A lease: what it is renewed and released by, its fence, and when it runs out."""

    lease_id: str
    token: bytes
    fence: int
    at: int
    """Nanoseconds of the boot clock."""
    ends: int | None
    """Where no renewal moves that, because of the `max_hold`."""
    opening_id: int

    @property
    def ticket(self) -> Ticket:
        """What it is renewed and released by."""
        return Ticket(self.lease_id, self.token, self.fence)

    def placed(self, placing: Placing) -> Granted:
        return self._replace(fence=placing.fence(self.fence))

    def __repr__(self) -> str:
        return f"Granted({self.lease_id}, fence={self.fence})"


class InLine(NamedTuple):
    """The asking has a place in line, behind what is in the way."""

    in_the_way: InTheWay
    opening_id: int


class Held(NamedTuple):
    """The key cannot be had, and the asking does not wait."""

    in_the_way: InTheWay


Asked: TypeAlias = Granted | InLine | Held


@dataclass(frozen=True, slots=True)
class Hold(Foresees):
    """
    Ask for a key. Whoever came before is served before; with `waits` the asking takes its place in line.

    Asked again with the same token, it finds the lease or the place that it got: nothing is given twice.
    """

    terms: Terms
    lease_id: str
    key: str = field(repr=False)
    token: bytes = field(repr=False)
    waits: bool

    def needs(self, unit: Unit) -> Needs:
        return Needs(leases=(self.lease_id,))

    def run(self, unit: Unit) -> Asked:
        """Return the lease, the place in line, or what is in the way; raises `LockHeld` when the line is full."""
        if has(unit, self.lease_id, self.token):
            return granted(unit, self.lease_id)
        found = look_at(unit, self.lease_id)
        first = unit.first_in_line(self.lease_id)
        if found.in_the_way is None and (first is None or first.token == self.token):
            unit.remember_key(self.lease_id, self.key)
            return take(unit, self.lease_id, found, self.terms, self.token, first)
        in_the_way = found.in_the_way
        if in_the_way is None:
            assert first is not None
            in_the_way = offer(unit, first)
        if not self.waits:
            return Held(in_the_way)
        lines = unit.store.lines
        if lines.is_full(self.lease_id, LINE_PLACES):
            lines.leave_of_ended(unit.context.world.is_live)
        if lines.is_full(self.lease_id, LINE_PLACES):
            raise LockHeld(f"{LINE_PLACES} wait for it already", lock=self.terms.lock, lease_id=self.lease_id, key=self.key)
        unit.enter_line(self.lease_id, self.token, self.terms)
        unit.remember_key(self.lease_id, self.key)
        return InLine(in_the_way, unit.opening_id)

    def give_back(self, answer: Asked) -> Leave | None:
        """A lease or place whose caller is gone is given up."""
        return None if isinstance(answer, Held) else Leave(self.lease_id, self.token)


class Advanced(NamedTuple):
    """How a key stands after a look at its line: given to the first who waits here, or what is in the way of the rest."""

    granted: Granted | None
    in_the_way: InTheWay | None

    def placed(self, placing: Placing) -> Advanced:
        return self if self.granted is None else self._replace(granted=self.granted.placed(placing))


@dataclass(frozen=True, slots=True)
class Advance:
    """Give a key that has come free to the first in line, if that is somebody who waits in this opening."""

    lease_id: str

    def run(self, unit: Unit) -> Advanced:
        unit.store.lines.awake(self.lease_id, unit.opening_id)
        found = look_at(unit, self.lease_id)
        if found.in_the_way is not None:
            return Advanced(None, found.in_the_way)
        first = unit.first_in_line(self.lease_id)
        if first is None:
            return Advanced(None, None)
        if first.opening_id != unit.opening_id:
            return Advanced(None, offer(unit, first))
        taken = take(unit, self.lease_id, found, first.terms, first.token, first)
        return Advanced(taken, InTheWay(unit.opening_id, taken.at))


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up what an asking got: its place in line, or the lease that it was given meanwhile."""

    UNSYNCED: ClassVar[bool] = True

    lease_id: str
    token: bytes = field(repr=False)

    def run(self, unit: Unit) -> None:
        if not unit.store.lines.has_place(self.lease_id, self.token):
            if has(unit, self.lease_id, self.token):
                release(unit, self.lease_id)
        else:
            unit.leave_line(self.lease_id, self.token)
            if look_at(unit, self.lease_id).in_the_way is None:
                pass_on(unit, self.lease_id)


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """Let a key go. Only the token of the lease does that, so a late release never touches the next holder."""

    UNSYNCED: ClassVar[bool] = True

    ticket: Ticket

    def run(self, unit: Unit) -> LossReason | None:
        """Return None if the lease was held until now, and otherwise why it was not."""
        reason = why_lost(unit, self.ticket)
        if reason is None:
            release(unit, self.ticket.lease_id)
        return reason


@dataclass(frozen=True, slots=True)
class ForceRelease:
    """Take a key from its holder, whoever that is, and fence it out."""

    lease_id: str
    reason: str
    operator: Identity | None = None
    """Who did it; None where a host did it by itself."""
    expected: int | None = None
    """The fence that is to be taken away; None for any."""

    def run(self, unit: Unit) -> bool:
        """Tell whether it was taken away: whether anybody held it, under the fence that was expected."""
        if self.operator is not None:
            self.operator.require_active(unit.wall)
        lease = unit.lease(self.lease_id)
        if lease is None or not stands(lease, unit.deadline(self.lease_id), unit.context.world):
            return False
        if self.expected not in (None, lease.fence):
            return False
        actor, header = SYSTEM, Header()
        if self.operator is not None:
            key = unit.scope(self.operator.scope)
            actor = Actor("operator", unit.subject(key, "principal", None, self.operator.principal))
            header = Header(scope_id=key.scope_id)
        unit.append((Step(self.lease_id, LockRevoked(reason=self.reason), actor.kind, actor.pseudonym),), header)
        unit.changes.rings.append((lease.opening_id, self.lease_id))
        pass_on(unit, self.lease_id)
        return True


# What the commands share.


def look_at(unit: Unit, lease_id: str) -> Look:
    """
    Tell whether a key can be given to somebody now.

    Where the end of the lease before holds the key back, that end is recorded, because the delay counts from it.
    """
    lease, deadline, world = unit.lease(lease_id), unit.deadline(lease_id), unit.context.world
    held_back = 0
    if lease is not None and not lease.held and lease.lock_delay is not None:
        held_back = unit.store.lines.held_back(lease_id, world.shared_id)
    found = look(lease, deadline, held_back, world)
    if found.ended is not None and found.in_the_way is not None:
        assert lease is not None
        unit.append(found.expiry(lease_id), Header())
        unit.store.lines.hold_back(lease_id, world.shared_id, world.of_shared(found.in_the_way.at))
        unit.changes.rings.append((lease.opening_id, lease_id))
        return found._replace(ended=None)
    return found


def take(unit: Unit, lease_id: str, found: Look, terms: Terms, token: bytes, place: Place | None) -> Granted:
    """Give a free key to whoever is first, and take its place out of the line."""
    before = unit.lease(lease_id)
    if before is not None:
        if found.ended is not None:  # its holder may live, and not know
            unit.changes.rings.append((before.opening_id, lease_id))
        if before.lock_delay is not None:
            unit.store.lines.let_go(lease_id)
    recorded = unit.append((*found.expiry(lease_id), Step(lease_id, terms.grant)), Header())[-1]
    deadline = unit.deadline(lease_id)
    assert deadline is not None
    unit.put_deadline(deadline._replace(token=token))
    if place is not None:
        unit.leave_line(lease_id, place.token)
    return Granted(lease_id, token, fence_of(unit.head.epoch, recorded.position), deadline.at, deadline.ends, unit.opening_id)


def granted(unit: Unit, lease_id: str) -> Granted:
    """Return the lease that this opening has on a key."""
    lease, deadline = unit.lease(lease_id), unit.deadline(lease_id)
    assert lease is not None and deadline is not None
    return Granted(lease_id, deadline.token, lease.fence, deadline.at, deadline.ends, deadline.opening_id)


def release(unit: Unit, lease_id: str) -> None:
    """End the lease that stands by its release."""
    unit.append((Step(lease_id, LockReleased()),), Header())
    pass_on(unit, lease_id)


def pass_on(unit: Unit, lease_id: str) -> None:
    """The key has come free: whoever is first in line is to hear of it."""
    first = unit.first_in_line(lease_id)
    if first is not None:
        offer(unit, first)


def offer(unit: Unit, first: Place) -> InTheWay:
    """
    Keep the free key for the first in line, for as long as its ttl; then it is stepped over.

    A frozen process could otherwise keep all who wait behind it from a key that nobody holds.
    """
    world, until = unit.context.world, first.offered_until
    if until is None or not first.may_take(world.shared_now):
        until = world.shared_now + first.ttl * 1_000
        unit.store.lines.offer(first.lease_id, first.token, until)
        unit.changes.rings.append((first.opening_id, first.lease_id))
    return InTheWay(first.opening_id, world.of_boot(until))
