"""Scopes in a unit of work: their keys, the pseudonyms of their people, and the answers to their command ids."""

from __future__ import annotations

import os

from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey, SubjectKind

from .group import Group
from .rows import Scoped


class Scopes(Group):
    """What a group knows of scopes: what was committed, and what the group did to it."""

    # Scopes.

    def known_scope(self, scope: Scope) -> ScopeKey | None:
        return self.caches.scopes.get(scope)

    def scope(self, scope: Scope) -> ScopeKey:
        """Return a scope's id and key; a new scope gets fresh ones."""
        known = self.caches.scopes.get(scope)
        if known is None:
            known = self._draw(scope)
            self.caches.scopes.put(scope, known)
            self.caches.scope_ids.put(known.scope_id, Scoped(known.scope_id, known.key, *scope))
            self.changes.scopes.append((known.scope_id, *scope, known.key))
        return known

    def _draw(self, scope: Scope) -> ScopeKey:
        """Return a fresh id and key for a scope that begins."""
        return ScopeKey(os.urandom(16), os.urandom(32))

    def is_new_scope(self, scope_id: bytes) -> bool:
        """Tell whether the group has begun a scope."""
        return any(row[0] == scope_id for row in self.changes.scopes)

    def scope_by_id(self, scope_id: bytes) -> Scoped | None:
        return self.caches.scope_ids.get(scope_id)

    def scope_key(self, scope_id: bytes) -> ScopeKey | None:
        """Return the key of a scope, None once it was erased."""
        scoped = self.scope_by_id(scope_id)
        return None if scoped is None or scoped.key is None else ScopeKey(scope_id, scoped.key)

    def forget_scope(self, scope: Scope, scope_id: bytes) -> None:
        """The scope has no key from now on: the next one of the same people is another."""
        self.caches.scopes.put(scope, None)
        self.caches.scope_ids.put(scope_id, Scoped(scope_id, None, None, None, None))

    # People.

    def subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str) -> bytes:
        """Return the pseudonym of a person's id, and remember whom it stands for."""
        known = self.caches.subjects.get((key.scope_id, kind, connection, value))
        if known is None:
            known = key.pseudonym(kind, connection, value)
            self._keep_subject(key, kind, connection, value, known)
        return known

    def remember_subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str, pseudonym: bytes) -> None:
        """Remember whom a pseudonym stands for."""
        if self.caches.subjects.get((key.scope_id, kind, connection, value)) is None:
            self._keep_subject(key, kind, connection, value, pseudonym)

    def _keep_subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str, pseudonym: bytes) -> None:
        self.caches.subjects.put((key.scope_id, kind, connection, value), pseudonym)
        self.changes.subjects.append((pseudonym, key.scope_id, kind, connection, value))

    def is_known_subject(self, pseudonym: bytes) -> bool:
        return self.store.subject(pseudonym) is not None

    def forget_subject(self, key: ScopeKey, kind: SubjectKind, connection: str | None, value: str) -> None:
        """The pseudonym stands for nobody from now on."""
        self.caches.subjects.put((key.scope_id, kind, connection, value), None)
        self.changes.actions.append(("erase_subject", (key.pseudonym(kind, connection, value),)))

    # Command ids.

    def kept_command(self, scope_id: bytes, command_id: bytes) -> tuple[bytes, bytes, int] | None:
        """Return fingerprint, answer and time of a command id that was used."""
        return self.caches.commands.get((scope_id, command_id))

    def keep_command(self, scope_id: bytes, command_id: bytes, fingerprint: bytes, answer: bytes) -> None:
        self.caches.commands.put((scope_id, command_id), (fingerprint, answer, self.now))
