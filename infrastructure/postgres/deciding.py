"""Which commands of a group are decided together, which of their answers rest on the newest state, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import psycopg

from counterfoil.domain.placing import Placing, placed

from ..committer import Command, Request
from ..rows import Head
from ..unit import Elsewhere, Unit
from .appending import Appended
from .loading import Wanted
from .store import Busy

GROUP_BYTES: Final = 512 * 1024
"""Bytes of texts from which a group takes no more commands."""


@dataclass(slots=True)
class Decided:
    """The requests at the head of a group that one append takes together."""

    requests: list[Request[Any]] = field(default_factory=list)
    idle: list[Request[Any]] = field(default_factory=list)
    """Those of them that change nothing: what they are answered is true only if nobody has appended meanwhile."""
    unsynced: bool = True
    """Whether all of them may wait for the next sync."""

    @property
    def changes_nothing(self) -> bool:
        return len(self.idle) == len(self.requests)


def decide(unit: Unit, group: Sequence[Request[Any]]) -> Decided:
    """
    Decide commands in order, up to one that builds on what those before it do, or that reads while nothing can be read; what a
    command raises is its own.
    """
    decided, size, counted = Decided(), 0, 0
    for request in group:
        if decided.requests and (size >= GROUP_BYTES or is_alone(request)):
            break
        before = unit.effects
        try:
            request.result, request.error = request.command.run(unit), None
            changed = unit.effects != before
            unit.keep()
        except (Busy, Elsewhere):
            unit.drop()
            break
        except psycopg.Error:
            raise
        except BaseException as error:
            unit.drop()
            request.result, request.error, changed = None, error, False
        payloads = unit.changes.payloads
        size += sum([len(body) for _, _, body in payloads[counted:]])
        counted = len(payloads)
        decided.requests.append(request)
        if not changed:
            decided.idle.append(request)
        decided.unsynced = decided.unsynced and bool(getattr(request.command, "UNSYNCED", False))
        if is_alone(request):
            break
    return decided


def is_alone(request: Request[Any]) -> bool:
    """Tell whether a command has a transaction to itself: what it erases must not reach what comes after it."""
    return bool(getattr(request.command, "ALONE", False))


@runtime_checkable
class GoesWithoutLease(Protocol):
    """A command that would end a lease, and is of use without."""

    def keeping_lease(self) -> Command[Any] | None:
        """Return the command that leaves the lease alone; None when it does so already."""
        ...


def without_lease(request: Request[Any]) -> bool:
    """Have a request leave alone the lease that a host's transaction holds; tell whether it can."""
    command = request.command.keeping_lease() if isinstance(request.command, GoesWithoutLease) else None
    if command is None:
        return False
    request.command = command
    return True


@dataclass(slots=True)
class Draft:
    """What was decided of some requests, to be appended."""

    part: list[Request[Any]]
    unit: Unit
    wanted: Wanted
    decided: Decided
    stood: Head
    """What it was decided on."""
    taken: bool = False
    """Whether the caches hold it already, at provisional places."""

    def follow(self, placing: Placing) -> None:
        """What it was decided on top of has got its real times: its own are moved with them, and are provisional still."""
        self.unit.move(placing.times)
        for request in self.decided.requests:
            request.result = placed(request.result, placing)

    def stands(self, appended: Appended) -> bool:
        """Tell whether it was appended where it was thought to land."""
        here = self.stood.position
        return appended.status == "appended" and appended.head == here and appended.position in (None, here + 1)
