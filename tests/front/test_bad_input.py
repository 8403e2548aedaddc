"""What cannot be meant is refused by name, or is a miss: never an error of a driver or a codec."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import counterfoil

PERSON = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
OPERATOR = counterfoil.Identity(tenant="acme", principal="olga", permissions=["journal:operate"], verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])
HELLO = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id="1", text="hello")
LONE = "\ud800"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("actor", 42, "tg"), "value must be text, not int; write str(…)"),
        (("actor", None, "tg"), "value must be text, not NoneType"),
        (("actor", "", "tg"), "value must not be empty"),
        (("actor", LONE, "tg"), "value must not hold a lone surrogate"),
        (("actor", "a\0b", "tg"), "value must not hold NUL"),
        (("actor", "ann", LONE), "connection must not hold a lone surrogate"),
        (("actor", "ann", 7), "connection must be text, not int; write str(…)"),
        (("actor", "ann", None), "connection is missing"),
        (("conversation", "c", None), "connection is missing"),
        (("thread", "c", None), "connection is missing"),
        (("principal", "ann", "tg"), "connection must be left out"),
        (("person", "ann", "tg"), "kind must be one of conversation, thread, actor, principal"),
        ((None, "ann", "tg"), "kind must be one of"),
    ],
)
def test_what_names_no_subject_is_not_erased(journal: counterfoil.Journal, arguments: Any, complaint: str) -> None:
    kind, value, connection = arguments
    journal.admit(HELLO, GRANT)
    desk = journal.acting_as(PERSON)

    with pytest.raises(counterfoil.InvalidValue, match=re.escape(complaint)):
        desk.erase(kind, value, connection=connection)
    assert desk.erase("actor", "ann", connection="tg"), "and what does name one is erased"
    assert desk.erase("principal", "ann")


@pytest.mark.parametrize("tenant", ["acme", counterfoil.EVERY_TENANT])
def test_erasure_across_scopes_is_refused(journal: counterfoil.Journal, tenant: Any) -> None:
    """It would look into the operator's own scope, find nothing, and leave the person there."""
    journal.admit(HELLO, GRANT)
    desk = journal.acting_as(OPERATOR, tenant=tenant)

    with pytest.raises(counterfoil.Denied, match="in the identity's own scope") as refused:
        desk.erase("actor", "ann", connection="tg")
    assert "own_scope_only" == refused.value.reason
    with pytest.raises(counterfoil.Denied, match="in the identity's own scope"):
        desk.erase_scope()


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda journal: journal.acting_as(OPERATOR, tenant=LONE), "tenant must not hold a lone surrogate"),
        (lambda journal: journal.acting_as(OPERATOR, tenant=7), "tenant must be text, not int"),
        (lambda journal: journal.acting_as("olga"), "identity must be an Identity, not str"),
        (lambda journal: journal.acting_as(OPERATOR).timeline({"actor": "ann"}), "filter must be a TimelineFilter, not dict"),
        (lambda journal: journal.acting_as(OPERATOR).explain(7), "explain takes .* not int"),
    ],
)
def test_what_is_no_argument_is_refused_by_name(
    journal: counterfoil.Journal, ask: Callable[[Any], object], complaint: str
) -> None:
    with pytest.raises(counterfoil.InvalidValue, match=complaint):
        ask(journal)


@pytest.mark.parametrize("operation_id", [f"op-{LONE}", LONE, "op-", "", "op-" + "A" * 32, "op-" + "0" * 33, "op-\0"])
def test_what_no_operation_can_be_called_is_a_miss(journal: counterfoil.Journal, operation_id: str) -> None:
    journal.admit(HELLO, GRANT)
    desk = journal.acting_as(OPERATOR, tenant="acme")

    for command_id in (None, "once"):
        answer = desk.reconcile(operation_id, expected_version=1, command_id=command_id)
        assert counterfoil.Reconciliation("not_found") == answer
    assert [] == desk.explain(operation_id)


async def test_a_runtime_reconciles_nothing_under_what_is_no_id(journal_url: str) -> None:
    async def none(*_: object) -> None:
        return None

    async with counterfoil.open_async(journal_url) as journal:
        async with counterfoil.Runtime(journal, authorize=none, resolve_agent=none, deliver=none) as runtime:  # type: ignore[arg-type]
            answer = await runtime.reconcile(OPERATOR, f"op-{LONE}", expected_version=1)

    assert counterfoil.Reconciliation("not_found") == answer


@pytest.mark.parametrize("version", [0, -1, 2**63])
def test_a_version_that_none_can_have_is_refused(journal: counterfoil.Journal, version: int) -> None:
    admission = journal.admit(HELLO, GRANT)

    with pytest.raises(counterfoil.InvalidValue, match="expected_version must be from 1 to"):
        journal.acting_as(PERSON).reconcile(str(admission.operation_id), expected_version=version)
