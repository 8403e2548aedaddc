"""
A host to kill: it takes events through a journal, and notes in files that it syncs what it did.

Started without arguments it waits for jobs, one JSON object a line on standard input, and forks a process for each: it has loaded
everything and opened nothing by then, so a worker begins within milliseconds. `{"start": …}` answers with the process id,
`{"wait": pid}` with how it ended: its exit status, or the signal as a negative number.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from counterfoil.domain.exchange import DeliveryFailed, Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.journal_async import open_async
from counterfoil.infrastructure.runtime import Runtime
from counterfoil.infrastructure.tx import Settle, Tx
from counterfoil.infrastructure.unit import Unit
from tests.commits import around_commits
from tests.rows import divided

OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)
GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def note(path: Path, *words: str) -> None:
    """Add a line to a file and sync it: what is in it has happened, whatever happens next."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, ("\t".join(words) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def kill_at_append(core: Core, number: int, moment: str) -> None:
    """Die just before or just after the commit of the group that appends events for the n-th time."""
    seen = 0

    def dying(unit: Unit, commit: Callable[[], bool]) -> bool:
        nonlocal seen
        seen += bool(unit.changes.events)
        due = seen == number and bool(unit.changes.events)
        if due and moment == "before":
            die()
        landed = commit()
        if due and moment == "after":
            die()
        return landed

    around_commits(core, dying)


class Worker:
    """One run of the host. The job says what comes in, what the agent and the channel do, and where it dies."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.folder = Path(job["folder"])
        self.url: str = job["url"]
        self.events: list[dict[str, str]] = job.get("events", [])
        self.kind: str = job.get("kind", "plain")
        self.die_in: str | None = job.get("die_in")
        self.die_at: tuple[int, str] | None = job.get("die_at")
        self.reconciles: list[tuple[str, int]] = job.get("reconciles", [])

    def maybe(self, place: str) -> None:
        if place == self.die_in:
            die()

    async def authorize(self, inbound: Inbound, action: str) -> Grant:
        self.maybe("authorize")
        return GRANT

    async def resolve_agent(self, alias: str, identity: Identity, inbound: Inbound) -> Any:
        self.maybe("resolve_agent")
        return self.agent

    async def agent(self, turn: Turn) -> str | None:
        self.maybe("agent")
        note(self.folder / "ran", turn.event_id)
        if self.kind in ("settles", "joins"):
            await (self.settle(turn) if self.kind == "settles" else self.join(turn))
            self.maybe("agent_done")
            return None
        self.maybe("agent_done")
        if self.kind == "fails":
            raise ValueError("as it was told to")
        if self.kind == "hangs":
            await asyncio.Event().wait()
        if self.kind == "traffic":
            await asyncio.sleep(0)
        return "" if self.kind == "silent" else f"re: {turn.text}"

    async def settle(self, turn: Turn) -> None:
        """Write a row of the host's and settle the turn, in one transaction of the journal's."""

        def body(tx: Tx) -> None:
            tx.execute(f"INSERT INTO orders VALUES ('{turn.event_id}')")
            tx.append(Settle(turn, f"re: {turn.text}"))
            self.maybe("inside")

        await self.journal.transact(body)

    async def join(self, turn: Turn) -> None:
        """The same, in a transaction of the host's own."""
        database, schema = divided(self.url)
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute(f"INSERT INTO \"{schema}\".orders VALUES ('{turn.event_id}')".encode())
            async with self.journal.within(connection) as tx:
                await tx.append(Settle(turn, f"re: {turn.text}"))
            self.maybe("inside")
            await connection.commit()

    async def deliver(self, reply: Reply) -> DeliveryFailed | None:
        self.maybe("deliver")
        if self.kind == "unreachable":
            return DeliveryFailed("unreachable")
        note(self.folder / "answers", reply.in_reply_to, reply.kind, reply.text)
        self.maybe("delivered")
        return None

    async def run(self) -> None:
        limits = Limits(max_pending_per_process=20)
        async with open_async(self.url, limits=limits) as journal:
            self.journal = journal
            if self.die_at is not None:
                kill_at_append(journal.core, *self.die_at)
            runtime = Runtime(journal, authorize=self.authorize, resolve_agent=self.resolve_agent, deliver=self.deliver)
            async with runtime:
                await runtime.resume(OPERATOR, tenant=EVERY_TENANT)
                for event in self.events:
                    while (answer := await runtime.admit(event)).reason == "capacity":
                        await runtime.wait_for_room()
                    assert answer.status == "accepted", answer
                    self.maybe("before_ack")
                    note(self.folder / "acknowledged", event["event_id"])
                for operation_id, version in self.reconciles:
                    await runtime.reconcile(
                        OPERATOR,
                        operation_id,
                        expected_version=version,
                        acknowledge_duplicate_risk=True,
                        tenant=EVERY_TENANT,
                    )
                await runtime.drain()


def child(job: dict[str, Any]) -> NoReturn:
    status = 1
    signal.alarm(60)  # one that hangs fails its test
    try:
        asyncio.run(Worker(job).run())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            pid = os.fork()
            if pid == 0:
                child(request["start"])
            print(pid, flush=True)
        else:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
