"""Rows as the engines store them, and back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from counterfoil.domain import erasure, lock, opening, operation, route
from counterfoil.domain.event import REGISTRY, Header, Recorded
from counterfoil.domain.framing import chain_digest, leaf_digest
from counterfoil.domain.identity import Scope

SQLRow: TypeAlias = tuple[Any, ...]

EVENT_MODULES: Final = (erasure, lock, opening, operation, route)
"""What registers the types of events: whoever reads rows knows all of them, whatever else was imported."""


class Head(NamedTuple):
    """The end of the history, and what counts up with it."""

    format: int
    position: int
    digest: bytes
    recorded_at: int
    epoch: int
    opening_id: int
    journal_key: bytes


class EventRow(NamedTuple):
    """A row of `cf_event`."""

    position: int
    recorded_at: int
    originator_id: str
    originator_version: int
    type: str
    type_version: int
    opening_id: int | None
    actor_kind: Any
    scope_id: bytes | None
    connection: str | None
    conversation: bytes | None
    thread: bytes | None
    actor: bytes | None
    operation: int | None
    correlation: bytes | None
    causation: int | None
    state: bytes
    digest: bytes

    def chained(self, previous: bytes) -> bytes:
        """Return the digest that the event should have after the one before."""
        return chain_digest(previous, self.position, self.recorded_at, leaf_digest(*self[2:17]))

    @property
    def header(self) -> Header:
        return Header(*self[6:16])

    @property
    def recorded(self) -> Recorded:
        """The event, decoded and upcast."""
        return Recorded(
            self.position,
            self.recorded_at,
            self.originator_id,
            self.originator_version,
            self.header,
            REGISTRY.decode(self.type, self.type_version, self.state),
        )


class Scoped(NamedTuple):
    """A scope as the journal keeps it; key and names are absent once it was erased."""

    scope_id: bytes
    key: bytes | None
    tenant: str | None
    account: str | None
    user: str | None

    @property
    def scope(self) -> Scope | None:
        """Whose it is; None once it was erased."""
        return None if self.tenant is None else Scope(self.tenant, self.account, self.user)

    def __repr__(self) -> str:
        return f"Scoped({self.scope_id.hex()})"
