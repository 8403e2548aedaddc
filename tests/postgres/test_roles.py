"""Owner, writer and reader of a journal: what each may do works, and PostgreSQL itself refuses the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil import DeliveryFailed, Grant, Identity, Inbound, JournalRefused, Reply, TimelineFilter, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE
from counterfoil.infrastructure.postgres.gaps import SLICE
from tests.postgres_server import Postgres

from .logins import Logins

SECRET = "marker-of-a-text"
PERSON = "marker-of-a-person"
CHAT = "marker-of-a-chat"
EVENT = "marker-of-an-event"
KEY = "marker-of-a-key"

IDENTITY = Identity(tenant="acme", user=f"{PERSON}-user", principal=f"{PERSON}-principal", verified=True)
GRANT = Grant(identity=IDENTITY, aliases=("agent",))
OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)

HIDDEN = {
    "cf_head": {"journal_key"},
    "cf_payload": {"salt", "body"},
    "cf_external_id": {"position", "external_id"},
    "cf_scope": {"account", "user", "key"},
    "cf_subject": {"pseudonym", "scope_id", "kind", "connection", "value"},
    "cf_deadline": {"token"},
    "cf_lock_key": {"lease_id", "key"},
    "cf_waiter": {"token"},
    "cf_held_back": {"lease_id", "boot_id", "at"},
    "cf_command": {"scope_id", "command_id", "fingerprint", "answer", "recorded_at"},
    "cf_staged": {"id", "record"},
}
"""What a reader may not select."""


def inbound(number: int, text: str = SECRET) -> Inbound:
    return Inbound(connection="tg", conversation=CHAT, actor=PERSON, event_id=f"{EVENT}-{number}", text=text)


async def grant_for(_: Inbound, __: str) -> Grant:
    return GRANT


async def agent_for(*_: Any) -> counterfoil.Agent:
    async def agent(turn: Turn) -> str:
        if "fail" in turn.text:
            raise RuntimeError
        return f"re: {turn.text}"

    return agent


async def deliver(reply: Reply) -> str | DeliveryFailed:
    return DeliveryFailed("forbidden") if "refuse" in reply.text else f"m-{reply.in_reply_to}"


async def everything_that_is_written(url: str) -> None:
    """Bring about every kind of row, and its change and its end, of which a journal has any."""
    async with counterfoil.open_async(url, create=False, keep_inbound=7) as journal, counterfoil.open_async(url) as other:
        async with counterfoil.Runtime(journal, authorize=grant_for, resolve_agent=agent_for, deliver=deliver) as runtime:
            for number in range(8):
                admission = await runtime.admit(inbound(number, f"{SECRET} {('refuse', 'fail', '')[number % 3]}"))
                assert admission.status == "accepted"
            for _ in range(3):
                assert (await runtime.admit(inbound(0, SECRET + " refuse"))).duplicate
            await runtime.drain()
        waiting = await journal.admit(inbound(100), GRANT, command_id="once")
        assert waiting == await journal.admit(inbound(100), GRANT, command_id="once")
        desk = journal.acting_as(OPERATOR, tenant=EVERY_TENANT)
        for row in (await desk.unresolved()).rows:
            if row.state == "accepted":
                answer = await desk.reconcile(row.operation_id, expected_version=row.version, note="a note")
                assert answer.outcome == "abandoned"
        assert any(entry.text for entry in (await desk.timeline(with_text=True)).rows)
        await _locks(journal, other)
        await asyncio.gather(*(journal.admit(inbound(number), GRANT) for number in range(200, 200 + 2 * SLICE)))
        own = journal.acting_as(IDENTITY)
        assert await own.erase("thread", "nobody", connection="tg") is False
        assert await own.erase("principal", f"{PERSON}-principal")
        assert (await journal.verify()).agrees
        assert await own.erase_scope()
        assert (await journal.verify()).agrees


async def _locks(journal: counterfoil.AsyncJournal, other: counterfoil.AsyncJournal) -> None:
    async def wait_for_it() -> None:
        async with other.lock("jobs").hold(KEY, wait="10s"):
            assert await other.holders()

    async with journal.lock("jobs").hold(KEY) as lease:
        waiting = asyncio.create_task(wait_for_it(), context=Context())
        async with asyncio.timeout(20):
            while not (waiting.done() or await journal.waiters()):  # noqa: ASYNC110 - a row that somebody else writes
                await asyncio.sleep(0.01)
        lease.check()
        assert not waiting.done(), waiting
    await waiting
    with pytest.raises(counterfoil.LeaseLost):
        await _lose(journal, other)
    assert (await journal.lock("jobs").history(KEY)).rows


async def _lose(journal: counterfoil.AsyncJournal, other: counterfoil.AsyncJournal) -> None:
    async with journal.lock("slow", lock_delay="1s").hold(KEY):
        assert await other.lock("slow").force_release(KEY)
        await asyncio.sleep(20)


# The writer.


@pytest.mark.contract("JRN-11")
async def test_a_writer_does_all_that_a_journal_does(logins: Logins) -> None:
    """Without the right to create anything, in a journal that is there."""
    await everything_that_is_written(logins.writer)

    with pytest.raises(
        JournalRefused, match="does not exist, and this role cannot create it: it has no right to CREATE in the dat"
    ):
        counterfoil.open(f"{logins.writer}_absent").__enter__()


@pytest.mark.contract("JRN-11")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE cf_event SET type = 'x'",
        "DELETE FROM cf_event",
        "UPDATE cf_payload SET body = ''",
        "UPDATE cf_head SET journal_key = ''",
        "UPDATE cf_head SET format = 2",
        "UPDATE cf_head SET schema_version = 2",
        "UPDATE cf_head SET digest = ''",
        "DELETE FROM cf_head",
        "INSERT INTO cf_head SELECT * FROM cf_head",
        "INSERT INTO cf_projection VALUES ('x', 1, 0)",
        "DELETE FROM cf_projection",
        "UPDATE cf_projection SET version = 2",
        "UPDATE cf_staged SET record = '{}'",
        "ALTER TABLE cf_event ADD COLUMN x integer",
        "ALTER TABLE cf_staged DISABLE TRIGGER ALL",
        "CREATE INDEX ON cf_event (type)",
        "CREATE TABLE mine (x integer)",
        "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE OR REPLACE FUNCTION cf_clock() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "DROP FUNCTION cf_ring(jsonb)",
        "DROP TABLE cf_event",
        "CREATE TRIGGER mine BEFORE INSERT ON cf_event EXECUTE FUNCTION cf_append_staged()",
    ],
)
def test_a_writer_alters_nothing(logins: Logins, statement: str) -> None:
    with logins.connected(logins.writer) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


@pytest.mark.contract("JRN-11")
def test_nobody_but_the_owner_truncates_alters_or_drops(logins: Logins) -> None:
    tables = _tables(logins)
    for url in (logins.writer, logins.reader):
        with logins.connected(url) as connection:
            for table in tables:
                for statement in (
                    "TRUNCATE {}",
                    "ALTER TABLE {} RENAME TO x",
                    "DROP TABLE {}",
                    "CREATE RULE x AS ON DELETE TO {} DO NOTHING",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(statement.format(table).encode())
            for statement in (
                f'SET ROLE "{logins.roles[0]}"',
                f'DROP SCHEMA "{logins.schema}"',
                f'ALTER SCHEMA "{logins.schema}" RENAME TO x',
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())


def _tables(logins: Logins) -> list[str]:
    rows = logins.postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (logins.schema,))
    return [name for (name,) in rows]


# The reader.


@pytest.fixture
async def told(logins: Logins) -> Logins:
    """A journal in which this and that has happened, and somebody holds a key while another waits."""
    async with counterfoil.open_async(logins.writer) as journal:
        async with counterfoil.Runtime(journal, authorize=grant_for, resolve_agent=agent_for, deliver=deliver) as runtime:
            for number, text in enumerate(("", "refuse", "fail")):
                await runtime.admit(inbound(number, f"{SECRET} {text}"))
            await runtime.drain()
        await journal.admit(inbound(9), GRANT, command_id="once")
    return logins


@pytest.mark.contract("JRN-11")
def test_a_reader_changes_nothing(told: Logins) -> None:
    with told.connected(told.reader) as connection:
        connection.execute("SET default_transaction_read_only TO off")
        for table in _tables(told):
            columns = told.postgres.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                (told.schema, table),
            )
            for statement in ("DELETE FROM {0}", "INSERT INTO {0} DEFAULT VALUES", 'UPDATE {0} SET "{1}" = NULL'):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.format(table, columns[-1][0]).encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("""SELECT cf_act('["let_go", "x"]', 0, 0, 0, 0)""")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (x integer)")


@pytest.mark.contract("JRN-11", "IDN-06")
def test_a_reader_sees_neither_texts_nor_ids_nor_keys(told: Logins) -> None:
    """Of all columns it may select all but those, and in those that it may none of them stands."""
    seen = ""
    with told.connected(told.reader) as connection:
        for table in _tables(told):
            hidden = set()
            for (column,) in told.postgres.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
                (told.schema, table),
            ):
                try:
                    seen += repr(connection.execute(f'SELECT "{column}" FROM {table}'.encode()).fetchall())
                except psycopg.errors.InsufficientPrivilege:
                    hidden.add(column)
            assert HIDDEN.get(table, set()) == hidden, table
    for marker in (SECRET, PERSON, CHAT, EVENT, KEY):
        assert marker not in seen
    (key,) = told.postgres.execute(f'SELECT journal_key FROM "{told.schema}".cf_head')[0]
    assert repr(key)[2:-1] not in seen


@pytest.mark.contract("JRN-11", "AUD-03")
@pytest.mark.parametrize("readonly", [True, False])
async def test_what_a_reader_is_told(told: Logins, readonly: bool) -> None:
    """Lists, the timeline, stories by ids of the journal's own, statistics and a verification, with pseudonyms for people."""
    async with counterfoil.open_async(told.writer) as owner, owner.lock("jobs").hold(KEY):
        async with counterfoil.open_async(told.reader, readonly=readonly) as journal:
            desk = journal.acting_as(OPERATOR, tenant=EVERY_TENANT)
            unresolved = (await desk.unresolved()).rows
            entries = (await desk.timeline()).rows
            (story,) = await desk.explain(unresolved[0].operation_id)
            (holder,) = [row for row in await journal.holders() if row.lock == "jobs"]
            said = repr([entry.to_json() for entry in entries]) + repr(story.to_json()) + repr(holder.to_json())

            assert ["delivery_failed", "accepted"] == [
                row.reply_state if row.state != "accepted" else row.state for row in unresolved
            ]
            assert {entry.conversation for entry in entries if entry.type == "operation.admitted"} == {
                f"~{row[0].hex()[:8]}"
                for row in told.postgres.execute(f'SELECT DISTINCT conversation FROM "{told.schema}".cf_event')
                if row[0]
            }
            assert holder.key is None
            assert await journal.waiters() == []
            assert (await desk.statistics()).totals
            assert (await desk.timeline(TimelineFilter(operation_id=unresolved[0].operation_id))).rows
            assert await journal.position() == entries[-1].position
            for marker in (SECRET, PERSON, CHAT, EVENT, KEY):
                assert marker not in said
            verification = await journal.verify()
            (texts,) = [check for check in verification.checks if check.name == "commitments"]
            assert verification.agrees
            assert texts.checked == told.postgres.execute(f'SELECT count(*) FROM "{told.schema}".cf_payload')[0][0] > 0


@pytest.mark.contract("JRN-13")
def test_a_reader_verifies_texts_that_it_does_not_see(told: Logins) -> None:
    told.postgres.execute(f"""UPDATE "{told.schema}".cf_payload SET body = 'else'""")
    with counterfoil.open(told.reader, readonly=True) as journal:
        verification = journal.verify()

    assert ["commitments"] == [check.name for check in verification.checks if not check.agrees]


@pytest.mark.contract("JRN-11")
def test_what_a_reader_is_refused(told: Logins) -> None:
    """It looks nobody up: a guess is not confirmed either. It is told so, and no error of the driver's comes along."""
    with counterfoil.open(told.reader) as journal:
        desk = journal.acting_as(OPERATOR, tenant=EVERY_TENANT)
        refused: list[Any] = [
            lambda: desk.timeline(TimelineFilter(actor=PERSON)),
            lambda: desk.timeline(TimelineFilter(conversation=CHAT)),
            lambda: desk.explain(f"{EVENT}-0"),
            lambda: journal.lock("jobs").history(KEY),
            lambda: journal.lock("jobs").force_release(KEY),
            lambda: journal.acting_as(IDENTITY).unresolved(),
            lambda: desk.reconcile("op-" + "0" * 32, expected_version=1),
        ]
        for call in refused:
            with pytest.raises(JournalRefused) as caught:
                call()
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
            assert not any(marker in str(caught.value) for marker in (PERSON, CHAT, EVENT, KEY, "@"))
        admission = journal.admit(inbound(20), GRANT)
        assert "unavailable" == admission.reason


# The owner.


@pytest.mark.contract("JRN-11")
def test_an_owner_creates_and_upgrades(logins: Logins) -> None:
    """Whoever has its role does, and what is made is the role's."""
    with logins.connected(logins.owner) as connection:
        connection.execute("DROP TABLE cf_statistics_v1")
        connection.execute("DELETE FROM cf_projection WHERE name = 'statistics'")
    from counterfoil.infrastructure.postgres.upgrading import check_schema, upgrade_schema

    assert {"cf_statistics_v1", "statistics"} == {each.name for each in check_schema(logins.owner) if each.kind != "index"}
    for url in (logins.writer, logins.reader):
        with pytest.raises(JournalRefused, match="only its owner upgrades it"):
            upgrade_schema(url, print)
    assert not upgrade_schema(logins.owner, lambda said: None).left
    assert not check_schema(logins.owner)
    owners = logins.postgres.execute(
        "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
        (logins.schema,),
    )
    assert [(logins.roles[0],)] == owners
    with counterfoil.open(logins.writer) as journal:
        journal.admit(inbound(1), GRANT)
    with counterfoil.open(logins.reader, readonly=True) as journal:
        assert journal.acting_as(OPERATOR, tenant=EVERY_TENANT).statistics().totals


@pytest.fixture
def bare(postgres: Postgres, schema: str) -> Iterator[Logins]:
    """The roles of a journal that is not there."""
    logins = Logins(postgres, schema, make=False)
    yield logins
    logins.close()


@pytest.mark.contract("JRN-11")
def test_a_schema_that_an_owner_has_made_is_used(bare: Logins) -> None:
    """Whoever may create in it needs no rights on the database."""
    bare.postgres.execute(f'CREATE SCHEMA "{bare.schema}" AUTHORIZATION "{bare.roles[0]}"')
    with pytest.raises(JournalRefused, match="may not use this schema"):
        counterfoil.open(bare.writer).__enter__()
    bare.postgres.execute(f'GRANT USAGE ON SCHEMA "{bare.schema}" TO "{bare.roles[1]}"')
    with pytest.raises(JournalRefused, match="has no right to CREATE in the schema"):
        counterfoil.open(bare.writer).__enter__()
    with counterfoil.open(bare.owner) as journal:
        assert "accepted" == journal.admit(inbound(1), GRANT).status
