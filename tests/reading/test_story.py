"""The story of a message: why was it answered, not answered, or answered twice, and what is still open?"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.turn import Claimed, GiveUp, SettleUnclaimed
from counterfoil.projections.story import Story

from .conftest import Told

UNKNOWN = Delivery("delivery_unknown", "timeout")
FAILED = Delivery("delivery_failed", "chat_blocked")


def alive(_opening: int) -> bool:
    return True


def ended(_opening: int) -> bool:
    return False


def lines(story: Story) -> str:
    """A story as a person may see it."""
    steps = [f"{step.since_in_words:>12}  {step.sentence}" for step in story.steps]
    state = (
        f"{story.state}, reply {story.reply_state}, version {story.version}, {story.attempts} sendings, {story.repeats} repeats"
    )
    return "\n".join([story.verdict, f"({state})", *steps, *(f"! {sentence}" for sentence in story.open)])


def waiting(told: Told) -> None:
    told.admit("7")


def executing(told: Told) -> None:
    told.claim("7")


def executing_under_an_older_grant(told: Told) -> None:
    first = told.claim("6")
    second = told.admit("7")
    told.settle(first, Answer("succeeded", reply=""))
    told.take(second)


def pending(told: Told) -> None:
    told.settle(told.claim("7"))


def answered(told: Told) -> None:
    told.turn("7")


def answered_and_repeated(told: Told) -> None:
    told.turn("7")
    for _ in range(3):
        told.admit("7")


def delivery_unknown(told: Told) -> None:
    told.mark(told.settle(told.claim("7")), UNKNOWN)


def delivery_failed(told: Told) -> None:
    told.mark(told.settle(told.claim("7")), FAILED)


def nothing_to_say(told: Told) -> None:
    told.settle(told.claim("7"), Answer("succeeded", reply=""))


def failed_with_a_notice(told: Told) -> None:
    told.mark(told.settle(told.claim("7"), Answer("failed", "agent_error", "Sorry.")))


def failed_without_a_word(told: Told) -> None:
    told.settle(told.claim("7"), Answer("failed", "agent_error"))


def cancelled_in_the_queue(told: Told) -> None:
    operation_id = told.admit("7").admission.operation_id
    told.run(SettleUnclaimed(str(operation_id), Answer("cancelled", "stopped")))


def gave_up(told: Told) -> None:
    told.run(GiveUp(operation_of(told.claim("7")), "stop_deadline"))


def abandoned(told: Told) -> None:
    told.reconcile(str(told.admit("7").admission.operation_id), note="asked by phone")


def filed_as_unknown_and_settled_late(told: Told) -> None:
    claimed = told.claim("7")
    told.reconcile(operation_of(claimed), force=True)
    told.settle(claimed)


def sent_again(told: Told, first: Delivery, second: Delivery | None) -> None:
    claimed = told.mark(told.settle(told.claim("7")), first)
    told.reconcile(operation_of(claimed))
    if second is not None:
        told.mark(claimed, second, 2)


def maybe_answered_twice(told: Told) -> None:
    sent_again(told, UNKNOWN, Delivery("delivered"))


def failed_then_answered(told: Told) -> None:
    sent_again(told, FAILED, Delivery("delivered"))


def failed_twice(told: Told) -> None:
    sent_again(told, FAILED, FAILED)


def resend_without_an_end(told: Told) -> None:
    sent_again(told, UNKNOWN, None)


def answered_twice(told: Told) -> None:
    claimed = told.settle(told.claim("7"))
    told.reconcile(operation_of(claimed))
    told.mark(claimed, Delivery("delivered"), 2)
    told.mark(claimed, Delivery("delivered"), 1)


def operation_of(claimed: Claimed) -> str:
    assert claimed.operation is not None
    return claimed.operation.operation_id


HISTORIES = (
    waiting,
    executing,
    executing_under_an_older_grant,
    pending,
    answered,
    answered_and_repeated,
    delivery_unknown,
    delivery_failed,
    nothing_to_say,
    failed_with_a_notice,
    failed_without_a_word,
    cancelled_in_the_queue,
    gave_up,
    abandoned,
    filed_as_unknown_and_settled_late,
    maybe_answered_twice,
    failed_then_answered,
    failed_twice,
    resend_without_an_end,
    answered_twice,
)


@pytest.mark.contract("AUD-02")
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_story_tells_each_step_and_what_is_open(told: Told, history: Callable[[Told], None], snapshot: SnapshotAssertion) -> None:
    """Who took it, under which fence, how long it took, and whether it was answered."""
    history(told)

    (story,) = told.explain("7", is_live=ended)

    assert snapshot == lines(story)
    assert not story.open or story.state in ("accepted", "executing") or story.reply_state not in ("none", "delivered")


@pytest.mark.parametrize("is_live", [alive, None], ids=["alive", "nobody_can_tell"])
@pytest.mark.parametrize("history", [waiting, executing, pending, delivery_unknown], ids=lambda history: history.__name__)
def test_what_is_open_depends_on_whether_its_holder_lives(
    told: Told, history: Callable[[Told], None], is_live: Callable[[int], bool] | None, snapshot: SnapshotAssertion
) -> None:
    """A living holder may still end its turn or its sending; where nobody can tell, the story says what holds for both."""
    history(told)

    (story,) = told.explain("7", is_live=is_live)

    assert snapshot == "\n".join(story.open)


def test_what_is_open_tells_for_how_long(told: Told) -> None:
    """With a clock at hand."""
    told.admit("7")
    told.clock.advance("1h30m1s")

    (story,) = told.explain("7", now=told.clock.now())

    assert story.open[0] == "Nothing has happened to it for 1 h 30 m."


def test_nothing_is_open_once_all_is_resolved(told: Told) -> None:
    """Whatever the clock says."""
    told.turn("7")

    assert told.explain("7", now=told.clock.now(), is_live=ended)[0].open == ()


def test_story_of_a_message_that_waited_too_long(told: Told, journal_url: str, snapshot: SnapshotAssertion) -> None:
    """It is stepped over when its opening has ended, and waits again when it is delivered again."""
    told.open(journal_url)
    told.admit("7")
    told.core.close()
    told.clock.advance("16m")
    told.open(journal_url)
    told.claim("8")
    (before,) = told.explain("7", is_live=ended)
    told.admit("7")
    (after,) = told.explain("7", is_live=alive)

    assert snapshot == f"{lines(before)}\n\n{lines(after)}"


def test_later_occurrence_is_a_story_of_its_own(told: Told) -> None:
    """The same platform event, delivered again after more than `dedup_days`."""
    told.turn("7")
    told.clock.advance("31d")
    told.turn("7")

    first, second = told.explain("7")

    assert ((0, "7"), (1, "7")) == ((first.occurrence, first.event_id), (second.occurrence, second.event_id))
    assert "once more" in second.steps[0].sentence
    assert [second] == told.explain(second.operation_id)


def test_claim_has_the_fence_of_its_grant(told: Told) -> None:
    """Also when the grant was given for an earlier message, and then on the settlement too."""
    first = told.claim("6")
    admitted = told.admit("7")
    told.settle(first, Answer("succeeded", reply=""))
    second = told.settle(told.take(admitted))

    (story,) = told.explain("7")
    fences = {step.type: step.fence for step in story.steps if step.fence is not None}

    assert fences == {"operation.claimed": f"{first.fence:040}", "operation.settled": f"{second.fence:040}"}


def test_story_has_text_only_when_asked(told: Told) -> None:
    """The message until its end, the reply after it, notes of operators."""
    told.claim("1", text="first secret \udfff")
    told.mark(told.settle(told.claim("2", actor="bob", text="second secret")))
    told.reconcile(str(told.admit("3", actor="eve").admission.operation_id), note="a note")

    def texts(event_id: str) -> list[str]:
        (story,) = told.explain(event_id, with_text=True)
        return [step.text for step in story.steps if step.text is not None]

    assert [["first secret \udfff"], ["hi"], ["a note"]] == [texts("1"), texts("2"), texts("3")]
    assert not [step.text for each in "123" for step in told.explain(each)[0].steps if step.text is not None]


@pytest.mark.contract("DIA-01")
def test_repr_of_a_story_shows_no_text_and_no_id(told: Told) -> None:
    """Nor that of its steps."""
    told.claim("event-7", actor="ann@example", conversation="chat-100", thread="topic-9", text="secret")
    (story,) = told.explain("event-7", with_text=True)

    shown = repr(story) + repr(story.steps)

    assert story.operation_id in shown
    assert not [each for each in ("event-7", "ann@example", "chat-100", "topic-9", "secret") if each in shown]


def test_story_is_plain_json(told: Told) -> None:
    """With everything that a person reads."""
    told.turn("7")
    (story,) = told.explain("7")

    plain = json.loads(json.dumps(story.to_json()))

    assert (story.verdict, list(story.open), story.event_id) == (plain["verdict"], plain["open"], plain["event_id"])
    assert [step.sentence for step in story.steps] == [step["sentence"] for step in plain["steps"]]
    assert plain["steps"][0]["at"] == "2026-01-01T00:00:01.000002+00:00"
