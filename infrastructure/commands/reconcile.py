"""Reconcile, and the claim of a resend."""

from __future__ import annotations

from dataclasses import dataclass, replace

from counterfoil.domain import reconcile
from counterfoil.domain.decision import Actor, Steps
from counterfoil.domain.errors import NeedsRuntime
from counterfoil.domain.identity import EVERY_TENANT, Reach
from counterfoil.domain.ids import ScopeKey, is_operation_id
from counterfoil.domain.operation import Operation
from counterfoil.domain.placing import Placing
from counterfoil.domain.reconcile import Reconcile, Reconciliation, Resend

from ..unit import Unit
from .turn import route_lease


@dataclass(frozen=True, slots=True)
class ResendClaimed:
    """The resend is this caller's: it sends, and marks the attempt."""

    operation: Operation
    attempt: int

    def placed(self, placing: Placing) -> ResendClaimed:
        return replace(self, operation=self.operation.placed(placing))


@dataclass(frozen=True, slots=True)
class ReconcileOperation:
    """
    File what cannot be proven, where the reach includes the operation; elsewhere it is not found.

    `may_send` tells whether the caller sends; without it a reply that would have to be sent raises `NeedsRuntime`, and nothing is
    changed.
    """

    reach: Reach
    operation_id: str
    command: Reconcile
    may_send: bool

    def run(self, unit: Unit) -> Reconciliation | ResendClaimed:
        if self.reach.identity.refusal(unit.wall) is not None:
            return Reconciliation("denied")
        operation = unit.operation(self.operation_id) if is_operation_id(self.operation_id) else None
        if operation is None or not may_see(unit, self.reach, operation.scope_id):
            return Reconciliation("not_found")
        key = unit.scope_key(operation.scope_id)
        actor = Actor("operator", None if key is None else key.pseudonym("principal", None, self.reach.identity.principal))
        lease_id = route_lease(unit, operation.route)
        decided = reconcile.reconcile(
            operation,
            self.command,
            lease_id,
            unit.lease(lease_id),
            unit.deadline(lease_id),
            actor,
            unit.context,
            reply_kept=operation.reply_position is None or unit.payload(operation.reply_position) is not None,
        )
        if isinstance(decided, Resend):
            if not self.may_send:
                raise NeedsRuntime(
                    "the reply would have to be sent, and a journal does not send; use Runtime.reconcile; nothing was changed"
                )
            self._append(unit, operation, key, decided.steps)
            claimed = unit.operation(self.operation_id)
            assert claimed is not None
            return ResendClaimed(claimed, decided.attempt)
        answer, steps = decided
        self._append(unit, operation, key, steps)
        return answer

    def _append(self, unit: Unit, operation: Operation, key: ScopeKey | None, steps: Steps) -> None:
        """Append what was decided; whose pseudonym it bears is kept only with it: a refusal leaves nothing."""
        if steps and key is not None:
            unit.subject(key, "principal", None, self.reach.identity.principal)
        unit.append_for(operation, steps)


def may_see(unit: Unit, reach: Reach, scope_id: bytes) -> bool:
    """
    Tell whether something of this scope may be known to exist. A scope whose key was erased is seen by those who see every
    tenant.
    """
    scoped = unit.scope_by_id(scope_id)
    scope = None if scoped is None else scoped.scope
    return reach.tenant is EVERY_TENANT if scope is None else reach.includes(scope)
