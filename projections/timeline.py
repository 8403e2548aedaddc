"""The timeline: what happened, event by event, with the ids that people know, and one plain sentence for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from counterfoil.domain import erasure, lock, opening, operation, route
from counterfoil.domain.duration import in_words
from counterfoil.domain.event import REGISTRY, ActorKind, Recorded
from counterfoil.domain.identity import Instant, instant_of, instant_us
from counterfoil.domain.ids import OptionalId
from counterfoil.domain.model import Model, kept_as

TimelineOutcome: TypeAlias = Literal[
    "succeeded",
    "failed",
    "cancelled",
    "late_refused",
    "abandoned",
    "execution_unknown",
    "delivered",
    "delivery_failed",
    "delivery_unknown",
]
"""What an event says of how a turn or a sending ended; the words of the statistics."""

SETTLED: Final = frozenset({"succeeded", "failed", "cancelled"})
"""The outcomes that stand inside `operation.settled`."""

TYPE_OF_OUTCOME: Final[Mapping[str, str]] = {
    **dict.fromkeys(SETTLED, operation.OperationSettled.TYPE),
    "late_refused": operation.OperationLateRefused.TYPE,
    "abandoned": operation.OperationAbandoned.TYPE,
    "execution_unknown": operation.OperationExecutionUnknown.TYPE,
    "delivered": operation.ReplyDelivered.TYPE,
    "delivery_failed": operation.ReplyDeliveryFailed.TYPE,
    "delivery_unknown": operation.ReplyDeliveryUnknown.TYPE,
}


def _known(types: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if types is not None and not REGISTRY.types().keys() >= set(types):
        raise ValueError(f"must be event types, of {', '.join(REGISTRY.types())}")
    return types


Position: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]


class TimelineFilter(Model):
    """
    Say which events a timeline shows; what is left out, or None, filters nothing.

    Ids are given in the clear, as the host knows them. An id that was erased finds nothing.
    """

    SHOWN: ClassVar[tuple[str, ...]] = ("actor_kind", "types", "outcome", "since", "until", "after", "before")

    connection: OptionalId = None
    conversation: OptionalId = None
    thread: OptionalId = None
    actor: OptionalId = None
    """The person or operator who did it."""
    actor_kind: ActorKind | None = None
    operation_id: OptionalId = None
    """All events on behalf of an operation, those of its locks and its binding included."""
    correlation: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    """As entries show it: every occurrence of one platform event."""
    types: Annotated[Sequence[str], kept_as(tuple[str, ...]), Field(min_length=1), AfterValidator(_known)] | None = None
    outcome: TimelineOutcome | None = None
    since: Instant | None = None
    """Recorded at this instant or later."""
    until: Instant | None = None
    """Recorded before this instant."""
    after: Position | None = None
    """At a larger position."""
    before: Position | None = None
    """At a smaller position."""


class Names(NamedTuple):
    """What the journal can still tell of the pseudonyms and positions in a stretch of events."""

    subjects: Mapping[bytes, str]
    operations: Mapping[int, str]
    """Position of an admission -> operation id."""
    external: Mapping[int, str]
    """Position of an admission or a delivery -> the platform's id of the event or message."""
    texts: Mapping[int, str]
    """Position of an event -> the text that it commits to, where text was asked for and is kept."""

    def subject(self, pseudonym: bytes | None) -> str | None:
        """Return a person's id in the clear; one that was erased as the first 8 hex digits of its pseudonym, after a `~`."""
        if pseudonym is None:
            return None
        return self.subjects.get(pseudonym) or erased(pseudonym)


def erased(pseudonym: bytes) -> str:
    """Return what stands for an id that was erased."""
    return f"~{pseudonym.hex()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """
    One event as people read it. Ids of people and platforms are in the clear where the journal still knows them.

    `repr` shows none of them, and no text.
    """

    position: int
    recorded_at: datetime
    """In UTC, with microseconds."""
    type: str
    version: int
    """Place in the stream of its originator; for an event of an operation what `reconcile` expects."""
    originator_id: str
    opening_id: int | None
    actor_kind: ActorKind | None
    operation_id: str | None
    causation: int | None
    """Version, in the stream of the operation, of the event that led to this one."""
    connection: str | None = field(repr=False)
    conversation: str | None = field(repr=False)
    thread: str | None = field(repr=False)
    actor: str | None = field(repr=False)
    event_id: str | None = field(repr=False)
    """The platform's id of the event that began the operation."""
    message_id: str | None = field(repr=False)
    """The platform's id of the message that was sent, on `reply.delivered` where the host told it."""
    correlation: str | None = field(repr=False)
    detail: Mapping[str, Any] = field(repr=False, hash=False)
    """The event's own state without commitments; instants and durations are integer microseconds."""
    text: str | None = field(default=None, repr=False)
    """None unless it was asked for and is kept. It may hold lone surrogates."""
    foreign: bool = field(default=False, repr=False)
    """Appended through the recorder, or of a type that this release does not know: `type` is only a name then."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, in the order of the columns of a table."""
        return {
            "position": self.position,
            "recorded_at": self.recorded_at.isoformat(timespec="microseconds"),
            "type": self.type,
            "version": self.version,
            "originator_id": self.originator_id,
            "opening_id": self.opening_id,
            "actor_kind": self.actor_kind,
            "connection": self.connection,
            "conversation": self.conversation,
            "thread": self.thread,
            "actor": self.actor,
            "operation_id": self.operation_id,
            "event_id": self.event_id,
            "message_id": self.message_id,
            "correlation": self.correlation,
            "causation": self.causation,
            "detail": dict(self.detail),
            "text": self.text,
        }


def entry_of(recorded: Recorded, event_type: str, names: Names) -> TimelineEntry:
    """Return the entry of an event; its type is given because one that is not ours has no class."""
    header, event = recorded.header, recorded.event
    admission = header.operation
    if admission is None and recorded.originator_id.startswith(operation.OPERATION_PREFIX):
        admission = recorded.position
    event_id = None
    if admission is not None:
        event_id = names.external.get(admission)
        if event_id is None and header.correlation is not None:
            event_id = erased(header.correlation)
    return TimelineEntry(
        position=recorded.position,
        recorded_at=instant_of(recorded.recorded_at),
        type=event_type,
        version=recorded.originator_version,
        originator_id=recorded.originator_id,
        opening_id=header.opening_id,
        actor_kind=header.actor_kind,
        operation_id=None if admission is None else names.operations.get(admission),
        causation=header.causation,
        connection=header.connection,
        conversation=names.subject(header.conversation),
        thread=names.subject(header.thread),
        actor=names.subject(header.actor),
        event_id=event_id,
        message_id=names.external.get(recorded.position) if isinstance(event, operation.ReplyDelivered) else None,
        correlation=None if header.correlation is None else header.correlation.hex(),
        detail={} if event is None else _open(event.model_dump(mode="json", exclude_none=True)),
        text=names.texts.get(recorded.position),
        foreign=event is None,
    )


def _open(state: dict[str, Any]) -> dict[str, Any]:
    """Leave the commitments out; the length of what they commit to stays."""
    return {
        name: {"length": value["length"]} if isinstance(value, dict) and "commitment" in value else value
        for name, value in state.items()
    }


# Sentences.


def describe(entry: TimelineEntry, fence: str | None = None) -> str:
    """Return one plain sentence for people: what happened and who did it; `fence` is told where a grant or a claim is."""
    sentence = _foreign(entry) if entry.foreign else _SENTENCES[entry.type](entry)
    return f"{sentence}, under fence {fence}." if fence is not None else f"{sentence}."


def shown(value: str) -> str:
    """Return an id so that it stays inside its sentence, whatever characters it is made of."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in value)


def _foreign(entry: TimelineEntry) -> str:
    return f"An event that counterfoil does not know was appended to {shown(entry.originator_id)}"


def _opening(entry: TimelineEntry) -> str:
    return f"Opening {entry.opening_id}"


def _who(entry: TimelineEntry) -> str:
    match entry.actor_kind:
        case "person":
            return "Somebody" if entry.actor is None else f"Person {shown(entry.actor)}"
        case "operator":
            return "An operator" if entry.actor is None else f"Operator {shown(entry.actor)}"
        case "agent":
            return "The agent"
    return _opening(entry)


def _words(class_word: str) -> str:
    return class_word.replace("_", " ")


def _since(entry: TimelineEntry, name: str) -> str:
    return in_words(max(0, instant_us(entry.recorded_at) - int(entry.detail[name])))


def _where(entry: TimelineEntry) -> str:
    thread = "" if entry.thread is None else f", thread {shown(entry.thread)},"
    return f"in conversation {shown(entry.conversation or '?')}{thread} on {shown(entry.connection or '?')}"


def _opening_started(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} of the journal began in process {entry.detail['process']}, with release {entry.detail['release']}"


def _epoch_raised(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} raised the epoch to {entry.detail['epoch']}, so that its fences are above all given before"


def _opening_ended(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} of the journal ended"


def _operator_acted(entry: TimelineEntry) -> str:
    return f"{_who(entry)} acted without changing an operation: {_words(entry.detail['action'])}"


def _admitted(entry: TimelineEntry) -> str:
    again = ", once more because the first time was too long ago to be known as a duplicate"
    return (
        f"{_who(entry)} wrote a message of {entry.detail['text']['length']} bytes {_where(entry)}; it was admitted for the agent "
        f"'{shown(entry.detail['alias'])}'{again if entry.detail['occurrence'] else ''}"
    )


def _repeated(entry: TimelineEntry) -> str:
    same = {
        True: "with the same text",
        False: "with another text, which was ignored",
        None: "when its first text was gone already",
    }
    return f"The message was delivered again, {same[entry.detail.get('same_text')]}, and acknowledged as a duplicate"


def _claimed(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} claimed the message, {_since(entry, 'admitted_at')} after its admission, and began its turn"


def _settled(entry: TimelineEntry) -> str:
    detail = entry.detail
    ended = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}[detail["outcome"]]
    code = f" ({_words(detail['code'])})" if "code" in detail else ""
    if "claimed_at" in detail:
        turn = f"The turn {ended}{code}, {_since(entry, 'claimed_at')} after its claim"
    else:
        turn = f"The message {ended}{code} before any turn of it began"
    what = "a reply" if detail["outcome"] == "succeeded" else "a notice"
    return f"{turn}, with {what if detail['replied'] else 'nothing'} to send"


def _late_refused(entry: TimelineEntry) -> str:
    return (
        f"A late result of {_opening(entry).lower()} ({_words(entry.detail['outcome'])}) was refused, because its fence "
        f"{entry.detail['fence']} is no longer the current one"
    )


def _abandoned(entry: TimelineEntry) -> str:
    acknowledged = ", and acknowledged the risk of a duplicate" if entry.detail["acknowledged"] else ""
    return f"{_who(entry)} gave the message up before its turn began ({_words(entry.detail['reason'])}){acknowledged}"


def _execution_unknown(entry: TimelineEntry) -> str:
    detail = entry.detail
    acknowledged = ", and acknowledged that it may have had effects" if detail["acknowledged"] else ""
    forced = " by force" if detail["forced"] else ""
    return f"{_who(entry)} filed{forced} that nobody can tell what the turn did ({_words(detail['reason'])}){acknowledged}"


def _stepped_over(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} stepped over the message: it had waited too long for an opening that has ended, and left the queue"


def _put_back(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} put the message back at the end of its queue, because it was delivered again"


def _staged(entry: TimelineEntry) -> str:
    what = {"final": "The reply", "notice": "A notice"}[entry.detail["kind"]]
    cut = " and was cut to the limit" if entry.detail["truncated"] else ""
    return f"{what} of {entry.detail['text']['length']} bytes was staged{cut}; sending 1 follows"


def _resend_claimed(entry: TimelineEntry) -> str:
    risk = ", and acknowledged that it may arrive twice" if entry.detail["acknowledged"] else ""
    return f"{_who(entry)} claimed sending {entry.detail['attempt']} of the reply ({_words(entry.detail['reason'])}){risk}"


def _delivered(entry: TimelineEntry) -> str:
    message = "" if entry.message_id is None else f" as message {shown(entry.message_id)}"
    after = _since(entry, "admitted_at")
    return f"Sending {entry.detail['attempt']} of the reply was delivered{message}, {after} after the admission"


def _delivery_failed(entry: TimelineEntry) -> str:
    return f"Sending {entry.detail['attempt']} of the reply failed ({_words(entry.detail['reason'])}): it did not arrive"


def _delivery_unknown(entry: TimelineEntry) -> str:
    return f"Nobody can tell whether sending {entry.detail['attempt']} of the reply arrived ({_words(entry.detail['reason'])})"


def _binding_opened(entry: TimelineEntry) -> str:
    detail = entry.detail
    return f"The route got its session with the agent '{shown(detail['alias'])}', generation {detail['generation']}"


def _binding_advanced(entry: TimelineEntry) -> str:
    return "The route's session with the agent moved on to a new leaf"


def _granted(entry: TimelineEntry) -> str:
    most = f", {in_words(entry.detail['max_hold'])} at most" if "max_hold" in entry.detail else ""
    lock_name, ttl = shown(entry.detail["lock"]), in_words(entry.detail["ttl"])
    return f"{_opening(entry)} was granted the lock {lock_name} for {ttl} from each renewal{most}"


def _released(entry: TimelineEntry) -> str:
    return f"{_opening(entry)} released the lock"


def _expired(entry: TimelineEntry) -> str:
    why = {
        "ttl": "it was not renewed in time",
        "opening_ended": "its holder had ended",
        "max_hold": "it was held for long enough",
    }
    return f"{_opening(entry)} found that the lock had run out, because {why[entry.detail['cause']]}"


def _revoked(entry: TimelineEntry) -> str:
    return f"{_who(entry)} took the lock away from its holder ({_words(entry.detail['reason'])})"


def _subject_erased(entry: TimelineEntry) -> str:
    what = {"conversation": "a conversation", "thread": "a thread", "actor": "a person", "principal": "a principal"}
    subject = erased(bytes.fromhex(entry.detail["subject"]))
    return f"{_who(entry)} erased the id of {what[entry.detail['kind']]} with its texts; it shows as {subject} from now on"


def _scope_key_erased(entry: TimelineEntry) -> str:
    return f"{_who(entry)} erased the key of the scope: nothing of its history can be linked to anybody any more"


_SENTENCES: Final[Mapping[str, Callable[[TimelineEntry], str]]] = {
    opening.OpeningStarted.TYPE: _opening_started,
    opening.OpeningEpochRaised.TYPE: _epoch_raised,
    opening.OpeningEnded.TYPE: _opening_ended,
    opening.OperatorActed.TYPE: _operator_acted,
    operation.OperationAdmitted.TYPE: _admitted,
    operation.OperationRepeated.TYPE: _repeated,
    operation.OperationClaimed.TYPE: _claimed,
    operation.OperationSettled.TYPE: _settled,
    operation.OperationLateRefused.TYPE: _late_refused,
    operation.OperationAbandoned.TYPE: _abandoned,
    operation.OperationExecutionUnknown.TYPE: _execution_unknown,
    operation.EntrySteppedOver.TYPE: _stepped_over,
    operation.EntryPutBack.TYPE: _put_back,
    operation.ReplyStaged.TYPE: _staged,
    operation.ReplyResendClaimed.TYPE: _resend_claimed,
    operation.ReplyDelivered.TYPE: _delivered,
    operation.ReplyDeliveryFailed.TYPE: _delivery_failed,
    operation.ReplyDeliveryUnknown.TYPE: _delivery_unknown,
    route.BindingOpened.TYPE: _binding_opened,
    route.BindingAdvanced.TYPE: _binding_advanced,
    lock.LockGranted.TYPE: _granted,
    lock.LockReleased.TYPE: _released,
    lock.LockExpired.TYPE: _expired,
    lock.LockRevoked.TYPE: _revoked,
    erasure.SubjectErased.TYPE: _subject_erased,
    erasure.ScopeKeyErased.TYPE: _scope_key_erased,
}
