"""A reader gets texts from one function of the database, and each only after it is on record that it did."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound, Limits
from counterfoil.domain.identity import EVERY_TENANT, OPERATE
from counterfoil.domain.opening import OperatorActed
from counterfoil.projections.catalogue import BUILT_IN

from .logins import Logins

SECRET = "marker-of-a-text"
GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))
OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)
ASK = "SELECT place, convert_from(shown, 'UTF8') FROM cf_show_texts(%s::bigint[]) ORDER BY place"
ACTS = "SELECT position, operation FROM cf_event WHERE type = 'operator.acted' ORDER BY position"


@pytest.fixture
def told(logins: Logins) -> Logins:
    """Three messages with their texts."""
    with counterfoil.open(logins.writer) as journal:
        for number in range(3):
            inbound = Inbound(connection="tg", conversation="c", actor="ann", event_id=str(number), text=f"{SECRET}-{number}")
            assert journal.admit(inbound, GRANT).status == "accepted"
    return logins


def positions(told: Logins) -> list[int]:
    return [position for (position,) in told.postgres.execute(f'SELECT position FROM "{told.schema}".cf_payload ORDER BY 1')]


def ask(connection: psycopg.Connection[Any], at: list[int]) -> list[Any]:
    return connection.execute(ASK, (at,)).fetchall()


def acts(connection: psycopg.Connection[Any]) -> list[int]:
    return [operation for _, operation in connection.execute(ACTS.encode())]


def agrees(told: Logins) -> bool:
    with counterfoil.open(told.writer, readonly=True) as journal:
        return journal.verify().agrees


def test_no_row_that_an_append_folds_depends_on_the_record() -> None:
    """The database appends it by itself, and folds nothing."""
    assert [] == [each.NAME for each in BUILT_IN if OperatorActed in each.EVENTS]


@pytest.mark.contract("AUD-03")
def test_a_text_comes_after_its_record(told: Logins) -> None:
    """The record is an event of an operator, in the chain, which names the role that has logged in and the operation."""
    first, second, third = positions(told)
    with told.connected(told.reader) as reader:
        assert [(first, None), (second, None)] == ask(reader, [first, second])
        assert [first, second] == acts(reader)
        assert [(first, f"{SECRET}-0"), (second, f"{SECRET}-1")] == ask(reader, [first, second])
        assert [first, second] == acts(reader)
        assert [(first, f"{SECRET}-0"), (third, None)] == ask(reader, [first, third])
        assert [first, second, third] == acts(reader)

    assert agrees(told)
    with counterfoil.open(told.writer) as journal:
        entries = journal.acting_as(OPERATOR, tenant=EVERY_TENANT).timeline().rows
        shown = [entry for entry in entries if entry.type == "operator.acted"]
        assert [f"{told.schema}_r"] * 3 == [entry.actor for entry in shown]
        assert [("operator", "text_shown")] * 3 == [(entry.actor_kind, entry.detail["action"]) for entry in shown]
        assert {entry.operation_id for entry in entries if entry.type == "operation.admitted"} == {
            entry.operation_id for entry in shown
        }
        assert (
            journal.admit(Inbound(connection="tg", conversation="c", actor="ann", event_id="9", text="x"), GRANT).status
            == "accepted"
        )
    assert agrees(told)


@pytest.mark.contract("AUD-03")
def test_no_text_without_a_record_that_stays(told: Logins) -> None:
    """What a transaction has recorded itself, in a savepoint too, counts for nothing: it can be rolled back."""
    (first, *_) = positions(told)
    with told.connected(told.reader) as reader:
        with reader.transaction(force_rollback=True):
            assert [(first, None)] == ask(reader, [first]) == ask(reader, [first])
            with reader.transaction():
                assert [(first, None)] == ask(reader, [first])
            assert [(first, None)] == ask(reader, [first])
        assert [] == acts(reader)
        with reader.transaction(force_rollback=True):
            with reader.transaction():
                assert [(first, None)] == ask(reader, [first])
            assert [(first, None)] == ask(reader, [first])
        assert [] == acts(reader)
        with reader.transaction(), reader.transaction():
            assert [(first, None)] == ask(reader, [first])
        assert [(first, f"{SECRET}-0")] == ask(reader, [first])
        assert [first] == acts(reader)


@pytest.mark.contract("AUD-03")
def test_a_record_is_of_one_role_and_of_a_minute(told: Logins) -> None:
    """Somebody else's counts for nothing, nor an old one."""
    (first, *_) = positions(told)
    other = told.add(f"{told.schema}_other", told.roles[2])
    with told.connected(told.reader) as reader, told.connected(other) as another:
        ask(reader, [first])
        assert [(first, None)] == ask(another, [first])
        assert [(first, f"{SECRET}-0")] == ask(another, [first]) == ask(reader, [first])
        told.postgres.execute(
            f'CREATE OR REPLACE FUNCTION "{told.schema}".cf_clock() RETURNS bigint LANGUAGE sql AS $$'
            " SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 61000000 $$"
        )
        assert [(first, None)] == ask(reader, [first])
        assert [(first, f"{SECRET}-0")] == ask(reader, [first])
        assert [first] * 3 == acts(reader)


@pytest.mark.contract("AUD-03")
def test_reading_at_an_old_snapshot_is_refused_or_recorded(told: Logins) -> None:
    """A transaction that does not see the newest events cannot append to them, and gets nothing."""
    (first, *_) = positions(told)
    with told.connected(told.reader) as reader, told.connected(told.writer) as writer:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM cf_event")
        with counterfoil.open(told.writer) as journal:
            journal.admit(Inbound(connection="tg", conversation="c", actor="ann", event_id="8", text="x"), GRANT)
        with pytest.raises((psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation)):
            ask(reader, [first])
        reader.rollback()
        assert [] == acts(writer)


@pytest.mark.contract("AUD-03")
def test_what_was_erased_is_not_shown(told: Logins) -> None:
    (first, *_) = positions(told)
    with counterfoil.open(told.writer) as journal:
        assert journal.acting_as(GRANT.identity).erase_scope()
    with told.connected(told.reader) as reader:
        assert [] == ask(reader, [first])
        assert [] == acts(reader)


@pytest.mark.contract("AUD-03")
def test_a_copy_is_opened_before_texts_are_shown(told: Logins) -> None:
    """Otherwise the record would have a position that others may have seen with another event."""
    (first, *_) = positions(told)
    told.postgres.execute(f'UPDATE "{told.schema}".cf_head SET schema_oid = 1')
    with told.connected(told.reader) as reader:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="open it for writing first"):
            ask(reader, [first])
        with counterfoil.open(told.writer) as journal:
            journal.admit(Inbound(connection="tg", conversation="c", actor="ann", event_id="7", text="x"), GRANT)
        assert [(first, None)] == ask(reader, [first])
        assert [(first, f"{SECRET}-0")] == ask(reader, [first])
    assert agrees(told)


@pytest.mark.contract("AUD-03")
def test_a_desk_of_a_reader_shows_texts_and_that_is_recorded(told: Logins) -> None:
    """By the same calls as everybody's; whatever the host says of who asks, it is the role that is recorded."""
    with counterfoil.open(told.reader, readonly=True) as journal:
        desk = journal.acting_as(OPERATOR, tenant=EVERY_TENANT)
        assert all(entry.text is None for entry in desk.timeline().rows)
        assert not [entry for entry in desk.timeline().rows if entry.type == "operator.acted"]
        texts = [entry.text for entry in desk.timeline(with_text=True).rows if entry.text]
        assert [f"{SECRET}-{number}" for number in range(3)] == texts
        (row, *_) = desk.unresolved().rows
        (story,) = desk.explain(row.operation_id, with_text=True)
        assert f"{SECRET}-0" in [step.text for step in story.steps]
        assert 3 == len([entry for entry in desk.timeline().rows if entry.type == "operator.acted"])
    assert agrees(told)


@pytest.mark.contract("AUD-03")
def test_whoever_may_not_call_it_does_not(told: Logins) -> None:
    """It runs with the rights of its owner, and is for no one who was not named."""
    stranger = told.add(f"{told.schema}_stranger")
    told.postgres.execute(f'GRANT USAGE ON SCHEMA "{told.schema}" TO "{told.schema}_stranger"')
    with told.connected(stranger) as connection:
        for call in ("cf_show_texts('{1}')", "cf_commitments(0, 10)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT {call}".encode())


async def test_too_many_at_once_are_refused(told: Logins) -> None:
    async with counterfoil.open_async(told.writer, limits=Limits(max_pending_per_process=10_000)) as journal:
        each = (Inbound(connection="tg", conversation=f"c{n}", actor="ann", event_id=f"e{n}", text="x") for n in range(1_001))
        await asyncio.gather(*(journal.admit(inbound, GRANT) for inbound in each))
    with told.connected(told.reader) as reader:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 1000 operations"):
            ask(reader, positions(told))
        assert 1_000 == len(ask(reader, positions(told)[:1_000]))
    assert agrees(told)
