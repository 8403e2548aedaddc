"""Entries of a timeline: what they show, what they keep to themselves, and a sentence for every type of event."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError
from syrupy.assertion import SnapshotAssertion

from counterfoil.domain.erasure import ScopeKeyErased, SubjectErased
from counterfoil.domain.event import REGISTRY, ActorKind, Committed, Event, Header, Recorded
from counterfoil.domain.lock import LockExpired, LockGranted, LockReleased, LockRevoked, fence_of, fence_text
from counterfoil.domain.opening import OpeningEnded, OpeningEpochRaised, OpeningStarted, OperatorActed
from counterfoil.domain.operation import (
    EntryPutBack,
    EntrySteppedOver,
    OperationAbandoned,
    OperationAdmitted,
    OperationClaimed,
    OperationExecutionUnknown,
    OperationLateRefused,
    OperationRepeated,
    OperationSettled,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyResendClaimed,
    ReplyStaged,
)
from counterfoil.domain.route import BindingAdvanced, BindingOpened
from counterfoil.projections.timeline import Names, TimelineEntry, TimelineFilter, describe, entry_of

pytestmark = pytest.mark.no_engine("entries are made from events without a journal")

AT = 1_767_225_600_000_000
TEXT = Committed(length=11, commitment="ab" * 32)
FENCE = fence_text(fence_of(1_767_225_600_000, 9))
OPERATION, ROUTE, LOCK, OPENING, SCOPE = "op-" + "0" * 32, "rt-" + "1" * 32, "lk-" + "2" * 32, "opn-" + "3" * 32, "sc-" + "4" * 32
CHAT, TOPIC, PERSON, OPERATOR, CORRELATION = (bytes([n]) * 16 for n in (0x22, 0x23, 0x33, 0x55, 0x44))
NAMES = Names(
    subjects={CHAT: "chat -100", TOPIC: "topic 9", PERSON: "ann@example", OPERATOR: "olga"},
    operations={3: OPERATION},
    external={3: "update 7", 12: "message 8"},
    texts={3: "hello there"},
)


def admission(**fields: Any) -> OperationAdmitted:
    base = {"route": ROUTE, "alias": "agent", "occurrence": 0, "principal": "55" * 16, "revision": "1", "text": TEXT}
    return OperationAdmitted(**{**base, **fields})


SAMPLES: tuple[tuple[str, ActorKind, Event], ...] = (
    (OPENING, "system", OpeningStarted(release="0.1.0", process=4711)),
    (OPENING, "system", OpeningEpochRaised(epoch=1_767_225_600_000)),
    (OPENING, "system", OpeningEnded()),
    (OPENING, "operator", OperatorActed(action="text_shown")),
    (OPERATION, "person", admission()),
    (OPERATION, "person", admission(occurrence=1)),
    (OPERATION, "person", OperationRepeated(same_text=True)),
    (OPERATION, "person", OperationRepeated(same_text=False)),
    (OPERATION, "person", OperationRepeated()),
    (OPERATION, "system", OperationClaimed(grant=1, admitted_at=AT - 2_500_000)),
    (
        OPERATION,
        "agent",
        OperationSettled(outcome="succeeded", replied=True, admitted_at=AT, fence=FENCE, claimed_at=AT - 61_000_000),
    ),
    (
        OPERATION,
        "agent",
        OperationSettled(
            outcome="failed", replied=False, code="agent_error", admitted_at=AT, fence=FENCE, claimed_at=AT - 250_000
        ),
    ),
    (OPERATION, "system", OperationSettled(outcome="cancelled", replied=False, code="stopped", admitted_at=AT)),
    (OPERATION, "system", OperationSettled(outcome="failed", replied=True, code="rejected", admitted_at=AT)),
    (OPERATION, "agent", OperationLateRefused(outcome="succeeded", fence=FENCE)),
    (OPERATION, "operator", OperationAbandoned(reason="operator", acknowledged=False)),
    (OPERATION, "operator", OperationAbandoned(reason="operator", acknowledged=True)),
    (OPERATION, "operator", OperationExecutionUnknown(reason="host_died", acknowledged=True, forced=False)),
    (OPERATION, "operator", OperationExecutionUnknown(reason="host_hangs", acknowledged=True, forced=True, note=TEXT)),
    (OPERATION, "system", OperationExecutionUnknown(reason="stop_deadline", acknowledged=False, forced=False)),
    (OPERATION, "system", EntrySteppedOver()),
    (OPERATION, "person", EntryPutBack(route=ROUTE)),
    (OPERATION, "system", ReplyStaged(kind="final", text=TEXT, truncated=False)),
    (OPERATION, "system", ReplyStaged(kind="notice", text=TEXT, truncated=True)),
    (OPERATION, "operator", ReplyResendClaimed(attempt=2, acknowledged=True, reason="operator")),
    (OPERATION, "operator", ReplyResendClaimed(attempt=3, acknowledged=False, reason="operator")),
    (OPERATION, "system", ReplyDelivered(attempt=1, admitted_at=AT - 3_600_000_000)),
    (OPERATION, "system", ReplyDeliveryFailed(attempt=1, reason="chat_blocked")),
    (OPERATION, "system", ReplyDeliveryUnknown(attempt=2, reason="timeout")),
    (ROUTE, "system", BindingOpened(alias="agent", generation=0, session_id="ses-" + "6" * 32)),
    (ROUTE, "agent", BindingAdvanced(leaf="leaf-1")),
    (LOCK, "system", LockGranted(lock="counterfoil.route", ttl=30_000_000)),
    (LOCK, "system", LockGranted(lock="deploy", ttl=30_000_000, max_hold=3_600_000_000)),
    (LOCK, "system", LockReleased()),
    (LOCK, "system", LockExpired(cause="ttl")),
    (LOCK, "system", LockExpired(cause="opening_ended")),
    (LOCK, "system", LockExpired(cause="max_hold")),
    (LOCK, "operator", LockRevoked(reason="host_hangs")),
    (SCOPE, "operator", SubjectErased(kind="actor", subject=PERSON.hex())),
    (SCOPE, "operator", ScopeKeyErased()),
)


def entry(originator_id: str, kind: ActorKind | None, event: Event | None, names: Names = NAMES, **header: Any) -> TimelineEntry:
    """The entry of an event at position 12, which is on behalf of the operation admitted at 3."""
    admitted = isinstance(event, OperationAdmitted)
    base = Header(
        opening_id=2,
        actor_kind=kind,
        scope_id=b"\x11" * 16,
        connection="tg",
        conversation=CHAT,
        thread=None,
        actor={"person": PERSON, "operator": OPERATOR}.get(str(kind)),
        operation=None if admitted else 3,
        correlation=CORRELATION,
    )
    recorded = Recorded(3 if admitted else 12, AT + 1, originator_id, 4, base._replace(**header), event)
    return entry_of(recorded, "some.thing" if event is None else event.TYPE, names)


# Sentences.


def test_every_type_of_event_has_a_sentence(snapshot: SnapshotAssertion) -> None:
    """In each of its forms, and none of the registry is without one."""
    sentences = [f"{event.TYPE}: {describe(entry(originator, kind, event))}" for originator, kind, event in SAMPLES]
    ours = {name for name, cls in REGISTRY.types().items() if cls.__module__.startswith("counterfoil.")}

    assert {event.TYPE for _, _, event in SAMPLES} == ours
    assert not [sentence for sentence in sentences if "does not know" in sentence]
    assert snapshot == "\n".join(sentences)


def test_event_that_is_not_ours_has_a_sentence_too() -> None:
    """One that the eventsourcing library appended, or that a newer release has written."""
    assert describe(entry("order-7", None, None)) == "An event that counterfoil does not know was appended to order-7."


def test_sentence_tells_where_and_the_fence() -> None:
    """The thread, and the fence where there is one."""
    told = entry(OPERATION, "person", admission(), thread=TOPIC)

    assert "in conversation chat -100, thread topic 9, on tg" in describe(told)
    assert describe(entry(LOCK, "system", LockReleased()), FENCE) == f"Opening 2 released the lock, under fence {FENCE}."


def test_ids_stay_inside_their_sentence() -> None:
    """Line ends and escape sequences in ids reach no terminal."""
    names = NAMES._replace(subjects={CHAT: "a\nb", PERSON: "\x1b[31mred\u202e"})

    sentence = describe(entry(OPERATION, "person", admission(), names))

    assert sentence.startswith("Person \\x1b[31mred\\u202e wrote a message of 11 bytes in conversation a\\nb on tg")


# Entries.


def test_entry_has_what_the_journal_knows(snapshot: SnapshotAssertion) -> None:
    """Ids in the clear, the time in UTC to the microsecond, the state without its commitment."""
    told = entry(OPERATION, "person", admission(received_at=AT), thread=TOPIC)

    assert told.recorded_at == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert snapshot == json.dumps(told.to_json(), indent=2)


def test_message_id_is_that_of_the_delivery() -> None:
    """And the event id is the one of the admission, on every event of the operation."""
    told = entry(OPERATION, "system", ReplyDelivered(attempt=1, admitted_at=AT))

    assert ("update 7", "message 8", OPERATION) == (told.event_id, told.message_id, told.operation_id)
    assert entry(OPERATION, "system", EntrySteppedOver()).message_id is None


def test_erased_ids_show_as_the_beginning_of_their_pseudonyms() -> None:
    """So that entries of one person can still be told from those of another."""
    told = entry(OPERATION, "person", admission(), Names({}, {}, {}, {}), thread=TOPIC)

    assert ("~22222222", "~23232323", "~33333333") == (told.conversation, told.thread, told.actor)
    assert told.event_id == "~44444444"
    assert (told.text, told.operation_id) == (None, None)
    assert describe(told).startswith("Person ~33333333 wrote")


@pytest.mark.contract("DIA-01")
@pytest.mark.parametrize("kind", ["person", "operator"])
def test_repr_shows_no_text_and_no_id_of_a_person_or_platform(kind: ActorKind) -> None:
    """An entry may be logged by mistake."""
    shown = repr(entry(OPERATION, kind, admission(), thread=TOPIC))

    assert OPERATION in shown
    for secret in (*NAMES.subjects.values(), *NAMES.external.values(), *NAMES.texts.values(), "tg", CORRELATION.hex()):
        assert secret not in shown


# Filters.


def test_filter_shows_no_id() -> None:
    """Its repr may be logged."""
    where = TimelineFilter(
        connection="c-tg", conversation="c-1", thread="t-1", actor="a-1", outcome="failed", types=["lock.granted"]
    )

    assert repr(where).startswith("TimelineFilter(actor_kind=None, types=('lock.granted',), outcome='failed'")
    assert not [each for each in ("c-tg", "c-1", "t-1", "a-1") if each in repr(where)]


@pytest.mark.parametrize(
    "fields",
    [
        {"actor": 7},
        {"actor": ""},
        {"conversation": "a\0b"},
        {"thread": "\udfff"},
        {"actor_kind": "robot"},
        {"types": []},
        {"types": ["lock.taken"]},
        {"types": "lock.granted"},
        {"outcome": "lost"},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001 - what is refused
        {"after": -1},
        {"before": 2**63},
        {"correlation": "44"},
        {"colour": "red"},
    ],
)
def test_filter_that_means_nothing_is_refused(fields: dict[str, Any]) -> None:
    """By the name of the field, without a quote of the value."""
    with pytest.raises(ValidationError) as refused:
        TimelineFilter(**fields)

    (name, value), (error,) = *fields.items(), refused.value.errors()
    assert error["loc"][0] == name
    assert isinstance(value, int) or str(value) not in str(refused.value) or len(str(value)) < 3


def test_unknown_type_is_answered_with_the_known_ones() -> None:
    """Somebody has mistyped it."""
    with pytest.raises(ValidationError, match=r"must be event types, of binding\.advanced, .*subject\.erased"):
        TimelineFilter(types=("operation.setled",))


def test_filter_takes_instants_of_any_zone() -> None:
    """As long as they have one."""
    since = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert TimelineFilter(since=since).since == datetime(2026, 1, 1, tzinfo=UTC)
