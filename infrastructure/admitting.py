"""Admissions as commands: plain ones, and those that take effect once under a command id."""

from __future__ import annotations

from typing import Any

from counterfoil.domain.admission import Admission, AdmissionReason
from counterfoil.domain.exchange import Action
from counterfoil.domain.identity import Grant, instant_us
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits

from .commands.admission import AdmitInbound, Admitted
from .commands.once import Once, command_id_bytes, fingerprint
from .committer import Command
from .unit import Unit


def admit_command(inbound: Inbound, grant: Grant, command_id: str | bytes | None) -> Command[Admitted]:
    """Return the command that admits an event; raises `InvalidValue` for a command id that can be none."""
    command = AdmitInbound(inbound, grant, grant.alias)
    return command if command_id is None else _once(command, command_id_bytes(command_id))


def _once(command: AdmitInbound, command_id: bytes) -> Once[Admitted]:
    inbound, grant = command.inbound, command.grant
    received_at = None if inbound.received_at is None else instant_us(inbound.received_at)
    mark = fingerprint(
        "admit",
        inbound.connection,
        inbound.conversation,
        inbound.thread,
        inbound.actor,
        inbound.event_id,
        inbound.body,
        received_at,
        command.alias,
        grant.revision,
    )
    return Once(command, grant.identity, command_id, mark, _dump, _load)


def _dump(admitted: Admitted) -> dict[str, Any] | None:
    """Return what is kept: the position is that of an event, because it may not be known yet."""
    answer = admitted.admission
    if answer.status != "accepted":
        return None
    return {
        "operation_id": answer.operation_id,
        "duplicate": answer.duplicate,
        "version": answer.version,
        "event": admitted.event_version,
        "text_differs": answer.text_differs,
    }


def _load(values: dict[str, Any], unit: Unit) -> Admitted:
    version = values.pop("event")
    position = unit.position_of(values["operation_id"], version)
    return Admitted(Admission("accepted", **values, position=position), event_version=version)


# What is refused without a look at the journal.


def refusal_before_journal(inbound: Inbound, grant: Grant, limits: Limits, now: int) -> AdmissionReason | None:
    """Return what refuses an event without a look at the journal, in the order of ADM-01, or None."""
    if is_oversized(inbound, limits):
        return "oversized"
    if grant.identity.refusal(now) is not None:
        return "revoked"
    return "unknown_command" if action_of(inbound) == "command" else None


def is_oversized(inbound: Inbound, limits: Limits) -> bool:
    """Tell whether a text is longer than an opening takes."""
    return len(inbound.body) > limits.max_input_bytes


def action_of(inbound: Inbound) -> Action:
    """Return what an event asks for: a text that begins with a slash is a command."""
    return "command" if inbound.text.lstrip().startswith("/") else "message"
