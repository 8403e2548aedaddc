"""
A worker of a fleet: a host that a test steers over a socket, and that notes in one file, shared by all, what it did.

Started with a socket it forks a worker for each socket that comes over it: it has loaded everything and opened nothing by then.
A worker reads requests, one JSON object a line, and answers each under its number; beside that it reports what happens.

What the agent does is said by the text, so whoever runs a message does the same: `hold` works until it is told to go, and ends
when it is aborted; `hold on` does not end then; `take 3` is at work for three seconds; everything else takes the
pace of the worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.clock import SystemClock
from counterfoil.infrastructure.commands.turn import Mark, Release, Settle
from counterfoil.infrastructure.committer import Request
from counterfoil.infrastructure.journal_async import AsyncJournal, open_async
from counterfoil.infrastructure.runtime import Runtime
from counterfoil.infrastructure.unit import Unit
from tests.clocks import HostClock
from tests.commits import around_commits

OPERATOR = Identity(tenant="ops", principal="olga", permissions=frozenset({OPERATE}), verified=True)
GRANT = Grant(identity=Identity(tenant="acme", principal="ann", verified=True), aliases=("agent",))
FEEDERS = 3
LONGEST_LINE = 16_777_216
LIFETIME = 240
"""Seconds after which a worker that nobody has ended ends itself: its test has failed by then."""


def note(path: Path, *words: str) -> None:
    """Add a line to a file and sync it: what is in it has happened, in this order, whatever happens next."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, ("\t".join(words) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Quiet:
    """A command that appends nothing; the writer waits after it, outside of its commit, until it is told to go on."""

    def run(self, unit: Unit) -> None:
        pass


class Opening:
    """One journal with its runtime; a worker may have several of the same file."""

    def __init__(self, worker: Worker, journal: AsyncJournal) -> None:
        self.worker = worker
        self.journal = journal
        self.failing = False
        self.quiet = Quiet()
        self.quiet_after: tuple[type, ...] = ()
        self.go = threading.Event()
        self.runtime = Runtime(journal, authorize=self.authorize, resolve_agent=self.resolve_agent, deliver=self.deliver)
        self._run_group = journal.core.committer._run_group
        journal.core.committer._run_group = self.run_group

    # The host.

    async def authorize(self, inbound: Inbound, action: str) -> Grant:
        return GRANT

    async def resolve_agent(self, alias: str, identity: Identity, inbound: Inbound) -> Any:
        self.worker.report("resolved", inbound.event_id)
        return self.agent

    async def agent(self, turn: Turn) -> str:
        worker, event_id, order = self.worker, turn.event_id, turn.text.split(":")[0]
        note(worker.order, "began", event_id, worker.name)
        worker.report("began", event_id)
        if order.startswith("take "):
            await asyncio.sleep(float(order.removeprefix("take ")))
        elif order in ("hold", "hold on"):
            await self.hold(worker.gate(event_id), event_id, stubborn=order == "hold on")
        else:
            await asyncio.sleep(self.worker.pace)
        return f"{worker.name} in {turn.session_id}"

    async def hold(self, gate: asyncio.Event, event_id: str, *, stubborn: bool) -> None:
        while True:
            try:
                await gate.wait()
                return
            except asyncio.CancelledError:
                self.worker.report("aborted", event_id)
                if not stubborn:
                    raise

    async def deliver(self, reply: Reply) -> None:
        note(self.worker.order, "sent", reply.in_reply_to, self.worker.name, reply.text)
        self.worker.report("sent", reply.in_reply_to)

    # What a test does to the writer.

    def run_group(self, group: list[Request[Any]]) -> None:
        told_to_fail = [request for request in group if self.failing and isinstance(request.command, Mark | Release)]
        for request in told_to_fail:
            request.error = JournalUnavailable("the store is away")
            self.worker.report("failed", type(request.command).__name__)
        if others := [request for request in group if request not in told_to_fail]:
            self._run_group(others)
        if any(request.command is self.quiet or isinstance(request.command, self.quiet_after) for request in group):
            self.quiet_after = ()
            self.worker.report("quiet")
            self.go.wait()

    def pause_next_commit(self) -> None:
        """Have the next commit that appends events wait, with everything written and every lock had, until it is told to go."""

        def paused(unit: Unit, commit: Callable[[], bool]) -> bool:
            if unit.changes.events:
                undo()
                self.worker.report("committing")
                self.go.wait()
            return commit()

        undo = around_commits(self.journal.core, paused)


class Worker:
    """One run of a worker. The job says on which journal, under what name, with which limits, and how long a turn takes."""

    def __init__(self, channel: socket.socket, job: dict[str, Any]) -> None:
        self.name: str = job["name"]
        self.order = Path(job["folder"]) / "order"
        self._url: str = job["url"]
        self._limits = Limits(**job["limits"])
        self._openings: int = job["openings"]
        self._clock = SystemClock() if job["set_wrongly"] is None else HostClock(job["set_wrongly"])
        self.pace: float = job["pace"]
        self._channel = channel
        self._gates: dict[str, asyncio.Event] = {}
        self.openings: list[Opening] = []

    def gate(self, event_id: str) -> asyncio.Event:
        return self._gates.setdefault(event_id, asyncio.Event())

    def report(self, *words: str) -> None:
        """Tell the test what happened; from any thread."""
        self._send({"report": words})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        self._loop.call_soon_threadsafe(self._writer.write, line)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=LONGEST_LINE)
        async with AsyncExitStack() as stack:
            for _ in range(self._openings):
                journal = await self._open(stack)
                self.openings.append(Opening(self, journal))
                await stack.enter_async_context(self.openings[-1].runtime)
            async with asyncio.TaskGroup() as obeying:
                while line := await reader.readline():
                    obeying.create_task(self._obey(json.loads(line)))
                for opening in self.openings:
                    await opening.runtime.stop(keep_queued=True)
        self._writer.close()
        await self._writer.wait_closed()

    async def _open(self, stack: AsyncExitStack) -> AsyncJournal:
        """Open the journal, as often as it takes: its server may just be away."""
        while True:
            try:
                return await stack.enter_async_context(open_async(self._url, limits=self._limits, clock=self._clock))
            except JournalUnavailable:
                await asyncio.sleep(0.05)

    async def _obey(self, request: dict[str, Any]) -> None:
        number, do, opening = request.pop("number"), request.pop("do"), self.openings[request.pop("opening")]
        answer = await getattr(self, f"do_{do}")(opening, **request)
        self._send({"number": number, "answer": answer})

    # Requests.

    async def do_admit(self, opening: Opening, *, event: dict[str, str]) -> dict[str, Any]:
        admission = await opening.runtime.admit(event)
        return {**asdict(admission), "retryable": admission.retryable}

    async def do_feed(self, opening: Opening, *, events: list[dict[str, str]]) -> None:
        """Admit events as a transport does: what may be tried again is, and what is accepted is acknowledged."""

        async def feed(number: int) -> None:
            runtime = self.openings[number % len(self.openings)].runtime
            for event in events[number::FEEDERS]:
                while (answer := await runtime.admit(event)).retryable:
                    self.report("refused", str(answer.reason))
                    if answer.reason == "stopped":
                        return
                    await runtime.wait_for_room()
                self.report(answer.status, event["event_id"])

        await asyncio.gather(*map(feed, range(FEEDERS)))

    async def do_go(self, opening: Opening, *, event_id: str) -> None:
        self.gate(event_id).set()

    async def do_resume(self, opening: Opening) -> int:
        while True:
            try:
                return (await opening.runtime.resume(OPERATOR, tenant=EVERY_TENANT)).routes
            except JournalUnavailable:
                await asyncio.sleep(0.05)

    async def do_drain(self, opening: Opening) -> None:
        for each in self.openings:
            await each.runtime.drain()

    async def do_stop(self, opening: Opening, *, keep_queued: bool) -> dict[str, int]:
        await opening.runtime.stop(keep_queued=keep_queued)
        return opening.journal.diagnostics()

    async def do_close(self, opening: Opening) -> None:
        await opening.runtime.stop(keep_queued=True)
        await opening.journal.close()

    async def do_reconcile(self, opening: Opening, *, operation_id: str, version: int, force: bool) -> dict[str, Any]:
        answer = await opening.runtime.reconcile(
            OPERATOR,
            operation_id,
            expected_version=version,
            acknowledge_duplicate_risk=True,
            force=force,
            tenant=EVERY_TENANT,
        )
        return asdict(answer)

    async def do_counters(self, opening: Opening) -> dict[str, int]:
        return opening.journal.diagnostics()

    async def do_fail(self, opening: Opening, *, failing: bool) -> None:
        opening.failing = failing

    async def do_quiet(self, opening: Opening) -> None:
        await opening.journal._submit(opening.quiet)

    async def do_quiet_after_settlement(self, opening: Opening) -> None:
        opening.quiet_after = (Settle,)

    async def do_pause_commit(self, opening: Opening) -> None:
        opening.pause_next_commit()

    async def do_go_on(self, opening: Opening) -> None:
        opening.go.set()


def child(channel: socket.socket) -> NoReturn:
    status = 1
    signal.alarm(LIFETIME)
    try:
        with channel.makefile("rb", buffering=0) as lines:
            job = json.loads(lines.readline())
        asyncio.run(Worker(channel, job).run())
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Fork a worker for each socket that comes, and tell its process id; wait for the one whose id comes instead."""
    with socket.socket(fileno=int(sys.argv[1])) as server:
        serve(server)


def serve(server: socket.socket) -> None:
    while True:
        request, descriptors, _, _ = socket.recv_fds(server, 64, 1)
        if not request:
            return
        if descriptors:
            pid = os.fork()
            if pid == 0:
                server.close()
                child(socket.socket(fileno=descriptors[0]))
            os.close(descriptors[0])
            server.sendall(str(pid).encode())
        else:
            options = os.WUNTRACED if request.startswith(b"stopped") else 0
            _, status = os.waitpid(int(request.split()[1]), options)
            server.sendall(str(-status if options else os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    main()
