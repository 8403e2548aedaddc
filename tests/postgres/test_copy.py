"""Copies between any two engines: what is of no process is the same on both sides, and nobody takes a part for the whole."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from eventsourcing.persistence import StoredEvent

import counterfoil
from counterfoil import DeliveryFailed, FormatUnknown, Grant, Identity, Inbound, JournalRefused, Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE
from counterfoil.infrastructure.cli.group import cli
from counterfoil.infrastructure.copying import PASSED_OVER, copy_journal
from counterfoil.infrastructure.recorder import JournalRecorder
from counterfoil.projections.catalogue import BUILT_IN
from tests.copies import independently
from tests.engines import Engine
from tests.postgres_server import Postgres
from tests.rows import change, is_there, rows

from .logins import Logins

PERSON = Identity(tenant="acme", user="ann", principal="ann", verified=True)
GONE = Identity(tenant="gone", principal="bob", verified=True)
OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)

COPIED = {
    "cf_event": "position",
    "cf_payload": "position",
    "cf_external_id": "position",
    "cf_scope": "scope_id",
    "cf_subject": "pseudonym",
    "cf_lock_key": "lease_id",
    "cf_command": "command_id",
    "cf_repeat": "operation",
}
NOT_COPIED = ("cf_deadline", "cf_waiter", "cf_held_back")
EVENT = (
    "position, recorded_at, originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id, connection, "
    "conversation, thread, actor, operation, correlation, causation, state, digest"
)


def granted(identity: Identity = PERSON) -> Grant:
    return Grant(identity=identity, aliases=("agent",))


def inbound(event_id: str, text: str = "hello") -> Inbound:
    return Inbound(connection="tg", conversation=f"c-{event_id[:1]}", actor=f"a-{event_id[:1]}", event_id=event_id, text=text)


async def _agent_for(*_: Any) -> counterfoil.Agent:
    async def agent(turn: Turn) -> str:
        if "stick" in turn.text:
            await asyncio.Event().wait()
        return f"re: {turn.text}"

    return agent


async def _deliver(reply: Reply) -> str | DeliveryFailed:
    if "explode" in reply.text:
        raise RuntimeError
    return DeliveryFailed("forbidden") if "refuse" in reply.text else f"m-{reply.in_reply_to}"


async def _grant_for(*_: Any) -> Grant:
    return granted()


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[counterfoil.AsyncJournal]:
    """Fill a journal with all that there can be, and lend it while a turn runs, a key is held, and another waits for it."""
    async with counterfoil.open_async(url) as journal, counterfoil.open_async(url) as other:
        async with counterfoil.Runtime(journal, authorize=_grant_for, resolve_agent=_agent_for, deliver=_deliver) as runtime:
            for event_id, text in (("a1", "hello"), ("b1", "refuse"), ("c1", "explode"), ("a1", "hello"), ("a1", "hello")):
                assert (await runtime.admit(inbound(event_id, text))).status == "accepted"
            await runtime.drain()
            await journal.admit(inbound("x1"), granted(GONE), command_id="of-one-who-is-gone")
            assert await journal.acting_as(GONE).erase_scope()
            assert (await journal.admit(inbound("w1"), granted(), command_id="once")).position
            recorder = JournalRecorder(journal.core)
            stored = [StoredEvent(uuid4(), version, "billing:Paid", b"\0\1") for version in (1, 2)]
            await asyncio.to_thread(recorder.insert_events, stored)
            assert (await runtime.admit(inbound("s1", "stick"))).status == "accepted"
            assert (await runtime.admit(inbound("s2", "behind it"))).status == "accepted"
            async with journal.lock("jobs").hold("key-1"), journal.lock("late", lock_delay="1h").hold("key-2"):
                waiting = asyncio.create_task(_wait(other), context=Context())
                async with asyncio.timeout(30):
                    while not await journal.waiters():  # noqa: ASYNC110 - a row that another writes
                        await asyncio.sleep(0.01)
                yield journal
                waiting.cancel()


async def _wait(other: counterfoil.AsyncJournal) -> None:
    async with other.lock("jobs").hold("key-1", wait="1m"):
        pass


Name = Callable[[Engine], str]
DIRECTIONS = [(one, other) for one in ("sqlite", "postgres") for other in ("sqlite", "postgres")]


@pytest.fixture
def name(postgres: Postgres, new_schema: Callable[[], str], tmp_path: Path) -> Name:
    """Name journals that are not there yet, on the engine that is asked for."""
    return lambda engine: postgres.url(new_schema()) if engine == "postgres" else str(tmp_path / f"{uuid4().hex}.sqlite")


def all_of(url: str) -> dict[str, list[Any]]:
    """What a copy has to have, and the rows of all projections."""
    tables = {table: EVENT if table == "cf_event" else "*" for table in COPIED}
    found = {table: rows(url, f"SELECT {columns} FROM {table} ORDER BY {COPIED[table]}") for table, columns in tables.items()}
    for projection in BUILT_IN:
        columns = ", ".join(f'"{column}"' for column in projection.ROW._fields)
        found[projection.NAME] = sorted(rows(url, f"SELECT {columns} FROM {projection.table}"), key=repr)
    return found


def run(*words: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, words, prog_name="counterfoil")
    assert status == result.exit_code, result.output
    assert "Traceback" not in result.output
    return result


def admit(url: str, event_id: str, *, text: str = "hello", command_id: str | None = None) -> counterfoil.Admission:
    with counterfoil.open(url) as journal:
        return journal.admit(inbound(event_id, text), granted(), command_id=command_id)


@pytest.mark.contract("CLI-02", "JRN-13", "PRJ-02")
@pytest.mark.parametrize(("one", "other"), DIRECTIONS)
async def test_all_that_is_of_no_process_is_the_same(name: Name, one: Engine, other: Engine) -> None:
    """While the original is at work; and a stranger to this library finds the chain of a copy in a file in order."""
    source, target = name(one), name(other)
    async with busy(source):
        result = await asyncio.to_thread(run, "copy", source, target, "--json")
    said = json.loads(result.stdout)
    found = all_of(target)

    assert said["agrees"]
    assert [] == said["differences"]
    assert said["position"] == found["cf_event"][-1][0]
    assert said["rows"] == {table.removeprefix("cf_") + "s": len(found[table]) for table in COPIED}
    assert all(said["rows"].values())
    assert f"Both sides agree, up to position {said['position']:,}." in result.stderr
    for table in NOT_COPIED:
        assert [(0,)] == rows(target, f"SELECT count(*) FROM {table}")
    assert (0, "the chain agrees") == await asyncio.to_thread(independently, target)
    run("verify", target)

    # What the original had at that position.
    back = name(one)
    run("copy", target, back)
    assert found == all_of(back)
    original = rows(source, f"SELECT {EVENT} FROM cf_event WHERE position <= ? ORDER BY position", said["position"])
    assert original == found["cf_event"]
    for table in ("cf_scope", "cf_command", "cf_repeat", "cf_lock_key", "cf_subject"):
        assert rows(source, f"SELECT * FROM {table} ORDER BY {COPIED[table]}") == found[table]


@pytest.mark.contract("CLI-02", "LCK-03", "ADM-02")
@pytest.mark.parametrize(("one", "other"), DIRECTIONS)
async def test_a_copy_is_gone_on_with(name: Name, one: Engine, other: Engine) -> None:
    """Nobody holds a key in it, fences go up, positions are passed over; duplicates, kept answers and what is open are known."""
    source, target = name(one), name(other)
    async with busy(source) as journal:
        answer = await journal.admit(inbound("w1"), granted(), command_id="once")
        given = max(holder.fence for holder in await journal.holders())
        await asyncio.to_thread(run, "copy", source, target)
        last = await journal.position()

    async with counterfoil.open_async(target) as copy:
        assert [] == await copy.holders()
        assert [] == await copy.waiters()
        states = {row.state for row in (await copy.acting_as(OPERATOR, tenant=EVERY_TENANT).unresolved()).rows}
        assert {"accepted", "executing", "succeeded"} == states
        async with copy.lock("jobs").try_hold("key-1") as lease, copy.lock("late").try_hold("key-2") as other_lease:
            assert lease is not None
            assert other_lease is None  # it is held back: its holder, of an opening that has ended, may still be at work
            assert lease.fence > given
        first = await copy.position()
        assert first > last + PASSED_OVER
        assert (await copy.admit(inbound("a1"), granted())).duplicate
        assert answer == await copy.admit(inbound("w1"), granted(), command_id="once")
        async with counterfoil.Runtime(copy, authorize=_grant_for, resolve_agent=_agent_for, deliver=_deliver) as runtime:
            resumed = await runtime.resume(PERSON)
            await runtime.drain()
        assert resumed
        assert (await copy.verify()).agrees


@pytest.mark.contract("CLI-02")
@pytest.mark.parametrize(("one", "other"), DIRECTIONS)
def test_the_original_may_be_written_meanwhile(name: Name, one: Engine, other: Engine) -> None:
    """The copy is of one moment."""
    source, target = name(one), name(other)
    stop = threading.Event()
    with counterfoil.open(source, limits=counterfoil.Limits(max_pending_per_process=10_000)) as journal:

        def write() -> None:
            number = 0
            while not stop.is_set():
                journal.admit(
                    Inbound(connection="tg", conversation=f"c{number}", actor="ann", event_id=f"{number}", text="x"), granted()
                )
                number += 1

        writer = threading.Thread(target=write)
        for number in range(1_100):
            event = Inbound(connection="tg", conversation=f"d{number}", actor="ann", event_id=f"d{number}", text="x")
            if not number:
                writer.start()
            journal.admit(event, granted())
        copied = copy_journal(source, target)
        stop.set()
        writer.join()
        assert copied.agrees
        assert 1_000 < copied.position <= journal.position()
    end = rows(target, "SELECT max(position), count(*) FROM cf_event")
    assert [(copied.position, copied.rows["events"])] == end
    assert copied.rows["payloads"] == rows(target, "SELECT count(*) FROM cf_payload")[0][0]


# Where there is something already.


@pytest.mark.contract("CLI-02")
@pytest.mark.parametrize("other", ["sqlite", "postgres"])
def test_what_is_there_is_never_overwritten(name: Name, other: Engine, tmp_path: Path, postgres: Postgres) -> None:
    source, target = name("sqlite"), name(other)
    admit(source, "a1")
    admit(target, "b1")
    before = all_of(target)

    assert "already" in run("copy", source, target, status=1).stderr
    assert "already" in run("copy", source, source, status=1).stderr
    assert before == all_of(target)
    if other == "sqlite":
        (tmp_path / "notes").write_text("hello")
        assert "is there already" in run("copy", source, str(tmp_path / "notes"), status=1).stderr
        assert "hello" == (tmp_path / "notes").read_text()


@pytest.mark.contract("CLI-02")
def test_what_is_empty_is_taken(name: Name, tmp_path: Path, postgres: Postgres) -> None:
    """A schema that an owner has made, a journal that nobody has used, and a file of length nought."""
    source, schema, unused, file = name("sqlite"), name("postgres"), name("postgres"), name("sqlite")
    admit(source, "a1")
    postgres.execute(f'CREATE SCHEMA "{schema.rpartition("=")[2]}"')
    counterfoil.open(unused).__enter__().close()
    Path(file).touch()

    for target in (schema, unused, file):
        run("copy", source, target)
        assert all_of(source) == all_of(target)
        assert "accepted" == admit(target, "b1").status
        run("verify", target)


@pytest.mark.contract("CLI-02", "JRN-10")
def test_a_schema_that_holds_something_else_is_refused(name: Name, postgres: Postgres) -> None:
    source, target = name("sqlite"), name("postgres")
    admit(source, "a1")
    schema = target.rpartition("=")[2]
    postgres.execute(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}".cf_mine (x integer)')

    assert "has tables whose names begin with cf_ and is no journal" in run("copy", source, target, status=1).stderr


# What ends early.

KILLED = """
import os, signal, sys
from counterfoil.infrastructure.copying import copy_journal

def end(what, done, total):
    if what == sys.argv[3]:
        if sys.argv[4] == "raise":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)

copy_journal(sys.argv[1], sys.argv[2], end)
"""


def ended(source: str, target: str, when: str, how: str) -> int:
    done = subprocess.run([sys.executable, "-c", KILLED, source, target, when, how], capture_output=True, check=False, timeout=60)
    return done.returncode


@pytest.fixture
async def many(name: Name) -> str:
    """A journal of several pages."""
    source = name("sqlite")
    async with counterfoil.open_async(source, limits=counterfoil.Limits(max_pending_per_process=10_000)) as journal:
        events = (Inbound(connection="tg", conversation=f"c{n}", actor="ann", event_id=f"{n}", text="x") for n in range(2_500))
        await asyncio.gather(*(journal.admit(event, granted()) for event in events))
    return source


WHEN = ["events", "payloads", "verifying history of the original", "verifying history of the copy"]


@pytest.mark.contract("CLI-02")
@pytest.mark.parametrize("when", WHEN)
def test_a_copy_that_was_killed_is_no_journal(name: Name, many: str, when: str) -> None:
    """In PostgreSQL there is nothing; a file is refused by everybody, in a sentence that says what to do about it."""
    schema, file = name("postgres"), name("sqlite")
    for target in (schema, file):
        assert -signal.SIGKILL == ended(many, target, when, "kill")
    end = time.monotonic() + 30
    while is_there(schema) and time.monotonic() < end:
        time.sleep(0.01)  # until the server has seen the end of the process
    assert not is_there(schema)
    for readonly in (True, False):
        with pytest.raises(JournalRefused, match="is a copy that was not finished; remove the file, and copy again"):
            counterfoil.open(file, readonly=readonly).__enter__()
    for verb in ("verify", "stats"):
        assert "is a copy that was not finished" in run(verb, file, status=1).stderr
    assert "remove it if it is a copy that was not finished" in run("copy", many, file, status=1).stderr
    Path(file).unlink()
    for target in (schema, file):
        run("copy", many, target)
        assert all_of(many) == all_of(target)


@pytest.mark.contract("CLI-02")
@pytest.mark.parametrize("when", WHEN)
def test_a_copy_that_was_interrupted_leaves_nothing(name: Name, many: str, when: str, tmp_path: Path) -> None:
    schema, file = name("postgres"), name("sqlite")
    for target in (schema, file):
        assert 0 != ended(many, target, when, "raise")
    assert not is_there(schema)
    assert [] == list(tmp_path.glob(f"{Path(file).name}*"))


@pytest.mark.contract("CLI-02")
@pytest.mark.parametrize(
    ("other", "answer"), [("sqlite", "another process holds the journal; try again"), ("postgres", "does not exist")]
)
def test_nobody_opens_what_is_not_whole(name: Name, many: str, other: Engine, answer: str) -> None:
    """As long as the copy goes on, the file is somebody's, and the schema is not there."""
    target = name(other)
    seen: list[str] = []

    def look(what: str, done: int, total: int) -> None:
        if not seen and what == "payloads":
            words = [sys.executable, "-m", "counterfoil", "stats", target]
            looked = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
            assert 1 == looked.returncode
            seen.append(looked.stderr)

    assert copy_journal(many, target, look).agrees
    assert answer in seen[0]
    run("stats", target)


@pytest.mark.contract("CLI-02", "JRN-13")
@pytest.mark.parametrize(("one", "other"), DIRECTIONS)
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cf_event SET connection = 'else' WHERE position = 3",
        "DELETE FROM cf_event WHERE position = 3",
        "UPDATE cf_unresolved_v1 SET state = 'else'",
    ],
)
def test_what_does_not_agree_is_not_copied(name: Name, one: Engine, other: Engine, damage: str, tmp_path: Path) -> None:
    """Exit status 3, with the first thing that does not agree, and nothing is kept."""
    source, target = name(one), name(other)
    for event_id in ("a1", "b1"):
        admit(source, event_id)
    change(source, damage)
    result = run("copy", source, target, "--json", status=3)

    assert not json.loads(result.stdout)["agrees"]
    assert "original" in {found["side"] for found in json.loads(result.stdout)["differences"]}
    assert "no copy was kept" in result.stderr
    assert not is_there(target)
    if other == "sqlite":
        assert [] == list(tmp_path.glob(f"{Path(target).name}*"))


@pytest.mark.contract("LCK-03", "JRN-01")
def test_what_was_kept_beside_a_file_that_went_is_kept(name: Name) -> None:
    """The highest position and epoch that were ever given under a name: a copy there goes on above them, and takes none away."""
    source, target = name("sqlite"), name("sqlite")
    admit(source, "a1")
    for beside, kept in (("head", f"{2**40:020}\n"), ("epoch", f"{2**50}\n")):
        Path(f"{target}-{beside}").write_text(kept)
    assert 0 != ended(source, target, "payloads", "raise")
    assert f"{2**50}\n" == Path(f"{target}-epoch").read_text()
    run("copy", source, target)
    with counterfoil.open(target) as journal, journal.lock("jobs").hold("k") as lease:
        assert lease.fence > 2**50 << 64
        assert journal.position() > 2**40
        assert journal.verify().agrees


def test_an_event_that_cannot_be_read_is_told(name: Name) -> None:
    source, target = name("sqlite"), name("postgres")
    admit(source, "a1")
    change(source, "UPDATE cf_event SET state = ? WHERE position = 3", b"{")

    assert "the event at position 3 cannot be read or folded" in run("copy", source, target, status=1).stderr
    assert not is_there(target)


# What is refused.


@pytest.mark.contract("CLI-03")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("copy",), "Missing argument"),
        (("copy", "there.sqlite"), "Missing argument"),
        (("copy", "missing.sqlite", "to.sqlite"), "does not exist"),
        (("copy", ":memory:", "to.sqlite"), "name a file"),
        (("copy", "there.sqlite", ":memory:"), "would be gone at once"),
        (("copy", "there.sqlite", "nowhere/to.sqlite"), "create it first"),
        (("copy", "there.sqlite", "mysql://x"), "not a URL of mysql"),
        (("copy", "there.sqlite", "postgresql://u:s3cret@h:x/d"), "the port"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    admit("there.sqlite", "a1")
    before = sorted(os.listdir(tmp_path))
    result = run(*words, status=2)

    assert said in result.stderr
    assert "s3cret" not in result.stderr
    assert 1 == result.stderr.count("\n")
    assert before == sorted(os.listdir(tmp_path))


@pytest.mark.contract("JRN-11")
def test_roles_and_copies(logins: Logins, name: Name) -> None:
    """A reader copies nothing, for it does not see all; a writer creates nothing; an owner copies into its own schema."""
    source = name("sqlite")
    admit(source, "a1")
    assert "the role may not do this" in run("copy", logins.reader, name("sqlite"), status=1).stderr
    assert "this role cannot create it" in run("copy", source, f"{logins.writer}_other", status=1).stderr
    assert "the role may not do this" in run("copy", source, logins.writer, status=1).stderr
    run("copy", source, logins.owner)
    assert "accepted" == admit(logins.writer, "b1").status
    run("verify", logins.reader)
    for user in (logins.reader, logins.writer, logins.owner):
        assert "@" not in run("copy", source, user, status=1).stderr


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize("one", ["sqlite", "postgres"])
def test_a_newer_format_is_not_copied(name: Name, one: Engine) -> None:
    source = name(one)
    admit(source, "a1")
    change(source, "UPDATE cf_head SET format = 2")

    with pytest.raises(FormatUnknown):
        copy_journal(source, name("postgres"))
    assert "" == run("copy", source, name("sqlite"), status=1).stdout
