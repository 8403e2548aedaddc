"""A resend: for whom it is sent, and what is told to whoever asks for it again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import CommandConflict
from counterfoil.domain.exchange import DeliveryFailed, Reply
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


@pytest.mark.contract("JRN-05", "RCN-05")
@pytest.mark.parametrize(
    ("sending", "outcome"),
    [(None, "reply_delivered"), (DeliveryFailed("blocked"), "reply_failed"), (OSError("reset"), "reply_unknown")],
)
async def test_asked_again_with_its_command_id_a_resend_gives_its_first_answer(
    host: Host, sending: DeliveryFailed | OSError | None, outcome: str
) -> None:
    """Nothing is sent again, and nobody asked, also after the reply was sent once more by another command."""
    operation_id = await failed(host)

    def deliver(reply: Reply) -> DeliveryFailed | None:
        if isinstance(sending, OSError):
            raise sending
        return sending

    host.on_deliver = deliver
    version = (await host.operation(operation_id)).version
    first = await reconcile(host, operation_id, version, command_id="resend")
    asked = len(host.asked)
    assert first == await reconcile(host, operation_id, version, command_id="resend")
    host.on_deliver = lambda reply: None
    assert first.version is not None
    await reconcile(host, operation_id, first.version, acknowledge_duplicate_risk=True)
    sent = len(host.sent)

    assert outcome == first.outcome
    assert first == await reconcile(host, operation_id, version, command_id="resend")
    assert first == await host.desk.reconcile(operation_id, expected_version=version, command_id="resend")
    assert sent == len(host.sent) == (1 if outcome == "reply_delivered" else 2)
    assert sent == len(host.asked) - asked + 1


@pytest.mark.contract("JRN-05")
async def test_the_command_id_of_a_resend_is_not_for_another_command(host: Host) -> None:
    """Of another operation, or of the same with other words."""
    operation_id, other = await failed(host), await failed(host, "m2")
    version = (await host.operation(operation_id)).version
    await reconcile(host, operation_id, version, command_id="resend")
    for wanted, options in ((other, {}), (operation_id, {"note": "another"})):
        with pytest.raises(CommandConflict):
            await reconcile(host, wanted, version, command_id="resend", **options)

    assert 1 == len(host.sent)


@pytest.mark.contract("JRN-05", "RCN-05")
async def test_asked_again_while_a_resend_is_under_way_nobody_knows_yet(host: Host) -> None:
    """It is not sent a second time, and later the answer is that of the sending."""
    operation_id = await failed(host)
    sending, go = asyncio.Event(), asyncio.Event()

    async def deliver(reply: Reply) -> None:
        sending.set()
        await go.wait()

    host.on_deliver = deliver
    version = (await host.operation(operation_id)).version
    first = asyncio.create_task(reconcile(host, operation_id, version, command_id="resend"))
    await sending.wait()
    meanwhile = await reconcile(host, operation_id, version, command_id="resend")
    with pytest.raises(CommandConflict):
        await reconcile(host, operation_id, version, command_id="resend", note="another")
    go.set()

    assert Reconciliation("resolved", "reply_unknown", version=version + 1) == meanwhile
    assert "reply_delivered" == (await first).outcome
    assert await first == await reconcile(host, operation_id, version, command_id="resend")
    assert 1 == len(host.sent)
