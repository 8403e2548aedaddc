"""What commands are about to read: an engine that is far from its store loads it for a whole group at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from counterfoil.domain.identity import Scope

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
    conversation: bytes | None = None
    """That of the operations, which most probably begin with the command, and of the routes."""


class Foresees(ABC):
    """A command that knows beforehand what it reads. It may read more, and what it names may be loaded already."""

    __slots__ = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that it is about; they are loaded before it is asked for the rest."""
        return ()

    @abstractmethod
    def needs(self, unit: Unit) -> Needs:
        """Return what it is about to read."""
