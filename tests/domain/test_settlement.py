"""Settlement: how a run ended, with its answer and the binding's new leaf in one append, under the current fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example
from hypothesis import given as for_all
from hypothesis import strategies as st

from counterfoil.domain.decision import Steps
from counterfoil.domain.lock import fence_text
from counterfoil.domain.operation import OperationLateRefused, OperationSettled, Outcome, ReplyKind, ReplyStaged
from counterfoil.domain.route import BindingAdvanced
from counterfoil.domain.turn import MARKERS, TRUNCATED, Answer, cut, settle

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene

DONE = Answer("succeeded")
MARKER = len(TRUNCATED.encode())


def settling(scene: Scene, answer: Answer = DONE, fence: int | None = None) -> tuple[bool, Steps]:
    under = scene.fence if fence is None else fence
    return settle(scene.operation("a"), answer, under, scene.lease, scene.deadline, scene.context)


def settlement(scene: Scene, outcome: Outcome, *, replied: bool, code: str | None = None) -> OperationSettled:
    before = scene.operation("a")
    return OperationSettled(
        outcome=outcome,
        replied=replied,
        code=code,
        fence=fence_text(scene.fence),
        admitted_at=before.admitted_at,
        claimed_at=before.claimed_at,
    )


@pytest.mark.contract("RUN-04", "RPL-01")
def test_answer_reply_and_leaf_are_one_append(given: Given, names: Names) -> None:
    """No crash can come between them; the entry leaves the queue in the same."""
    scene = given().bound().admitted("a", "b").claimed("a")
    expected = settlement(scene, "succeeded", replied=True)
    decided = scene.when(lambda s: settling(s, Answer("succeeded", reply="hi", leaf="leaf-1")))
    scene = decided.then(
        expected,
        ReplyStaged(kind="final", text=names.committed("hi"), truncated=False),
        BindingAdvanced(leaf="leaf-1"),
    )

    assert decided.result[0]
    assert [(names.salt, b"hi")] == decided.payloads
    assert ("succeeded", "pending", 1) == (
        scene.operation("a").phase,
        scene.operation("a").reply,
        scene.operation("a").attempts,
    )
    assert scene.binding is not None
    assert "leaf-1" == scene.binding.leaf
    assert [names.op("b")] == scene.queued
    assert [2, 3, 3] == [step.causation for step in decided.steps]


@pytest.mark.contract("RUN-04")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer("succeeded"), None),
        (Answer("succeeded", reply=""), None),
        (Answer("succeeded", reply="hi"), "final"),
        (Answer("failed", "run_failed"), None),
        (Answer("failed", "run_failed", "sorry"), "notice"),
        (Answer("cancelled", "cancelled_at_shutdown"), None),
        (Answer("cancelled", "cancelled_at_shutdown", "later"), "notice"),
    ],
)
def test_every_outcome_is_settled_with_or_without_a_reply(
    given: Given, names: Names, answer: Answer, kind: ReplyKind | None
) -> None:
    """An empty text is no reply; the settlement says whether one follows. Only what succeeded has a final one."""
    scene = given().admitted("a").claimed("a")
    expected = settlement(scene, answer.outcome, replied=kind is not None, code=answer.code)
    staged = [] if kind is None else [ReplyStaged(kind=kind, text=names.committed(answer.reply or ""), truncated=False)]
    scene = scene.when(lambda s: settling(s, answer)).then(expected, *staged)

    assert ("none" if kind is None else "pending") == scene.operation("a").reply
    assert (kind or "final") == scene.operation("a").reply_kind


@pytest.mark.contract("RUN-05", "LCK-02", "LCK-05", "LCK-09", "RUN-13")
@pytest.mark.parametrize(
    "how",
    [
        "older fence",
        "fence of another position",
        "fence of an older epoch",
        "ttl",
        "another boot",
        "opening ended",
        "released",
        "revoked",
        "granted anew",
        "taken by another",
        "another opening",
        "execution unknown",
        "settled already",
        "never claimed",
        "no deadline",
    ],
)
def test_a_result_without_the_current_fence_is_refused_and_recorded(given: Given, names: Names, how: str) -> None:
    """Nothing is staged and no leaf moves; the operation keeps the state that it had."""
    scene = given().bound().admitted("a")
    if how != "never claimed":
        scene.granted().granted().claimed("a") if how == "older fence" else scene.claimed("a")
    fence = None
    match how:
        case "older fence":
            fence = (scene.fence >> 64 << 64) + 3
        case "fence of another position":
            fence = scene.fence + 1
        case "fence of an older epoch":
            fence = scene.fence - 2**64
        case "ttl":
            scene.later(30_000_000)
        case "another boot":
            scene.rebooted()
        case "opening ended":
            scene.live.clear()
        case "released" | "revoked":
            getattr(scene, how)()
        case "granted anew":
            fence = scene.fence
            scene.granted()
        case "taken by another":
            fence = scene.fence
            scene.alive(2).granted(opening=2)
        case "another opening":
            scene.alive(1).seen_by(2)
        case "execution unknown":
            scene.unknown("a")
        case "settled already":
            scene.settled("a")
        case "never claimed":
            scene.granted()
        case "no deadline":
            scene.deadlines.clear()
    before = scene.operation("a")
    shown = fence_text(scene.fence if fence is None else fence)
    decided = scene.when(lambda s: settling(s, Answer("succeeded", reply="late", leaf="leaf-1"), fence))
    scene = decided.then(OperationLateRefused(outcome="succeeded", fence=shown))

    assert not decided.result[0]
    assert [] == decided.payloads
    assert (before.phase, before.reply, before.version + 1) == (
        scene.operation("a").phase,
        scene.operation("a").reply,
        scene.operation("a").version,
    )
    assert scene.binding is not None
    assert scene.binding.leaf is None


@pytest.mark.contract("LCK-05")
def test_the_last_moment_of_a_lease_settles(given: Given) -> None:
    """Ended means now >= deadline, so a nanosecond before it is in time."""
    scene = given().admitted("a").claimed("a").later(30_000_000)
    scene.boot_now -= 1

    assert settling(scene)[0]


def test_an_operation_claimed_under_an_older_grant_is_not_settled_under_a_newer(given: Given, names: Names) -> None:
    """The lease was lost and taken again by the same opening; the run that lost it stays lost."""
    scene = given().admitted("a").claimed("a").granted()

    assert not settling(scene, fence=scene.fence)[0]


@pytest.mark.contract("RPL-04")
def test_a_reply_over_the_limit_is_cut_and_the_cut_is_recorded(given: Given, names: Names) -> None:
    """The commitment is over what will be sent."""
    scene = given().within(max_response_bytes=20).admitted("a").claimed("a")
    expected = settlement(scene, "succeeded", replied=True)
    decided = scene.when(lambda s: settling(s, Answer("succeeded", reply="x" * 21)))
    sent = "x" * 8 + "\n[truncated]"
    decided.then(expected, ReplyStaged(kind="final", text=names.committed(sent), truncated=True))

    assert [sent.encode()] == [payload.body for payload in decided.payloads]


@pytest.mark.contract("RPL-04")
@for_all(st.text(st.characters()), st.integers(1, 64))
@example("é" * 7, 13)
@example("😀" * 4, 15)
@example("\ud800" * 5, 14)
@example("😀", 1)
@example("x" * 20, MARKER)
@example("x" * 20, MARKER - 1)
def test_a_cut_never_splits_a_code_point_and_never_exceeds_the_limit(text: str, most: int) -> None:
    """What fits is left alone; what does not keeps the longest beginning that leaves room for a marker, and has one always."""
    whole = text.encode("utf-8", "surrogatepass")
    body, was_cut = cut(text, most)
    kept = body.decode("utf-8", "surrogatepass")

    assert len(body) <= most
    assert was_cut is (len(whole) > most)
    if not was_cut:
        assert whole == body
        return
    marker = next(each for each in MARKERS if kept.endswith(each))
    beginning = kept.removesuffix(marker)
    assert text.startswith(beginning)
    after = text[len(beginning)].encode("utf-8", "surrogatepass")
    assert len(body) + len(after) > most


@pytest.mark.contract("RPL-04")
@pytest.mark.parametrize(
    ("text", "most", "sent"),
    [
        ("x" * 20, 13, "x\n[truncated]"),
        ("x" * 20, 12, "x" * 9 + "…"),
        ("é" * 20, 13, "é" * 5 + "…"),
        ("x" * 20, 4, "x…"),
        ("x" * 20, 3, "xx~"),
        ("x" * 20, 2, "x~"),
        ("x" * 20, 1, "~"),
        ("😀", 3, "…"),
        ("😀", 2, "~"),
    ],
)
def test_a_small_limit_has_a_shorter_marker(text: str, most: int, sent: str) -> None:
    """And at the smallest nothing else is sent, for an empty reply would say nothing was cut."""
    assert (sent.encode(), True) == cut(text, most)
