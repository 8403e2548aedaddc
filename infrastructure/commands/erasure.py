"""Erase what maps pseudonyms back: one person's id in a scope, or a scope altogether."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from counterfoil.domain.decision import Actor, Step
from counterfoil.domain.erasure import ScopeKeyErased, SubjectErased, erase
from counterfoil.domain.event import Header
from counterfoil.domain.identity import Identity
from counterfoil.domain.ids import SubjectKind, scope_originator

from ..unit import Unit


@dataclass(frozen=True, slots=True)
class EraseSubject:
    """Erase a person's id: its row, and the texts and platform ids of the operations that it belongs to."""

    ALONE: ClassVar[bool] = True

    identity: Identity
    kind: SubjectKind
    connection: str | None
    value: str

    def run(self, unit: Unit) -> bool:
        """Tell whether anything was known of it."""
        self.identity.require_active(unit.wall)
        key = unit.known_scope(self.identity.scope)
        if key is None or not unit.is_known_subject(pseudonym := key.pseudonym(self.kind, self.connection, self.value)):
            return False
        operator = unit.subject(key, "principal", None, self.identity.principal)
        _end(unit, unit.store.unresolved_of_subject(pseudonym), operator)
        erased = SubjectErased(kind=self.kind, subject=pseudonym.hex())
        unit.append((Step(scope_originator(key.scope_id), erased, "operator", operator),), Header(scope_id=key.scope_id))
        unit.store.lines.forget_keys(self.value)  # hosts lock by the ids of chats
        unit.forget_subject(key, self.kind, self.connection, self.value)
        for name in ("erase_payloads_of_subject", "erase_external_ids_of_subject"):
            unit.changes.actions.append((name, (pseudonym,)))
        return True


@dataclass(frozen=True, slots=True)
class EraseScope:
    """Erase a scope's key and all that maps back from it; its history can then no longer be linked to anybody."""

    ALONE: ClassVar[bool] = True

    identity: Identity

    def run(self, unit: Unit) -> bool:
        """Tell whether the scope was known."""
        self.identity.require_active(unit.wall)
        key = unit.known_scope(self.identity.scope)
        if key is None:
            return False
        operator = unit.subject(key, "principal", None, self.identity.principal)
        _end(unit, unit.store.unresolved_of_scope(key.scope_id), operator)
        unit.append(
            (Step(scope_originator(key.scope_id), ScopeKeyErased(), "operator", operator),), Header(scope_id=key.scope_id)
        )
        unit.store.lines.forget_keys_of_scope(key.scope_id)
        unit.forget_scope(self.identity.scope, key.scope_id)
        for name in (
            "erase_payloads_of_scope",
            "erase_external_ids_of_scope",
            "erase_subjects_of_scope",
            "erase_commands_of_scope",
            "erase_scope",
        ):
            unit.changes.actions.append((name, (key.scope_id,)))
        return True


def _end(unit: Unit, operations: list[str], operator: bytes) -> None:
    """File what can no longer be run or sent, because its text goes; what is being run ends by itself."""
    for operation_id in operations:
        operation = unit.operation(operation_id)
        assert operation is not None
        unit.append_for(operation, erase(operation, Actor("operator", operator)))
