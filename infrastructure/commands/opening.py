"""The beginning and the end of an opening, and what operators did that changed no other aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.domain.decision import Step
from counterfoil.domain.event import Header
from counterfoil.domain.identity import Identity
from counterfoil.domain.ids import opening_originator
from counterfoil.domain.opening import OpeningEnded, OperatorActed

from ..unit import Unit, header_of


@dataclass(frozen=True, slots=True)
class BeginOpening:
    """Record that this opening has begun, if it has not: what others append in its name needs its sign of life."""

    def run(self, unit: Unit) -> None:
        unit.start_opening()


@dataclass(frozen=True, slots=True)
class EndOpening:
    """Record that this opening ended cleanly; one that appended nothing leaves no trace."""

    def run(self, unit: Unit) -> None:
        if unit.opening_started:
            unit.store.lines.leave_with_opening(unit.opening_id)
            unit.append((Step(opening_originator(unit.head.journal_key, unit.opening_id), OpeningEnded()),), Header())


@dataclass(frozen=True, slots=True)
class RecordAct:
    """Record that an operator was shown text: of one operation, or of whatever a list held."""

    action: str
    identity: Identity
    operation_id: str | None = None

    def run(self, unit: Unit) -> None:
        operation = None if self.operation_id is None else unit.operation(self.operation_id)
        key = unit.scope(self.identity.scope) if operation is None else unit.scope_key(operation.scope_id)
        actor = None if key is None else unit.subject(key, "principal", None, self.identity.principal)
        header = header_of(operation) if operation is not None else Header(scope_id=None if key is None else key.scope_id)
        originator = opening_originator(unit.head.journal_key, unit.opening_id)
        unit.append((Step(originator, OperatorActed(action=self.action), "operator", actor),), header)
