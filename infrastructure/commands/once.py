"""A command with a command id takes effect once, and its answer is kept for whoever asks again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

import orjson

from counterfoil.domain.admission import DAY
from counterfoil.domain.errors import CommandConflict, InvalidValue
from counterfoil.domain.framing import Framed, frame
from counterfoil.domain.identity import Identity, Scope
from counterfoil.domain.ids import ScopeKey

from ..committer import Command
from ..needs import Foresees, Needs
from ..unit import Unit

A = TypeVar("A")
COMMAND_ID_BYTES = 128


def command_id_bytes(value: str | bytes) -> bytes:
    """Return a command id as bytes; raises `InvalidValue` outside 1 to 128 bytes."""
    if not isinstance(value, str | bytes):
        raise InvalidValue(f"command_id must be text or bytes, not {type(value).__name__}")
    try:
        data = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:
        raise InvalidValue("command_id must not hold a lone surrogate") from None
    if not 1 <= len(data) <= COMMAND_ID_BYTES:
        raise InvalidValue(f"command_id must be 1 to {COMMAND_ID_BYTES} bytes, not {len(data)}")
    return data


def fingerprint(*values: Framed) -> bytes:
    """Return what tells one command from another; the values are not kept."""
    return sha256(frame(*values)).digest()


@dataclass(frozen=True, slots=True)
class Once(Foresees, Generic[A]):
    """Run a command under its id in a scope, or give the first answer again."""

    command: Command[A]
    identity: Identity
    command_id: bytes
    fingerprint: bytes
    dump: Callable[[A], dict[str, Any] | None]
    """The answer as JSON, without secrets; None when it is not to be kept, as for a refusal that can be tried again."""
    load: Callable[[dict[str, Any], Unit], A]

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return (self.identity.scope,)

    def needs(self, unit: Unit) -> Needs:
        return self.command.needs(unit) if isinstance(self.command, Foresees) else Needs()

    def run(self, unit: Unit) -> A:
        if self.identity.refusal(unit.wall) is not None:
            return self.command.run(unit)  # which refuses it; a kept answer is not for whoever is no longer active
        key = unit.known_scope(self.identity.scope)
        kept = None if key is None else unit.kept_command(key.scope_id, self.command_id)
        if key is not None and kept is not None and unit.now - kept[2] < unit.limits.command_id_days * DAY:
            if kept[0] != self._salted(key):
                raise CommandConflict("the command id was used in this scope for another command; use a new id for a new command")
            return self.load(orjson.loads(kept[1]), unit)
        answer = self.command.run(unit)
        values = self.dump(answer)
        if values is not None:
            key = unit.scope(self.identity.scope)
            unit.keep_command(key.scope_id, self.command_id, self._salted(key), orjson.dumps(values))
        return answer

    def _salted(self, key: ScopeKey) -> bytes:
        return sha256(key.key + self.fingerprint).digest()
