"""The end of an opening, and what operators did that changed no other aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.domain.decision import Step
from counterfoil.domain.event import Header
from counterfoil.domain.identity import Identity
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
    """Record that an operator was shown text. The principal is told under the key of its own scope."""

    action: str
    identity: Identity

    def run(self, unit: Unit) -> None:
        key = unit.scope(self.identity.scope)
        actor = unit.subject(key, "principal", None, self.identity.principal)
        originator = opening_originator(unit.head.journal_key, unit.opening_id)
        step = Step(originator, OperatorActed(action=self.action), "operator", actor)
        unit.append((step,), Header(scope_id=key.scope_id))
