"""The end of an opening, and what operators did that changed no other aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.domain.decision import Step
from counterfoil.domain.event import Header
from counterfoil.domain.ids import opening_originator
from counterfoil.domain.opening import OpeningEnded, OperatorActed

from ..unit import Unit


@dataclass(frozen=True, slots=True)
class EndOpening:
    """Record that this opening ended cleanly; one that appended nothing leaves no trace."""

    def run(self, unit: Unit) -> None:
        if unit.opening_started:
            unit.append((Step(opening_originator(unit.head.journal_key, unit.opening_id), OpeningEnded()),), Header())


@dataclass(frozen=True, slots=True)
class RecordAct:
    """Record that an operator saw text, or worked across scopes, without changing an operation."""

    action: str
    scope_id: bytes | None
    principal: str
    operation: int | None = None

    def run(self, unit: Unit) -> None:
        key = None if self.scope_id is None else unit.scope_key(self.scope_id)
        actor = None if key is None else unit.subject(key, "principal", self.principal)
        header = Header(scope_id=self.scope_id, operation=self.operation)
        originator = opening_originator(unit.head.journal_key, unit.opening_id)
        unit.append((Step(originator, OperatorActed(action=self.action), "operator", actor),), header)
