"""A runtime whose opening is lost: what ran is listed, what waited runs, and nothing is sent twice, without the host's doing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import counterfoil
from counterfoil import AsyncJournal, Grant, Identity, Inbound, Limits, Reply, Runtime, Turn
from tests.postgres_server import Postgres, Server

OPERATOR = Identity(tenant="acme", principal="pat", verified=True, permissions=frozenset({"journal:operate"}))
GRANT = Grant(identity=OPERATOR, aliases=("agent",))
PATIENCE = 20.0
SIGNS = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = '"{schema}"'::regnamespace AND objsubid = 2 AND objid > 0 AND mode = 'ExclusiveLock'
"""


def event(event_id: str, conversation: str) -> Inbound:
    return Inbound(connection="tg", conversation=conversation, actor="ann", event_id=event_id, text=event_id)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads and on the server
            await asyncio.sleep(0.005)


class Host:
    """A host whose agents and deliveries wait for a word, where one is to be waited for."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cancelled: list[str] = []
        self.sent: list[str] = []
        self.hold: dict[str, asyncio.Event] = {}
        """By text: what an agent or a delivery waits for."""
        self.journal: AsyncJournal
        self.runtime: Runtime

    async def agent(self, turn: Turn) -> str:
        self.began.append(turn.text)
        try:
            if turn.text in self.hold:
                await self.hold[turn.text].wait()
        except asyncio.CancelledError:
            self.cancelled.append(turn.text)
            raise
        return f"re {turn.text}"

    async def deliver(self, reply: Reply) -> None:
        self.sent.append(reply.text)
        if reply.text in self.hold:
            await self.hold[reply.text].wait()

    async def admit(self, event_id: str, conversation: str) -> str:
        answer = await self.runtime.admit(event(event_id, conversation))
        assert answer.operation_id is not None
        return answer.operation_id

    async def states(self) -> dict[str, tuple[str, str]]:
        """What is listed, by operation."""
        rows = (await self.journal.acting_as(OPERATOR).unresolved()).rows
        return {row.operation_id: (row.state, row.reply_state) for row in rows}


@asynccontextmanager
async def host_at(url: str, limits: Limits | None = None) -> AsyncIterator[Host]:
    host = Host()

    async def authorize(inbound: Inbound, action: str) -> Grant:
        return GRANT

    async def resolve(alias: str, identity: Identity, inbound: Inbound) -> Any:
        return host.agent

    async with counterfoil.open_async(url) as host.journal:
        async with Runtime(
            host.journal, authorize=authorize, resolve_agent=resolve, deliver=host.deliver, limits=limits
        ) as host.runtime:
            yield host


@pytest.mark.contract("RUN-05", "RUN-06", "RUN-08", "LCK-08")
async def test_a_turn_whose_opening_is_lost_is_aborted_and_what_waits_runs(postgres: Postgres, schema: str) -> None:
    """The next opening takes what its process had waiting; what was running is for the operator."""
    async with host_at(postgres.url(schema), Limits(max_active_sessions=1)) as host:
        host.hold["1"] = asyncio.Event()
        running = await host.admit("1", "c1")
        await until(lambda: host.began == ["1"])
        await host.admit("2", "c1")
        await host.admit("3", "c2")

        postgres.execute(SIGNS.format(schema=schema))
        await until(lambda: "1" in host.cancelled)
        await until(lambda: "re 3" in host.sent)

        assert "re 1" not in host.sent
        states = await host.states()
        assert states[running][0] in ("executing", "unknown")
        assert (await host.journal.verify()).agrees


@pytest.mark.contract("RPL-03", "RUN-05")
async def test_a_delivery_during_which_the_opening_is_lost_is_marked_and_not_sent_again(postgres: Postgres, schema: str) -> None:
    async with host_at(postgres.url(schema)) as host:
        host.hold["re 1"] = asyncio.Event()
        await host.admit("1", "c1")
        await until(lambda: host.sent == ["re 1"])

        postgres.execute(SIGNS.format(schema=schema))
        await asyncio.sleep(0.05)
        host.hold["re 1"].set()
        await host.admit("2", "c1")
        await until(lambda: "re 2" in host.sent)
        await host.runtime.drain()

        assert Counter(host.sent) == Counter(["re 1", "re 2"])
        assert not await host.states()
        assert (await host.journal.verify()).agrees


@pytest.mark.slow
@pytest.mark.contract("RUN-02", "RUN-05", "ADM-07", "JRN-03", "RPL-03")
async def test_a_runtime_goes_on_when_its_server_is_started_anew(own_postgres: Server, schema: str) -> None:
    """Under load, again and again: what was accepted is answered once, or listed; nothing is answered twice."""
    async with host_at(own_postgres.url(schema), Limits(max_pending_per_process=10_000, max_routes=10_000)) as host:
        accepted: dict[str, str] = {}
        stopped = False

        async def send(caller: int) -> None:
            number = 0
            while not stopped:
                number += 1
                text = f"{caller}-{number}"
                answer = await host.runtime.admit(event(text, f"c{caller}"))
                if answer.operation_id is not None:
                    accepted[text] = answer.operation_id
                await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(send(caller)) for caller in range(6)]
        for _ in range(3):
            many = len(host.sent)
            await until(lambda many=many: len(host.sent) > many + 30)  # type: ignore[misc]
            await asyncio.to_thread(own_postgres.restart, immediate=True)
        many = len(host.sent)
        await until(lambda: len(host.sent) > many + 30)
        stopped = True
        await asyncio.gather(*tasks)
        async with asyncio.timeout(PATIENCE):
            await host.runtime.drain()

        assert not [text for text, count in Counter(host.sent).items() if count > 1]
        assert not [text for text, count in Counter(host.began).items() if count > 1]
        states = await host.states()
        silent = {operation_id for text, operation_id in accepted.items() if f"re {text}" not in host.sent}
        assert silent <= set(states)
        assert "accepted" not in {states[operation_id][0] for operation_id in silent}
        assert (await host.journal.verify()).agrees
