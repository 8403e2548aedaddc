"""What a runtime reads of an operation before it runs it, or sends its reply again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from counterfoil.domain.exchange import Reply
from counterfoil.domain.identity import Scope
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.operation import Operation
from counterfoil.projections.leases import Leases

from .remembering import remember
from .store import Store

LEASES: Final = Leases()


class Found(NamedTuple):
    """What the journal has of an operation: whose it is, its event and its reply in the clear, and what waits on its route."""

    operation: Operation
    scope: Scope | None = None
    inbound: Inbound | None = None
    reply: Reply | None = None
    waiting: frozenset[int] = frozenset()


def find(store: Store, operation_id: str) -> Found | None:
    """Read an operation; None if it is not known."""
    remembered = remember(store, operation_id)
    if remembered is None:
        return None
    operation = remembered.operation
    scoped = store.scope_by_id(operation.scope_id)
    scope = None if scoped is None or scoped.tenant is None else Scope(scoped.tenant, scoped.account, scoped.user)
    waiting = frozenset(entry.operation for entry in store.queue(operation.route).waiting)
    return Found(operation, scope, remembered.inbound, remembered.reply, waiting)


def fences(store: Store, lease_ids: Iterable[str]) -> dict[str, int]:
    """Return the fences of those of the leases that are recorded as held, whoever holds them."""
    rows = [row for lease_id in lease_ids if (row := store.row(LEASES, (lease_id,))) is not None and row.held]
    return {row.lease_id: row.lease(store.epoch_at(row.position)).fence for row in rows}
