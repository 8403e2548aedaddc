"""Admit an inbound event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from counterfoil.domain import admission
from counterfoil.domain.admission import Admission, Admit, refused, superseded
from counterfoil.domain.event import Header
from counterfoil.domain.identity import Grant, Scope, instant_us
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.operation import Operation
from counterfoil.domain.placing import Placing

from ..needs import Foresees, Needs
from ..unit import Unit, header_of


class Admitted(NamedTuple):
    """The answer to the host, and what the runtime needs to schedule the operation."""

    admission: Admission
    route: str | None = None
    """The route that has work; also when there was no room on it because of what waits from openings that have ended."""
    position: int | None = None
    """Position of the admission of the operation that is to be run; None when nothing is."""
    alias: str = ""
    """The agent of the operation's route."""
    event_version: int = 1
    """The version of the operation's event whose position is answered."""

    def placed(self, placing: Placing) -> Admitted:
        position = None if self.position is None else placing.position(self.position)
        return self._replace(admission=self.admission.placed(placing), position=position)


class Names(NamedTuple):
    """What an event and its people are called in a scope."""

    conversation: bytes
    thread: bytes | None
    actor: bytes
    event: bytes
    operation_id: str
    """Of the first occurrence of the event."""
    route: str


@dataclass(frozen=True, slots=True)
class AdmitInbound(Foresees):
    """Admit an event for the person that the host granted it to; what can be refused without the journal was refused before."""

    inbound: Inbound
    grant: Grant
    alias: str

    def run(self, unit: Unit) -> Admitted:
        inbound, grant = self.inbound, self.grant
        if grant.identity.refusal(unit.wall) is not None:
            return Admitted(refused("revoked"))
        key = unit.scope(grant.identity.scope)
        names = unit.foreseen.pop(id(self), None) or self._names(key)
        conversation, thread, actor, event, _, route = names
        if unit.is_new_scope(key.scope_id):
            unit.caches.begin(names.operation_id, route)
        unit.remember_subject(key, "conversation", inbound.connection, inbound.conversation, conversation)
        unit.remember_subject(key, "actor", inbound.connection, inbound.actor, actor)
        operation_id, occurrence, known = _find(unit, key, inbound.connection, names)
        if known is not None:
            return self._repeat(unit, known, actor)
        if inbound.thread is not None and thread is not None:
            unit.remember_subject(key, "thread", inbound.connection, inbound.thread, thread)
        command = Admit(
            operation_id=operation_id,
            occurrence=occurrence,
            route=route,
            alias=self.alias,
            actor=actor,
            principal=unit.subject(key, "principal", None, grant.identity.principal),
            revision=grant.revision,
            event_id=inbound.event_id,
            body=inbound.body,
            received_at=None if inbound.received_at is None else instant_us(inbound.received_at),
        )
        steps = admission.admit(command, unit.queue(route), unit.load(route), unit.context)
        if isinstance(steps, str):
            unit.drop()
            left = any(not unit.context.world.is_live(entry.opening_id) for entry in unit.queue(route).waiting)
            return Admitted(refused(steps), route if left else None)
        header = Header(
            scope_id=key.scope_id, connection=inbound.connection, conversation=conversation, thread=thread, correlation=event
        )
        recorded = unit.append(steps, header)[-1]
        answer = Admission("accepted", operation_id=operation_id, version=1, position=recorded.position)
        return Admitted(answer, route, recorded.position, self.alias)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return (self.grant.identity.scope,)

    def needs(self, unit: Unit) -> Needs:
        key = unit.known_scope(self.grant.identity.scope)
        if key is None:
            return Needs()
        names = unit.foreseen[id(self)] = self._names(key)
        return Needs(operations=(names.operation_id,), queues=(names.route,), conversation=names.conversation)

    def _names(self, key: ScopeKey) -> Names:
        inbound, connection = self.inbound, self.inbound.connection
        conversation = key.pseudonym("conversation", connection, inbound.conversation)
        thread = None if inbound.thread is None else key.pseudonym("thread", connection, inbound.thread)
        actor = key.pseudonym("actor", connection, inbound.actor)
        event = key.platform_event(connection, inbound.event_id)
        operation_id = key.operation(connection, conversation, event, 0)
        route = key.route(connection, conversation, thread, actor, self.alias)
        return Names(conversation, thread, actor, event, operation_id, route)

    def _repeat(self, unit: Unit, known: Operation, actor: bytes) -> Admitted:
        repeat, same_text = admission.repeat(
            known, actor, unit.queue(known.route), unit.payload(known.position), self.inbound.body, unit.context
        )
        if unit.only_counts(known):
            repeat = repeat._replace(steps=())
            unit.changes.actions.append(("count_repeat", (known.position,)))
        elif known.repeated:
            unit.changes.actions.append(("count_repeat", (known.position,)))
        recorded = unit.append(repeat.steps, header_of(known))
        answer = Admission(
            "accepted",
            operation_id=known.operation_id,
            duplicate=True,
            version=recorded[-1].originator_version if recorded else known.version,
            position=recorded[-1].position if recorded else known.position,
            text_differs=same_text is False,
        )
        runs = repeat.runs or (known.phase == "accepted" and known.admitted_by == unit.opening_id)  # it may have no worker
        event_version = recorded[-1].originator_version if recorded else 1
        return Admitted(answer, known.route, known.position if runs else None, known.alias, event_version)


def _find(unit: Unit, key: ScopeKey, connection: str, names: Names) -> tuple[str, int, Operation | None]:
    """Return the operation of an event that makes a delivery a repeat, or the id and occurrence of the one that it begins."""
    operation_id, occurrence = names.operation_id, 0
    while True:
        known = unit.operation(operation_id)
        if known is None or not superseded(known, unit.context):
            return operation_id, occurrence, known
        occurrence += 1
        operation_id = key.operation(connection, names.conversation, names.event, occurrence)
