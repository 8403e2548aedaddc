"""What a reach comes to in a journal: the scopes that a call may know of."""

from __future__ import annotations

from typing import Final, NamedTuple

from counterfoil.domain.identity import EVERY_TENANT, Reach
from counterfoil.domain.ids import is_operation_id

from .statements import Names
from .store import READ, Store

TIMELINE: Final = Names("timeline")


class Seen(NamedTuple):
    """The ids of the scopes that a call may know of; None stands for all, erased ones and what has no scope included."""

    scope_ids: frozenset[bytes] | None

    def includes(self, scope_id: bytes | None) -> bool:
        return self.scope_ids is None or scope_id in self.scope_ids

    @property
    def parameter(self) -> list[bytes] | None:
        """What statements take as scopes."""
        return None if self.scope_ids is None else list(self.scope_ids)


def seen_by(store: Store, reach: Reach) -> Seen:
    """Resolve a reach to the scopes that the journal has in it."""
    if reach.tenant is EVERY_TENANT:
        return Seen(None)
    if reach.tenant is None:
        own = store.scope_of(reach.identity.scope)
        return Seen(frozenset() if own is None else frozenset({own.scope_id}))
    return Seen(frozenset(row[0] for row in store.rows(READ.scopes_of_tenant, (reach.tenant,))))


def is_id(value: str) -> bool:
    """Tell whether a text can be an id at all: NUL and lone surrogates are refused everywhere, so nothing has such an id."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value)


def visible_operation(store: Store, seen: Seen, operation_id: str) -> int | None:
    """Return the position of an operation's admission, None where it is unknown or another's."""
    if not is_operation_id(operation_id):
        return None
    row = store.one(TIMELINE.operation_of, (operation_id,))
    return row[0] if row is not None and seen.includes(row[1]) else None
