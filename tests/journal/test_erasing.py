"""Erasing beside everything else that goes on: it takes what came before it, and nothing that comes after."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.identity import reach
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.reconcile import Reconcile
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.admission import Admitted
from counterfoil.infrastructure.commands.erasure import EraseScope, EraseSubject
from counterfoil.infrastructure.commands.once import Once
from counterfoil.infrastructure.commands.reconcile import ReconcileOperation
from counterfoil.infrastructure.commands.turn import Claim, Mark, Settle
from counterfoil.infrastructure.remembering import remember
from counterfoil.infrastructure.sqlite.store import APPEND
from tests.copies import verify_at
from tests.rows import all_rows_in, rows
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from counterfoil.infrastructure.core import Core
    from tests.engines import Engine
    from tests.journal.conftest import Host


def remembered(core: Core, admitted: Admitted) -> Inbound | None:
    """Return what the journal can still tell of an event."""
    found = core.read(lambda store: remember(store, str(admitted.admission.operation_id)))
    assert found is not None
    return found.inbound


class Wait:
    """Hold the writer until what follows is queued, so that it is one group."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def run(self, unit: Any) -> None:
        self.begun.set()
        self.go.wait(30)


def together(core: Core, *commands: Any) -> list[Any]:
    """Run commands as they come when they were all queued behind another one."""
    wait = Wait()
    held = core.committer.submit(wait)
    assert wait.begun.wait(30)
    futures = [core.committer.submit(command) for command in commands]
    wait.go.set()
    held.result(30)
    return [future.result(30) for future in futures]


@pytest.mark.contract("ADM-05", "IDN-06", "JRN-04")
@pytest.mark.parametrize("whole", [False, True], ids=["person", "scope"])
def test_an_erasure_takes_nothing_of_what_comes_after_it_in_its_group(host: Host, whole: bool) -> None:
    core = host.open()
    before = host.admit(core, "before")
    identity = host.grant.identity
    erase = EraseScope(identity) if whole else EraseSubject(identity, "actor", "tg", "ann")

    erased, after, again = together(core, erase, host.message("after"), host.message("later"))

    assert erased
    for admitted in (after, again):
        found = remembered(core, admitted)
        assert found is not None
        assert ("ann", "hello") == (found.actor, found.text)
    assert remembered(core, before) is None


@pytest.mark.contract("JRN-02")
def test_of_equal_erasures_at_once_one_has_an_effect(host: Host) -> None:
    core = host.open()
    host.admit(core, "e1")
    erase = EraseSubject(host.grant.identity, "actor", "tg", "ann")

    assert [True, False, False] == together(core, erase, erase, erase)
    assert 1 == host.types(core).count("subject.erased")


@pytest.mark.contract("IDN-06")
def test_what_was_erased_does_not_come_back_with_a_turn_that_ran_meanwhile(host: Host) -> None:
    core = host.open()
    admitted = host.admit(core, "e1")
    claimed = host.run(core, Claim(str(admitted.route), admitted.position))
    host.run(core, EraseSubject(host.grant.identity, "actor", "tg", "ann"))
    operation_id = str(admitted.admission.operation_id)

    host.run(core, Settle(operation_id, claimed.fence, Answer("succeeded", reply="dear ann")))
    host.run(core, Mark(operation_id, 1, Delivery("delivered", message_id="m-1"), claimed.fence))

    for table in ("cf_payload", "cf_external_id"):
        assert [(0,)] == rows(host.url, f"SELECT count(*) FROM {table}")
    assert "reply.delivered" in host.types(core)


@pytest.mark.sqlite_only("the plans are those of SQLite")
@pytest.mark.parametrize(
    "name", [f"erase_{what}_of_{whose}" for what in ("payloads", "external_ids") for whose in ("subject", "scope")]
)
def test_erasing_goes_by_indexes(host: Host, name: str) -> None:
    explain = f"EXPLAIN QUERY PLAN {getattr(APPEND, name)}"
    plan = host.open().read(lambda store: store.connection.execute(explain, (b"x" * 16,)).fetchall())

    assert not [row[3] for row in plan if "SCAN" in row[3] and "cf_event" in row[3]]


class FailingCommit:
    """A connection whose next COMMIT does not land."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT" and self.fails:
            self.fails = False
            self._connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(sql, *values)


@pytest.mark.sqlite_only("the connection whose COMMIT fails is SQLite's; tests/postgres cuts the wire instead")
@pytest.mark.contract("ADM-07", "JRN-03")
def test_a_lost_commit_without_events_is_not_taken_for_one_that_landed(host: Host) -> None:
    core = host.open()
    host.admit(core, "e1")
    host.admit(core, "e1")
    failing = FailingCommit(sqlite_engine(core)._writer)
    sqlite_engine(core)._writer = sqlite_engine(core)._store.connection = failing  # type: ignore[assignment]

    with pytest.raises(JournalUnavailable):
        host.run(core, host.message("e1"))
    assert not failing.fails


@pytest.mark.contract("JRN-05")
def test_a_refused_command_with_an_id_begins_no_scope(host: Host) -> None:
    core = host.open()
    host.admit(core, "e1")
    stranger = host.grant.identity.model_copy(update={"tenant": "other"})
    asked = Reconcile(1, False, False, "operator", None)
    command = ReconcileOperation(reach(stranger, None), "op-" + "0" * 32, asked, may_send=False)
    once: Once[Any] = Once(command, stranger, b"c-1", b"mark", lambda answer: None, lambda values, unit: None)

    assert "not_found" == host.run(core, once).status
    assert [(1,)] == rows(host.url, "SELECT count(*) FROM cf_scope")


def test_a_listener_that_raises_costs_no_caller_anything(host: Host) -> None:
    core = host.open()

    def listener() -> None:
        raise ValueError

    core.engine.on_commit.append(listener)

    assert "accepted" == host.admit(core, "e1").admission.status


@pytest.mark.contract("IDN-06", "RCN-02")
@pytest.mark.parametrize("whole", [False, True], ids=["person", "scope"])
def test_what_waits_for_an_erased_person_is_filed_and_counts_no_more(host: Host, engine: Engine, whole: bool) -> None:
    """It could never run, be sent or be listed in its own scope again."""
    core = host.open()
    claimed = host.claim(core, host.admit(core, "e1"))
    host.settle(core, claimed)
    host.admit(core, "e2")
    identity = host.grant.identity
    host.run(core, EraseScope(identity) if whole else EraseSubject(identity, "actor", "tg", "ann"))

    for table in ("cf_unresolved_v1", "cf_queues_v1"):
        assert [(0,)] == rows(host.url, f"SELECT count(*) FROM {table}")
    assert {"operation.abandoned", "reply.delivery_failed"} <= set(host.types(core))
    assert not [row for row in all_rows_in(core) if "hello" in row]
    if engine == "sqlite":
        assert b"hello" not in Path(f"{host.path}-wal").read_bytes() + host.path.read_bytes()
    assert verify_at(host.url).agrees


@pytest.mark.contract("IDN-04", "JRN-05")
def test_a_kept_answer_is_not_for_an_identity_that_is_no_longer_active(host: Host) -> None:
    core = host.open()
    identity = host.grant.identity
    revoked = identity.model_copy(update={"verified": False})
    operation_id = str(host.admit(core, "e1").admission.operation_id)

    def ask(who: Any) -> Any:
        command = ReconcileOperation(reach(who, None), operation_id, Reconcile(1, False, False, "operator", None), may_send=False)
        return host.run(
            core, Once(command, who, b"c-1", b"mark", lambda answer: {"outcome": answer.outcome}, lambda values, unit: values)
        )

    assert "abandoned" == ask(identity).outcome
    assert {"outcome": "abandoned"} == ask(identity)
    assert "denied" == ask(revoked).status
