"""A host as its author types it. Never run: mypy reads it without the plugin of pydantic, as in a host's own repository."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, assert_type

import counterfoil
from counterfoil import (
    Admission,
    Agent,
    AgentAnswer,
    Authorize,
    Clock,
    Deliver,
    DeliveryFailed,
    Grant,
    Identity,
    Inbound,
    Limits,
    NotSent,
    Reply,
    ResolveAgent,
    Resumed,
    Turn,
)


async def grant_for(inbound: Inbound, action: str) -> Grant | None:
    if action == "command" or inbound.claims is None:
        return None
    person = Identity(tenant="acme", user=inbound.actor, principal=inbound.actor, permissions=["read"], verified=True)
    return Grant(identity=person, aliases=["helper", "clerk"], revision="2")


def plain_grant_for(inbound: Inbound, action: str) -> Grant | None:
    person = Identity(tenant="acme", principal=inbound.actor, permissions={"read"}, verified=True)
    return Grant.of(person, "helper")


async def helper(turn: Turn) -> AgentAnswer | str:
    return AgentAnswer(text=turn.text, leaf=turn.event_id) if turn.generation else ""


def clerk(turn: Turn) -> str | None:
    return turn.text or None


async def agent_for(alias: str, identity: Identity, inbound: Inbound) -> Agent:
    return helper if alias in identity.permissions else clerk


def plain_agent_for(alias: str, identity: Identity, inbound: Inbound) -> Agent:
    return clerk


async def send(reply: Reply) -> str | DeliveryFailed | None:
    if reply.thread is None:
        raise NotSent("offline")
    return DeliveryFailed("forbidden") if reply.kind == "notice" else reply.in_reply_to


def plain_send(reply: Reply) -> None:
    print(reply.conversation, reply.text)


class Callbacks:
    """What a host may keep in fields of its own."""

    authorize: Authorize = staticmethod(plain_grant_for)
    resolve_agent: ResolveAgent = staticmethod(plain_agent_for)
    deliver: Deliver = staticmethod(plain_send)


async def main(updates: Iterable[dict[str, Any]], clock: Clock) -> None:
    limits = Limits(max_active_sessions=2, lease_ttl=timedelta(seconds=10), max_wait="5m")
    async with counterfoil.open_async("support.sqlite", limits=limits, clock=clock) as journal:
        async with counterfoil.Runtime(journal, authorize=grant_for, resolve_agent=agent_for, deliver=send) as runtime:
            for update in updates:
                assert_type(await runtime.admit(Inbound(connection="tg", **update)), Admission)
                await runtime.admit({"connection": "tg", **update})
            assert_type(await runtime.resume(Identity(tenant="acme", principal="olga", verified=True)), Resumed)
            await runtime.drain()
        async with counterfoil.Runtime(
            journal, authorize=plain_grant_for, resolve_agent=plain_agent_for, deliver=plain_send, deliver_timeout="5s"
        ):
            pass
