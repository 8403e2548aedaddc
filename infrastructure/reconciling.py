"""Checks what an operator asks for before it becomes a command, so that a wrong word is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.event import Event
from counterfoil.domain.identity import Reach
from counterfoil.domain.ids import checked_word, is_operation_id
from counterfoil.domain.operation import ReplyDelivered, ReplyDeliveryFailed, ReplyDeliveryUnknown
from counterfoil.domain.reconcile import Reconcile, ReconcileOutcome, Reconciliation

from .commands.once import Once, command_id_bytes, fingerprint
from .commands.reconcile import ReconcileOperation, ResendClaimed
from .committer import Command
from .pages import LARGEST
from .unit import Unit

NOTE_BYTES = 4_096

RESENT: Final[dict[type[Event], ReconcileOutcome]] = {
    ReplyDelivered: "reply_delivered",
    ReplyDeliveryFailed: "reply_failed",
    ReplyDeliveryUnknown: "reply_unknown",
}


def reconcile_command(
    reach: Reach,
    operation_id: str,
    *,
    expected_version: int,
    acknowledge_duplicate_risk: bool,
    force: bool,
    reason: str,
    note: str | None,
    command_id: str | bytes | None,
    may_send: bool,
) -> Command[Reconciliation | ResendClaimed]:
    """Return the command; raises `InvalidValue` that names what is wrong and what would be right."""
    if not isinstance(operation_id, str):
        raise InvalidValue(f"operation_id must be text like op-…, not {type(operation_id).__name__}")
    if isinstance(expected_version, bool) or not isinstance(expected_version, int):
        raise InvalidValue(f"expected_version must be a whole number, not {type(expected_version).__name__}")
    if not 1 <= expected_version <= LARGEST:
        raise InvalidValue(f"expected_version must be from 1 to {LARGEST}")
    checked_word(reason, name="reason", cure="; put free text into the note")
    if note is not None and (not isinstance(note, str) or len(note.encode("utf-8", "surrogatepass")) > NOTE_BYTES):
        raise InvalidValue(f"note must be text of at most {NOTE_BYTES} bytes")
    asked = Reconcile(expected_version, bool(acknowledge_duplicate_risk), bool(force), reason, note)
    command = ReconcileOperation(reach, operation_id, asked, may_send)
    if command_id is None:
        return command
    key = command_id_bytes(command_id)
    if not is_operation_id(operation_id):
        return command  # it is found nowhere, and what is not found is not kept
    mark = fingerprint(
        "reconcile",
        operation_id,
        expected_version,
        int(asked.acknowledge_duplicate_risk),
        int(asked.force),
        reason,
        None if note is None else note.encode("utf-8", "surrogatepass"),
    )
    return Kept(Once(command, reach.identity, key, mark, _dump, _load), operation_id)


@dataclass(frozen=True, slots=True)
class Resent:
    """What is kept of a resend, which has no answer yet when it is claimed: the attempt that the answer is to be read from."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Reconcile once; whoever asks again for a resend is told what became of the attempt of the first time."""

    once: Once[Reconciliation | ResendClaimed | Resent]
    operation_id: str

    def run(self, unit: Unit) -> Reconciliation | ResendClaimed:
        answer = self.once.run(unit)
        return self._outcome(unit, answer.attempt) if isinstance(answer, Resent) else answer

    def _outcome(self, unit: Unit, attempt: int) -> Reconciliation:
        """An attempt that is not marked, because it is under way or its sender has died, is one of which nobody knows."""
        operation = unit.operation(self.operation_id)
        if operation is None:
            return Reconciliation("not_found")
        for recorded in unit.store.stream(self.operation_id):
            event = recorded.event
            if isinstance(event, ReplyDelivered | ReplyDeliveryFailed | ReplyDeliveryUnknown) and event.attempt == attempt:
                return Reconciliation("resolved", RESENT[type(event)], version=recorded.originator_version)
        return Reconciliation("resolved", "reply_unknown", version=operation.version)


def _dump(answer: Reconciliation | ResendClaimed | Resent) -> dict[str, Any] | None:
    match answer:
        case ResendClaimed():
            return {"attempt": answer.attempt}
        case Reconciliation(status="resolved"):
            return {"outcome": answer.outcome, "version": answer.version}
    return None


def _load(values: dict[str, Any], unit: Unit) -> Reconciliation | ResendClaimed | Resent:
    return Resent(**values) if "attempt" in values else Reconciliation("resolved", **values)
