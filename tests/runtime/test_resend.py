"""A resend: for whom it is sent, and what is told to whoever asks for it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.exchange import DeliveryFailed
from counterfoil.domain.identity import EVERY_TENANT
from counterfoil.domain.reconcile import Reconciliation
from tests.runtime.conftest import OPERATOR, PERSON, granted

if TYPE_CHECKING:
    from tests.runtime.conftest import Host


async def failed(host: Host, event_id: str = "m1") -> str:
    """Leave an operation whose reply was not delivered, and let the next be; return its id."""
    host.on_deliver = lambda reply: DeliveryFailed("forbidden")
    operation_id = await host.answer(event_id, event_id)
    host.on_deliver = lambda reply: None
    host.sent.clear()
    return operation_id


async def reconcile(host: Host, operation_id: str, version: int, **options: Any) -> Reconciliation:
    return await host.runtime.reconcile(OPERATOR, operation_id, expected_version=version, tenant=EVERY_TENANT, **options)


@pytest.mark.contract("RCN-07")
async def test_a_grant_for_other_agents_sends_nothing(host: Host) -> None:
    """The grant for the operation's own agent was withdrawn."""
    operation_id = await failed(host)
    version = (await host.operation(operation_id)).version
    host.on_authorize = lambda inbound, action: granted(PERSON, "other", "agents")
    before = await host.events()
    denied = await reconcile(host, operation_id, version)

    assert Reconciliation("denied", version=version) == denied
    assert [] == host.sent
    assert before == await host.events()
    host.on_authorize = lambda inbound, action: granted(PERSON, "other", "agent")
    assert "reply_delivered" == (await reconcile(host, operation_id, version)).outcome
