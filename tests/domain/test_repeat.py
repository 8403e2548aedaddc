"""A repeat: a second delivery of an event that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.admission import Repeat, repeat
from counterfoil.domain.decision import Payload
from counterfoil.domain.operation import EntryPutBack, EntrySteppedOver, OperationRepeated

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names, Scene

ACTOR = b"\x33" * 16
KEPT = Payload(b"s" * 32, b"hello")


def again(scene: Scene, body: bytes = b"hello", kept: Payload | None = KEPT) -> tuple[Repeat, bool | None]:
    return repeat(scene.operation("a"), ACTOR, scene.queue, kept, body, scene.context)


@pytest.mark.contract("ADM-02")
@pytest.mark.parametrize(("body", "kept", "same"), [(b"hello", KEPT, True), (b"hello!", KEPT, False), (b"hello", None, None)])
def test_the_first_repeat_is_recorded_and_compared(given: Given, body: bytes, kept: Payload | None, same: bool | None) -> None:
    """With the first text while it is kept; afterwards nothing is said of it."""
    decided = given().admitted("a").when(lambda s: again(s, body, kept))
    decided.then(OperationRepeated(same_text=same))

    assert same is decided.result[1]
    assert [("person", ACTOR)] == [(step.actor_kind, step.actor) for step in decided.steps]


@pytest.mark.contract("ADM-02")
def test_later_repeats_add_no_event_and_are_still_compared(given: Given) -> None:
    """They are counted elsewhere."""
    scene = given().admitted("a").when(again).then(OperationRepeated(same_text=True))
    decided = scene.when(lambda s: again(s, b"other"))
    decided.then()

    assert decided.result[1] is False


@pytest.mark.contract("ADM-02", "RUN-02", "RUN-08")
@pytest.mark.parametrize(
    ("history", "live", "runs", "moves"),
    [
        ("waits", True, False, ()),
        ("waits", False, True, ()),
        ("waits_long", True, False, ()),
        ("waits_long", False, True, ("over", "back")),
        ("stepped_over", True, True, ("back",)),
        ("stepped_over", False, True, ("back",)),
        ("executing", True, False, ()),
        ("executing", False, False, ()),
        ("settled", False, False, ()),
        ("abandoned", False, False, ()),
        ("unknown", False, False, ()),
    ],
)
def test_a_repeat_runs_only_what_waits_without_a_live_process(
    given: Given, names: Names, history: str, live: bool, runs: bool, moves: tuple[str, ...]
) -> None:
    """What is too old, or was stepped over, goes to the end of the queue; what was ever claimed is never run again."""
    scene = given().alive(*([2] if live else [])).admitted("a", opening=2)
    match history:
        case "waits_long":
            scene.later(15 * names.minute + 1)
        case "stepped_over" | "abandoned":
            getattr(scene, history)("a")
        case "executing":
            scene.claimed("a", opening=2)
        case "settled" | "unknown":
            getattr(scene.claimed("a", opening=2), history)("a")
    over, back = EntrySteppedOver(), EntryPutBack(route=names.route)
    decided = scene.when(again)
    decided.then(OperationRepeated(same_text=True), *(over if move == "over" else back for move in moves))
    assert {1} == {step.causation for step in decided.steps}

    assert runs is decided.result[0].runs


@pytest.mark.contract("RUN-08")
def test_what_is_put_back_stands_once_behind_what_waits(given: Given, names: Names) -> None:
    """And belongs to the opening that got the repeat, so that a further repeat leaves it there."""
    scene = given().admitted("a", opening=2).later(15 * names.minute).admitted("b")
    decided = scene.when(again)
    scene = decided.then(*decided.events)

    assert [names.op("b"), names.op("a")] == scene.queued
    assert not again(scene)[0].runs
    assert () == again(scene)[0].steps
