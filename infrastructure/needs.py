"""What commands are about to read: an engine that is far from its store loads it for a whole group at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from .unit import Unit


class Needs(NamedTuple):
    """Keys of what is cached, by kind."""

    operations: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Routes."""
    bindings: tuple[str, ...] = ()
    """Routes."""
    leases: tuple[str, ...] = ()
    """Leases and their deadlines."""


@runtime_checkable
class Foresees(Protocol):
    """A command that knows beforehand what it reads. It may read more, and what it names may be loaded already."""

    def needs(self, unit: Unit) -> Needs:
        """Return what it is about to read."""
        ...


def needs_of(unit: Unit, commands: Iterable[object]) -> Needs:
    """Return what commands are about to read and what is not cached, each once."""
    caches = unit.caches
    bindings, leases = caches.rows["bindings"].committed, caches.rows["leases"].committed
    found: tuple[dict[str, None], ...] = ({}, {}, {}, {})
    for command in commands:
        if isinstance(command, Foresees):
            for keys, wanted in zip(found, command.needs(unit), strict=True):
                keys.update(dict.fromkeys(wanted))
    operations, queues, routes, lease_ids = found
    return Needs(
        tuple([key for key in operations if key not in caches.operations.committed]),
        tuple([key for key in queues if key not in caches.queues.committed]),
        tuple([key for key in routes if (key,) not in bindings]),
        tuple([key for key in lease_ids if (key,) not in leases or key not in caches.deadlines.committed]),
    )
