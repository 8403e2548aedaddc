"""Checks what a host asks to be erased before it becomes a command, so that a wrong word is refused by name."""

from __future__ import annotations

from typing import Final, get_args

from counterfoil.domain.errors import Denied, InvalidValue
from counterfoil.domain.identity import Identity, Reach
from counterfoil.domain.ids import SubjectKind, checked_id

from .commands.erasure import EraseScope, EraseSubject

KINDS: Final[tuple[str, ...]] = get_args(SubjectKind)


def erase_command(reach: Reach, kind: SubjectKind, value: str, connection: str | None) -> EraseSubject:
    """Return the command; raises `InvalidValue` that names what is wrong, and `Denied` for a reach that names a tenant."""
    identity = _own(reach)
    if kind not in KINDS:
        raise InvalidValue(f"kind must be one of {', '.join(KINDS)}")
    checked_id(value, name="value")
    if kind == "principal":
        if connection is not None:
            raise InvalidValue("connection must be left out: a principal is an id of the host's, and the same on each connection")
    elif connection is None:
        raise InvalidValue(f"connection is missing: an id of the kind {kind} is named with the connection that it belongs to")
    else:
        checked_id(connection, name="connection")
    return EraseSubject(identity, kind, connection, value)


def erase_scope_command(reach: Reach) -> EraseScope:
    """Return the command; raises `Denied` for a reach that names a tenant."""
    return EraseScope(_own(reach))


def _own(reach: Reach) -> Identity:
    if reach.tenant is not None:
        raise Denied(
            "erasure works in the identity's own scope; use acting_as without a tenant, with an identity of that scope",
            reason="own_scope_only",
        )
    return reach.identity
