"""The story of one message: each step, who took it, how long it took, and what is still open and can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from counterfoil.domain.duration import in_words, microseconds
from counterfoil.domain.event import Recorded
from counterfoil.domain.identity import instant_of
from counterfoil.domain.operation import (
    Operation,
    OperationAbandoned,
    OperationExecutionUnknown,
    OperationPhase,
    OperationSettled,
    ReplyDelivered,
    ReplyDeliveryFailed,
    ReplyDeliveryUnknown,
    ReplyPhase,
    ReplyResendClaimed,
    ReplyStaged,
    evolve,
)

from .timeline import Names, describe, entry_of

_AT_ONCE: Final = 1_000
"""Microseconds under which a step came with the one before: what one append holds is a microsecond apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStep:
    """One event on behalf of the operation; those of its lock and its binding count too."""

    position: int
    version: int
    type: str
    at: datetime
    since: timedelta | None
    """How long after the step before; None for the first."""
    fence: str | None
    """The fence that was granted, claimed under, or refused, as 40 digits."""
    sentence: str = field(repr=False)
    text: str | None = field(default=None, repr=False)
    """None unless it was asked for and is kept."""

    @property
    def since_in_words(self) -> str:
        """How long after the step before, as a person reads it; empty for the first."""
        if self.since is None:
            return ""
        since = microseconds(self.since, name="since")
        return "at once" if since < _AT_ONCE else in_words(since)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "position": self.position,
            "version": self.version,
            "type": self.type,
            "at": self.at.isoformat(timespec="microseconds"),
            "since_seconds": None if self.since is None else self.since.total_seconds(),
            "fence": self.fence,
            "sentence": self.sentence,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Why a message was answered, not answered, or answered twice. `repr` shows no id of a person or platform and no text."""

    operation_id: str
    version: int
    """What `reconcile` expects."""
    occurrence: int
    state: OperationPhase
    reply_state: ReplyPhase
    attempts: int
    repeats: int
    """How often the platform delivered the event again."""
    connection: str = field(repr=False)
    conversation: str | None = field(repr=False)
    thread: str | None = field(repr=False)
    actor: str | None = field(repr=False)
    event_id: str | None = field(repr=False)
    verdict: str = field(repr=False)
    """One sentence: whether the message was answered, and why not or why twice."""
    steps: tuple[StoryStep, ...] = field(repr=False)
    open: tuple[str, ...] = field(repr=False)
    """Sentences: what is not known or not done yet, and what an operator can do about it. Empty when all is resolved."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "operation_id": self.operation_id,
            "version": self.version,
            "occurrence": self.occurrence,
            "state": self.state,
            "reply_state": self.reply_state,
            "attempts": self.attempts,
            "repeats": self.repeats,
            "connection": self.connection,
            "conversation": self.conversation,
            "thread": self.thread,
            "actor": self.actor,
            "event_id": self.event_id,
            "verdict": self.verdict,
            "steps": [step.to_json() for step in self.steps],
            "open": list(self.open),
        }


def story_of(
    events: Sequence[Recorded],
    names: Names,
    *,
    fences: Mapping[int, str],
    repeats: int,
    now: int | None = None,
    is_live: Callable[[int], bool] | None = None,
) -> Story:
    """
    Tell the story of one operation from all events on its behalf, in order of position; the first is its admission.

    `fences` has the fence of each grant and each claim by its position. `repeats` counts the deliveries after the first repeat,
    which is an event. `now` tells for how long nothing has happened; `is_live` whether an opening lives, and without it the story
    says what holds in either case.
    """
    state: Operation | None = None
    steps: list[StoryStep] = []
    before: int | None = None
    for recorded in events:
        if recorded.originator_id == events[0].originator_id:
            state = evolve(state, recorded)
        assert recorded.event is not None
        entry = entry_of(recorded, recorded.event.TYPE, names)
        fence = fences.get(recorded.position)
        steps.append(
            StoryStep(
                position=recorded.position,
                version=recorded.originator_version,
                type=entry.type,
                at=entry.recorded_at,
                since=None if before is None else instant_of(recorded.recorded_at) - instant_of(before),
                fence=fence or entry.detail.get("fence"),
                sentence=describe(entry, fence),
                text=entry.text,
            )
        )
        before = recorded.recorded_at
    assert state is not None
    first = entry_of(events[0], "", names)
    return Story(
        operation_id=state.operation_id,
        version=state.version,
        occurrence=state.occurrence,
        state=state.phase,
        reply_state=state.reply,
        attempts=state.attempts,
        repeats=repeats + int(state.repeated),
        connection=state.connection,
        conversation=first.conversation,
        thread=first.thread,
        actor=first.actor,
        event_id=first.event_id,
        verdict=_verdict(state, events),
        steps=tuple(steps),
        open=tuple(_open(state, events, now, is_live)),
    )


# The verdict.


class _Sendings(NamedTuple):
    """How many sendings of a reply arrived, failed, and may have arrived."""

    arrived: int
    failed: int
    unknown: int


def _sendings(events: Sequence[Recorded]) -> _Sendings:
    """Count sendings by what is known of them last; one of which nothing was recorded may have arrived."""
    outcomes: dict[int, str] = {}
    for recorded in events:
        match recorded.event:
            case ReplyStaged():
                outcomes[1] = "unknown"
            case ReplyResendClaimed(attempt=attempt):
                outcomes[attempt] = "unknown"
            case ReplyDelivered(attempt=attempt):
                outcomes[attempt] = "arrived"
            case ReplyDeliveryFailed(attempt=attempt) if outcomes.get(attempt) != "arrived":
                outcomes[attempt] = "failed"
            case ReplyDeliveryUnknown(attempt=attempt) if outcomes.get(attempt) != "arrived":
                outcomes[attempt] = "unknown"
    values = list(outcomes.values())
    return _Sendings(values.count("arrived"), values.count("failed"), values.count("unknown"))


def _how_it_ended(events: Sequence[Recorded]) -> str:
    for recorded in events:
        match recorded.event:
            case OperationSettled(outcome=outcome, code=code):
                words = {"succeeded": "its turn succeeded", "failed": "its turn failed", "cancelled": "it was cancelled"}[outcome]
                return words if code is None else f"{words} ({code.replace('_', ' ')})"
            case OperationAbandoned(reason=reason) | OperationExecutionUnknown(reason=reason):
                return reason.replace("_", " ")
    return ""


def _verdict(state: Operation, events: Sequence[Recorded]) -> str:
    ended = _how_it_ended(events)
    match state.phase:
        case "accepted" if state.stepped_over:
            return "Not answered: it waited too long for an opening that had ended, and nobody has taken it up since."
        case "accepted":
            return "Not answered yet: it waits for its turn."
        case "executing":
            return "Not answered yet: its turn has begun, and nothing says how it ended."
        case "abandoned":
            return f"Not answered: an operator gave it up before its turn began ({ended})."
        case "execution_unknown":
            return f"Not answered: nobody can tell what its turn did ({ended}), and it is never run again."
    if state.reply == "none":
        silence = "with an empty reply" if state.phase == "succeeded" else "and left nothing to send"
        return f"Not answered: {ended}, {silence}."
    arrived, failed, unknown = _sendings(events)
    if not arrived and not unknown:
        which = "its one sending" if failed == 1 else f"each of {failed} sendings"
        return f"Not answered: {ended}, and {which} of the reply failed."
    notice = f", with a notice: {ended}" if state.reply_kind == "notice" else ""
    if not unknown:
        return f"Answered {_times(arrived)}{notice}."
    which = "a sending" if unknown == 1 else f"{unknown} sendings"
    doubt = f"nobody can tell whether {which} of the reply arrived{' too' if arrived else ''}"
    if not arrived:
        return f"Perhaps answered{notice}{'; ' if notice else ': '}{doubt}."
    return f"Answered {_times(arrived)}, perhaps {_times(arrived + unknown)}{notice}{'; ' if notice else ': '}{doubt}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


# What is open.


def _open(state: Operation, events: Sequence[Recorded], now: int | None, is_live: Callable[[int], bool] | None) -> Iterator[str]:
    if state.resolved:
        return
    if now is not None:
        yield f"Nothing has happened to it for {in_words(max(0, now - events[-1].recorded_at))}."

    def lives(opening_id: int | None) -> bool | None:
        return None if is_live is None or opening_id is None else is_live(opening_id)

    at = f"Reconcile it at version {state.version}"
    if state.phase == "accepted":
        yield from _open_in_queue(state, lives(state.admitted_by))
        yield f"{at} to give it up: this records abandoned and needs no acknowledgment."
    elif state.phase == "executing":
        holder = state.claimed_by
        alive = lives(holder)
        if alive:
            yield f"Opening {holder}, which claimed it, is alive: its turn may still end by itself."
            yield (
                f"{at} with acknowledge_duplicate_risk and force to end it now: this fences opening {holder} out and records "
                "execution_unknown."
            )
            return
        gone = "has ended" if alive is False else "may have ended"
        yield f"Opening {holder}, which claimed it, {gone}: nobody can tell what the turn did, and it is never run again."
        yield f"{at} with acknowledge_duplicate_risk: this records execution_unknown, and calls no model." + (
            "" if alive is False else f" While opening {holder} is alive it needs force too, which fences that opening out."
        )
    else:
        yield from _open_reply(state, events, lives, at)


def _open_in_queue(state: Operation, alive: bool | None) -> Iterator[str]:
    if state.stepped_over:
        yield "It has left its queue; when the platform delivers it again, it is queued again and runs."
    elif alive:
        yield f"It waits in the queue of its route; opening {state.admitted_by}, which put it there, is alive."
    else:
        gone = "has ended" if alive is False else "may have ended"
        yield (
            f"It waits in the queue of its route; opening {state.admitted_by}, which put it there, {gone}. "
            "A resume starts it, and so does a repeat of it or a new message on its route."
        )


def _open_reply(
    state: Operation, events: Sequence[Recorded], lives: Callable[[int | None], bool | None], at: str
) -> Iterator[str]:
    if state.reply == "delivery_failed":
        yield f"Sending {state.attempts} of its reply failed, and nothing is sent again by itself."
        yield f"{at} to send it again; this needs no acknowledgment."
        return
    if state.reply == "pending":
        sender = next(
            recorded.header.opening_id
            for recorded in reversed(events)
            if isinstance(recorded.event, ReplyStaged | ReplyResendClaimed)
        )
        alive = {True: "is alive and may be sending it now", False: "has ended", None: "may have ended"}[lives(sender)]
        yield f"Nothing is recorded of sending {state.attempts} of its reply; opening {sender}, which was to send it, {alive}."
    else:
        yield f"Nobody can tell whether sending {state.attempts} of its reply arrived, and nothing is sent again by itself."
    yield f"{at} with acknowledge_duplicate_risk to send it again: the reply may then arrive twice."
