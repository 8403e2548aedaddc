"""Erasing what maps pseudonyms back to people. Nothing of the history is altered; what it names can no longer be told."""

from __future__ import annotations

from .event import REGISTRY, Event
from .ids import SubjectKind

# Events: the storage format.


@REGISTRY.register
class SubjectErased(Event):
    TYPE = "subject.erased"
    kind: SubjectKind
    subject: str


@REGISTRY.register
class ScopeKeyErased(Event):
    TYPE = "scope.key_erased"
