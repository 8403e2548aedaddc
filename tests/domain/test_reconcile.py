"""Reconcile: an operator files what cannot be proven, as one more event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.decision import Steps
from counterfoil.domain.event import Event
from counterfoil.domain.lock import LockRevoked, fence_text
from counterfoil.domain.operation import (
    OperationAbandoned,
    OperationExecutionUnknown,
    OperationLateRefused,
    ReplyPhase,
    ReplyResendClaimed,
)
from counterfoil.domain.reconcile import Reconcile, Reconciliation, Resend, reconcile
from counterfoil.domain.turn import Answer, settle

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene

PHASES = ["accepted", "stepped_over", "executing", "executing, holder alive", "succeeded", "failed", "cancelled"]
ENDS = ["abandoned", "execution_unknown"]
REPLIES: list[ReplyPhase] = ["none", "pending", "delivered", "delivery_failed", "delivery_unknown"]
STATES = [(phase, "none") for phase in PHASES + ENDS] + [
    (outcome, reply) for outcome in PHASES[4:] for reply in REPLIES if reply != "none"
]


def told(given: Given, phase: str, reply: ReplyPhase) -> Scene:
    """A history that leads to this state; its worker is opening 2."""
    scene = given().admitted("a", opening=2)
    match phase:
        case "accepted":
            pass
        case "stepped_over":
            scene.stepped_over("a")
        case "executing":
            scene.claimed("a", opening=2)
        case "executing, holder alive":
            scene.claimed("a", opening=2).alive(2)
        case "abandoned":
            scene.abandoned("a")
        case "execution_unknown":
            scene.claimed("a", opening=2).unknown("a")
        case "failed" | "cancelled" if reply == "none":
            scene.claimed("a", opening=2).settled("a", phase)
        case _:
            scene.claimed("a", opening=2).replied("a", reply)
    return scene


def filing(
    scene: Scene,
    names: Names,
    *,
    acknowledged: bool = False,
    force: bool = False,
    version: int | None = None,
    note: str | None = None,
) -> tuple[Reconciliation, Steps] | Resend:
    operation = scene.operation("a")
    expected = operation.version if version is None else version
    command = Reconcile(expected, acknowledged, force, "operator_decision", note)
    return reconcile(operation, command, names.lease, scene.lease, scene.deadline, names.operator, scene.context)


def expectation(phase: str, reply: ReplyPhase, acknowledged: bool, force: bool) -> tuple[str, str | None, list[type[Event]]]:
    """The table: status, outcome or detail, and the events."""
    if phase in ("accepted", "stepped_over"):
        return "resolved", "abandoned", [OperationAbandoned]
    if phase.startswith("executing"):
        if not acknowledged:
            return "conflict", "duplicate_risk", []
        if phase == "executing":
            return "resolved", "execution_unknown", [OperationExecutionUnknown]
        if not force:
            return "conflict", "holder_alive", []
        return "resolved", "execution_unknown", [LockRevoked, OperationExecutionUnknown]
    if reply in ("none", "delivered"):
        return "resolved", "none", []
    if reply == "delivery_failed" or acknowledged:
        return "resend", None, [ReplyResendClaimed]
    return "conflict", "duplicate_risk", []


@pytest.mark.contract("RCN-03", "RCN-04", "RCN-05", "RCN-06")
@pytest.mark.parametrize("force", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("acknowledged", [False, True], ids=["unacknowledged", "acknowledged"])
@pytest.mark.parametrize(("phase", "reply"), STATES)
def test_every_state_has_its_answer(
    given: Given, names: Names, phase: str, reply: ReplyPhase, acknowledged: bool, force: bool
) -> None:
    """By phase, reply, acknowledgment and force; the version in the answer is that after what was filed."""
    scene = told(given, phase, reply)
    before = scene.operation("a").version
    status, what, events = expectation(phase, reply, acknowledged, force)
    decided = scene.when(lambda s: filing(s, names, acknowledged=acknowledged, force=force))
    assert events == [type(event) for event in decided.events]
    scene = decided.then(*decided.events)
    result = decided.result

    if isinstance(result, Resend):
        assert ("resend", 2) == (status, result.attempt)
        assert ("pending", 2) == (scene.operation("a").reply, scene.operation("a").attempts)
        return
    answer = result[0]
    detail = what if status == "conflict" else None
    outcome = what if status == "resolved" else None
    assert (status, outcome, detail) == (answer.status, answer.outcome, answer.detail)
    assert scene.operation("a").version == answer.version
    if not events:
        assert before == answer.version


@pytest.mark.contract("RCN-06", "JRN-02")
@pytest.mark.parametrize("force", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("acknowledged", [False, True], ids=["unacknowledged", "acknowledged"])
@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize(("phase", "reply"), STATES)
def test_a_stale_version_is_always_refused(
    given: Given, names: Names, phase: str, reply: ReplyPhase, off: int, acknowledged: bool, force: bool
) -> None:
    """In every state, before anything else is looked at, and force does not lift it."""
    scene = told(given, phase, reply)
    version = scene.operation("a").version
    result = filing(scene, names, acknowledged=acknowledged, force=force, version=version + off)

    assert (Reconciliation("conflict", detail="stale", version=version), ()) == result


@pytest.mark.contract("RCN-02", "JRN-07")
@pytest.mark.parametrize(
    ("phase", "reply", "filed"),
    [
        ("accepted", "none", OperationAbandoned(reason="operator_decision", acknowledged=True)),
        (
            "executing",
            "none",
            OperationExecutionUnknown(reason="operator_decision", acknowledged=True, forced=False),
        ),
        (
            "succeeded",
            "pending",
            ReplyResendClaimed(attempt=2, acknowledged=True, reason="operator_decision"),
        ),
    ],
)
@pytest.mark.parametrize("note", [None, "seen on the phone \ud800"])
def test_what_is_filed_has_who_why_and_what_was_acknowledged(
    given: Given, names: Names, phase: str, reply: ReplyPhase, filed: Event, note: str | None
) -> None:
    """The note is a payload; the event has the commitment to it. It follows from the newest event that was seen."""
    scene = told(given, phase, reply)
    before = scene.operation("a").version
    decided = scene.when(lambda s: filing(s, names, acknowledged=True, note=note))
    expected = filed.model_copy(update={"note": None if note is None else names.committed(note)})
    decided.then(expected)
    (step,) = decided.steps

    assert names.operator == (step.actor_kind, step.actor)
    assert before == step.causation
    kept = [] if note is None else [(names.salt, note.encode("utf-8", "surrogatepass"))]
    assert kept == decided.payloads


@pytest.mark.contract("RCN-02")
def test_what_was_acknowledged_is_told_even_when_it_was_not_needed(given: Given, names: Names) -> None:
    """A failed reply goes out again either way, what waits is abandoned either way, and the event says which."""
    for acknowledged in (False, True):
        waiting = told(given, "accepted", "none")
        abandoning = waiting.when(lambda s, said=acknowledged: filing(s, names, acknowledged=said))  # type: ignore[misc]
        abandoning.then(OperationAbandoned(reason="operator_decision", acknowledged=acknowledged))
        scene = told(given, "succeeded", "delivery_failed")
        decided = scene.when(lambda s, said=acknowledged: filing(s, names, acknowledged=said))  # type: ignore[misc]
        decided.then(ReplyResendClaimed(attempt=2, acknowledged=acknowledged, reason="operator_decision"))


@pytest.mark.contract("RCN-03")
def test_a_forced_filing_fences_the_holder_out(given: Given, names: Names) -> None:
    """Its lease is revoked in the same append, and its late result is refused."""
    scene = told(given, "executing, holder alive", "none")
    fence = scene.fence
    decided = scene.when(lambda s: filing(s, names, acknowledged=True, force=True))
    scene = decided.then(
        LockRevoked(reason="operator_decision"),
        OperationExecutionUnknown(reason="operator_decision", acknowledged=True, forced=True),
    )
    assert [names.operator, names.operator] == [(step.actor_kind, step.actor) for step in decided.steps]
    assert [names.lease, names.op("a")] == [step.originator_id for step in decided.steps]

    late = Answer("succeeded", reply="late")
    scene.seen_by(2).when(lambda s: settle(s.operation("a"), late, fence, s.lease, s.deadline, s.context)).then(
        OperationLateRefused(outcome="succeeded", fence=fence_text(fence))
    )


@pytest.mark.contract("RCN-03", "LCK-09")
@pytest.mark.parametrize("how", ["opening ended", "ttl", "another boot", "granted anew", "taken by another"])
def test_a_holder_that_lost_its_lease_is_not_waited_for(given: Given, names: Names, how: str) -> None:
    """At once, without force; and a newer grant, which runs something else, is left alone."""
    scene = told(given, "executing, holder alive", "none")
    match how:
        case "opening ended":
            scene.alive()
        case "ttl":
            scene.later(30_000_000)
        case "another boot":
            scene.rebooted()
        case "granted anew":
            scene.granted(opening=2)
        case "taken by another":
            scene.alive(2, 3).granted(opening=3)

    scene.when(lambda s: filing(s, names, acknowledged=True, force=True)).then(
        OperationExecutionUnknown(reason="operator_decision", acknowledged=True, forced=True)
    )


@pytest.mark.contract("RCN-04")
def test_two_operators_at_once_send_once(given: Given, names: Names) -> None:
    """The claim of the first moves the version that the second decided on."""
    scene = told(given, "succeeded", "delivery_unknown")
    seen = scene.operation("a").version
    first = scene.when(lambda s: filing(s, names, acknowledged=True, version=seen))
    first.then(*first.events)

    answer = filing(scene, names, acknowledged=True, version=seen)
    assert (Reconciliation("conflict", detail="stale", version=seen + 1), ()) == answer


@pytest.mark.contract("RUN-02", "RCN-08")
@pytest.mark.parametrize(("phase", "reply"), STATES)
def test_nothing_is_ever_run_by_it(given: Given, names: Names, phase: str, reply: ReplyPhase) -> None:
    """Whatever is filed, the operation waits for no run afterwards."""
    scene = told(given, phase, reply)
    decided = scene.when(lambda s: filing(s, names, acknowledged=True, force=True))
    scene = decided.then(*decided.events)

    assert scene.operation("a").ended
    assert [] == scene.queued
