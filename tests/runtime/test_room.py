"""A route that is full of what a dead process left is emptied by the next event on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import counterfoil

PERSON = counterfoil.Identity(tenant="acme", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])
LIMITS = counterfoil.Limits(max_pending_per_binding=2)


def inbound(event_id: str) -> counterfoil.Inbound:
    return counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id=event_id, text="hello")


async def echo(turn: counterfoil.Turn) -> str:
    return turn.text


@pytest.mark.contract("RUN-08", "ADM-06")
async def test_a_new_event_runs_what_waits_before_it_also_when_there_is_no_room_for_it(journal_url: str) -> None:
    async with counterfoil.open_async(journal_url, limits=LIMITS) as journal:
        for event_id in ("1", "2"):
            assert "accepted" == (await journal.admit(inbound(event_id), GRANT)).status
    sent: list[str] = []

    async def deliver(reply: counterfoil.Reply) -> None:
        sent.append(reply.in_reply_to)

    async with counterfoil.open_async(journal_url, limits=LIMITS) as journal:
        runtime = counterfoil.Runtime(
            journal, authorize=lambda event, action: GRANT, resolve_agent=lambda alias, identity, event: echo, deliver=deliver
        )
        async with runtime, asyncio.timeout(20):
            refused = await runtime.admit(inbound("3"))
            await runtime.drain()
            accepted = await runtime.admit(inbound("3"))
            await runtime.drain()

    assert ("capacity", True, "accepted") == (refused.reason, refused.retryable, accepted.status)
    assert ["1", "2", "3"] == sent


async def test_room_that_was_made_before_the_wait_is_not_waited_for(journal_url: str) -> None:
    """An entry may leave its queue between a refusal and the wait that follows it."""
    async with counterfoil.open_async(journal_url) as journal:
        runtime = counterfoil.Runtime(
            journal,
            authorize=lambda event, action: GRANT,
            resolve_agent=lambda alias, identity, event: echo,
            deliver=lambda reply: None,
        )
        async with runtime:
            await runtime.admit(inbound("1"))
            await runtime.drain()
            waiting = asyncio.create_task(runtime.wait_for_room())
            await asyncio.sleep(0)
            await asyncio.sleep(0)

            assert waiting.done()


@pytest.mark.sqlite_only("a file is moved away; tests/postgres stops the server")
@pytest.mark.contract("ADM-07")
async def test_a_store_that_is_not_there_any_more_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    async with counterfoil.open_async(path) as journal:
        runtime = counterfoil.Runtime(
            journal,
            authorize=lambda event, action: GRANT,
            resolve_agent=lambda alias, identity, event: echo,
            deliver=lambda reply: None,
        )
        async with runtime:
            path.rename(tmp_path / "moved.sqlite")

            assert ("unavailable", True) == ((answer := await runtime.admit(inbound("1"))).reason, answer.retryable)
            assert "unavailable" == (await journal.admit(inbound("1"), GRANT)).reason
            (tmp_path / "moved.sqlite").rename(path)
