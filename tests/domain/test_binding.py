"""A route's binding: its agent session and how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counterfoil.domain.route import Binding, evolve_binding

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names


def test_a_binding_is_opened_once_and_advances(given: Given, names: Names) -> None:
    """Each settled run may leave a new leaf."""
    scene = given().bound()
    assert Binding(names.route, 1, "agent", 0, names.session) == scene.binding

    scene = given().bound(leaf="leaf-1")
    assert Binding(names.route, 2, "agent", 0, names.session, "leaf-1") == scene.binding


def test_an_event_of_another_aggregate_is_a_mistake(given: Given) -> None:
    """It is not passed over."""
    scene = given().admitted("a")

    with pytest.raises(AssertionError, match="not an event of a binding: OperationAdmitted"):
        evolve_binding(None, scene.recorded[0])
