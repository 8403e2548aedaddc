"""What a host and an operator do with a journal, wherever it lies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import counterfoil
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.turn import Claim, Mark, Settle
from tests.rows import database, rows, rows_in, tables


def person(user: str = "ann", tenant: str = "acme") -> counterfoil.Identity:
    return counterfoil.Identity(tenant=tenant, user=user, principal=user, verified=True)


def operator(tenant: str = "acme") -> counterfoil.Identity:
    return counterfoil.Identity(tenant=tenant, principal="olga", permissions=["journal:operate"], verified=True)


def admit(
    journal: counterfoil.Journal, event_id: str, *, user: str = "ann", tenant: str = "acme", text: str = "hello", **values: str
) -> counterfoil.Admission:
    inbound = counterfoil.Inbound(
        **{"connection": "tg", "conversation": "chat", "actor": user, "event_id": event_id, "text": text, **values}
    )
    return journal.admit(inbound, counterfoil.Grant(identity=person(user, tenant), aliases=["helper"]))


def run_turn(journal: counterfoil.Journal, admission: counterfoil.Admission, reply: str = "hi") -> None:
    """Take an operation from its admission to its delivered reply."""
    submit = journal.core.committer.submit
    assert admission.operation_id is not None
    operation = journal.core.read(lambda store: store.operation(str(admission.operation_id)))
    assert operation is not None
    claimed = submit(Claim(operation.route, operation.position)).result()
    assert claimed.fence is not None
    submit(Settle(operation.operation_id, claimed.fence, Answer("succeeded", reply=reply))).result()
    submit(Mark(operation.operation_id, 1, Delivery("delivered", message_id="m-1"), claimed.fence)).result()


@pytest.mark.contract("JRN-16")
def test_a_journal_in_memory_is_the_same_journal(journal_url: str) -> None:
    answers = []
    for name in (":memory:", journal_url):
        with counterfoil.open(name) as journal:
            first = admit(journal, "1")
            run_turn(journal, first)
            admit(journal, "1")
            waiting = admit(journal, "2")
            desk = journal.acting_as(person())
            filed = desk.reconcile(str(waiting.operation_id), expected_version=1)
            types = [entry.type for entry in desk.timeline().rows]
            answers.append((first.position, filed.outcome, types, journal.verify().agrees, journal.position()))

    assert answers[0] == answers[1]


@pytest.mark.sqlite_only("it is SQLite that has journals in memory")
@pytest.mark.contract("JRN-16")
def test_journals_in_memory_are_apart() -> None:
    with counterfoil.open(":memory:") as one, counterfoil.open(":memory:") as other:
        admit(one, "1")

        assert (3, 0) == (one.position(), other.position())


@pytest.mark.contract("JRN-17")
def test_a_host_keeps_tables_of_its_own_beside_ours(journal_url: str) -> None:
    with counterfoil.open(journal_url) as journal, database(journal_url) as host:
        admit(journal, "1")
        host.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER)")
        host.execute("INSERT INTO orders VALUES (1, 0)")
        admit(journal, "2")
        host.execute("UPDATE orders SET paid = 1")

        assert journal.verify().agrees
    with counterfoil.open(journal_url) as journal:
        assert admit(journal, "1").duplicate

    assert {"orders"} == {name for name in tables(journal_url) if not name.startswith("cf_")}


@pytest.mark.contract("IDN-02", "IDN-05")
def test_another_scope_is_a_miss_and_tenants_are_named_by_operators_alone(journal: counterfoil.Journal) -> None:
    ours, theirs = admit(journal, "1"), admit(journal, "1", tenant="other")
    stranger = journal.acting_as(person("ann", "third"))

    assert ours.operation_id != theirs.operation_id
    assert () == stranger.unresolved().rows
    assert [] == stranger.explain(str(ours.operation_id))
    assert "not_found" == stranger.reconcile(str(ours.operation_id), expected_version=1).status
    with pytest.raises(counterfoil.Denied, match="journal:operate"):
        journal.acting_as(person(), tenant="acme")
    assert () == journal.acting_as(operator()).unresolved().rows, "the permission implies nothing by itself"
    assert {ours.operation_id} == {row.operation_id for row in journal.acting_as(operator(), tenant="acme").unresolved().rows}
    everywhere = journal.acting_as(operator(), tenant=counterfoil.EVERY_TENANT)
    assert {ours.operation_id, theirs.operation_id} == {row.operation_id for row in everywhere.unresolved().rows}


@pytest.mark.contract("IDN-05", "RCN-02")
def test_what_an_operator_changes_or_is_shown_is_recorded(journal: counterfoil.Journal) -> None:
    admission = admit(journal, "1", text="where is my parcel")
    desk = journal.acting_as(operator(), tenant="acme")
    [story] = desk.explain("1", with_text=True)
    desk.reconcile(str(admission.operation_id), expected_version=1, reason="spam", note="seen it before")

    rows = desk.timeline(counterfoil.TimelineFilter(actor_kind="operator")).rows
    assert [("operator.acted", "olga"), ("operation.abandoned", "olga")] == [(row.type, row.actor) for row in rows]
    assert "spam" == rows[1].detail["reason"]
    assert "where is my parcel" in {step.text for step in story.steps}
    assert not journal.acting_as(operator(), tenant="acme").timeline().rows[-1].text


@pytest.mark.contract("IDN-04")
@pytest.mark.parametrize(
    "change",
    [
        {"verified": False},
        {"revoked_at": datetime.now(UTC) - timedelta(seconds=1)},
        {"expires_at": datetime.now(UTC) - timedelta(seconds=1)},
        {"issued_at": datetime.now(UTC) + timedelta(hours=5)},
    ],
    ids=["unverified", "revoked", "expired", "issued in the future"],
)
def test_an_identity_that_is_not_active_is_refused_everywhere(journal: counterfoil.Journal, change: dict[str, object]) -> None:
    admission = admit(journal, "1")
    identity = person().model_copy(update=change)
    inbound = counterfoil.Inbound(connection="tg", conversation="chat", actor="ann", event_id="2", text="again")
    before = journal.position()
    desk = journal.acting_as(identity)

    assert "revoked" == journal.admit(inbound, counterfoil.Grant(identity=identity, aliases=["helper"])).reason
    assert "denied" == desk.reconcile(str(admission.operation_id), expected_version=1).status
    for call in (desk.unresolved, desk.timeline, desk.statistics, desk.erase_scope):
        with pytest.raises(counterfoil.Denied):
            call()
    with pytest.raises(counterfoil.Denied):
        desk.explain("1")
    with pytest.raises(counterfoil.Denied):
        desk.erase("actor", "ann", connection="tg")
    assert before == journal.position()


@pytest.mark.contract("IDN-06", "JRN-13")
def test_erasing_a_person_takes_the_name_and_leaves_the_chain(journal: counterfoil.Journal) -> None:
    first = admit(journal, "event-ann")
    run_turn(journal, first, reply="dear ann")
    other = admit(journal, "event-ann", connection="wa")
    desk = journal.acting_as(person())

    assert desk.erase("actor", "ann", connection="tg")
    assert not desk.erase("actor", "nobody", connection="tg")

    rows = desk.timeline().rows
    erased = [row for row in rows if row.operation_id == first.operation_id]
    assert {"~"} == {row.actor[0] for row in erased if row.actor}
    assert not {row.event_id for row in erased} & {"event-ann"}
    assert {"ann"} == {row.actor for row in rows if row.operation_id == other.operation_id}, "the other connection's ann stays"
    assert journal.verify().agrees


@pytest.mark.contract("IDN-06", "JRN-13")
def test_erasing_a_scope_makes_its_history_unlinkable(journal: counterfoil.Journal) -> None:
    first = admit(journal, "1")
    run_turn(journal, first)
    assert journal.acting_as(person()).erase_scope()

    assert () == journal.acting_as(person()).timeline().rows
    again = admit(journal, "1")
    assert not again.duplicate
    assert again.operation_id != first.operation_id
    rows = journal.acting_as(operator(), tenant=counterfoil.EVERY_TENANT).timeline().rows
    assert {"~"} == {row.actor[0] for row in rows if row.operation_id == first.operation_id and row.actor}
    assert journal.verify().agrees


@pytest.mark.contract("IDN-06", "JRN-07", "PRN-05")
def test_no_text_and_no_id_of_a_person_lies_in_the_history(journal_url: str) -> None:
    marks = {
        "text": "a-very-secret-text",
        "user": "+15550100",
        "conversation": "chat-of-ann",
        "event_id": "evt-4711",
        "reply": "psst",
    }
    with counterfoil.open(journal_url) as journal:
        admission = admit(
            journal, marks["event_id"], user=marks["user"], text=marks["text"], conversation=marks["conversation"], thread="thr-1"
        )
        run_turn(journal, admission, reply=marks["reply"])
    found = rows(journal_url, "SELECT * FROM cf_event")
    history = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in found for value in row)

    assert not [mark for mark in [*marks.values(), "thr-1", "m-1"] if mark.encode() in history]


@pytest.mark.contract("PRN-05")
@pytest.mark.parametrize(("keep", "left"), [(None, 0), (7, 1)])
def test_inbound_text_goes_with_its_operation_unless_it_is_kept(journal_url: str, keep: int | None, left: int) -> None:
    with counterfoil.open(journal_url, keep_inbound=keep) as journal:
        admission = admit(journal, "1")
        run_turn(journal, admission, reply="")

    assert [(left,)] == rows(journal_url, "SELECT count(*) FROM cf_payload")


@pytest.mark.contract("JRN-05")
def test_a_command_id_gives_the_first_answer_again(journal: counterfoil.Journal) -> None:
    inbound = counterfoil.Inbound(connection="tg", conversation="chat", actor="ann", event_id="1", text="hello")
    grant = counterfoil.Grant(identity=person(), aliases=["helper"])
    first = journal.admit(inbound, grant, command_id="c-1")

    assert first == journal.admit(inbound, grant, command_id="c-1")
    with pytest.raises(counterfoil.CommandConflict, match="new id"):
        journal.admit(inbound.model_copy(update={"text": "other"}), grant, command_id="c-1")
    for wrong in ("", "x" * 129, 7):
        with pytest.raises(counterfoil.InvalidValue, match="command_id"):
            journal.admit(inbound, grant, command_id=wrong)  # type: ignore[arg-type]


@pytest.mark.contract("ADM-01")
def test_a_refusal_leaves_nothing(journal: counterfoil.Journal) -> None:
    reasons = [
        admit(journal, "1", text="x" * 40_000).reason,
        admit(journal, "2", text="/help").reason,
    ]

    assert ["oversized", "unknown_command"] == reasons
    assert 0 == journal.position()
    assert [(0,)] == rows_in(journal.core, "SELECT count(*) FROM cf_scope")


def test_a_journal_that_is_only_read_leaves_no_trace(journal_url: str) -> None:
    with counterfoil.open(journal_url) as journal:
        admit(journal, "1")
        before = journal.position()
    with counterfoil.open(journal_url, readonly=True) as journal:
        assert 1 == len(journal.acting_as(person()).unresolved().rows)
        with pytest.raises(counterfoil.ReadOnly, match="reading only"):
            journal.acting_as(person()).erase_scope()
        assert before + 1 == journal.position(), "the end of the first opening came with its close"


@pytest.mark.contract("DIA-01")
def test_diagnostics_are_numbers_under_the_names_of_the_contract(journal: counterfoil.Journal) -> None:
    admit(journal, "1")
    admit(journal, "1")
    admit(journal, "2", text="/help")
    counters = journal.diagnostics()

    assert (2, 1, 1) == (counters["admitted"], counters["duplicates"], counters["unsupported"])
    assert {int} == {type(value) for value in counters.values()}
    assert 15 == len(counters)


@pytest.mark.contract("RCN-05", "IDN-06")
def test_an_erasure_files_the_reply_that_can_no_longer_be_sent(journal: counterfoil.Journal) -> None:
    admission = admit(journal, "1")
    operation = journal.core.read(lambda store: store.operation(str(admission.operation_id)))
    assert operation is not None
    submit = journal.core.committer.submit
    claimed = submit(Claim(operation.route, operation.position)).result()
    assert claimed.fence is not None
    submit(Settle(operation.operation_id, claimed.fence, Answer("succeeded", reply="hi"))).result()
    desk = journal.acting_as(person())
    [row] = desk.unresolved().rows
    with pytest.raises(counterfoil.NeedsRuntime):
        desk.reconcile(row.operation_id, expected_version=row.version, acknowledge_duplicate_risk=True)
    desk.erase("actor", "ann", connection="tg")

    assert () == desk.unresolved().rows
    assert "none" == desk.reconcile(row.operation_id, expected_version=row.version + 1).outcome
    assert journal.verify().agrees
