"""Nothing that a callback raises or cancels ends a task of ours, and no task of ours shows what a callback did."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.exchange import Reply, Turn
from counterfoil.domain.identity import Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.infrastructure.route_worker import FAILURE_NOTICE
from tests.runtime.conftest import granted, route_tasks

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts

MARK = "MARKER-52c9"


class Panic(BaseException):
    """What a native extension raises when it panics: no `Exception`."""


RAISED = (Panic, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


@pytest.mark.contract("RUN-08", "DIA-01")
@pytest.mark.parametrize("error", RAISED)
async def test_an_authorize_that_raises_no_exception_could_not_say(
    hosts: Hosts, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """What was accepted waits until it can, and it is asked with a growing pause."""
    gone = await hosts.open()
    operation_id = await gone.queue_only("m1")
    gone.die()
    host = await hosts.open()

    async def authorize(inbound: Inbound, action: str) -> Any:
        raise error(MARK, inbound.text)

    host.on_authorize = authorize
    assert "authorization_failed" == (await host.admit("m2", "c2")).reason
    await host.resume()
    assert not await host.runtime.drain("300ms")
    assert 1 < len(host.asked) < 10
    assert "accepted" == (await host.operation(operation_id)).phase
    host.on_authorize = lambda inbound, action: granted()
    await host.drain()
    gc.collect()

    assert ["m1"] == [reply.in_reply_to for reply in host.sent]
    assert MARK not in caplog.text
    assert "never retrieved" not in caplog.text


@pytest.mark.contract("RUN-07", "RUN-11")
@pytest.mark.parametrize("error", RAISED)
async def test_a_resolve_agent_that_raises_no_exception_has_no_agent(
    host: Host, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """The person is told, and the route goes on."""

    async def resolve(alias: str, identity: Identity, inbound: Inbound) -> Any:
        if inbound.event_id == "m1":
            raise error(MARK)
        return host._echo

    host.on_resolve = resolve
    await host.answer("m1")
    await host.answer("m2")
    gc.collect()

    assert [FAILURE_NOTICE, "re: hello"] == [reply.text for reply in host.sent]
    assert 2 == len(host.resolved)
    assert MARK not in caplog.text
    assert "never retrieved" not in caplog.text


@pytest.mark.contract("RUN-07", "RUN-11")
@pytest.mark.parametrize("error", RAISED[:-1])
async def test_an_agent_that_raises_no_exception_has_failed(host: Host, error: type[BaseException]) -> None:
    """Like one that raises an exception."""

    async def agent(turn: Turn) -> str:
        raise error(MARK)

    host.on_turn = agent
    await host.answer("m1")

    assert ["failed"] == [event.outcome for event in await host.states("operation.settled")]
    assert [FAILURE_NOTICE] == [reply.text for reply in host.sent]


async def cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.contract("RPL-03", "RUN-07")
async def test_a_deliver_that_cancels_its_own_task_has_raised(host: Host) -> None:
    """Nobody asked for a stop: the worker goes on, and the lease is given back."""

    async def deliver(reply: Reply) -> None:
        if reply.in_reply_to == "m1":
            await cancel_oneself()

    host.on_deliver = deliver
    await host.answer("m1")
    await host.answer("m2")

    assert ["raised"] == [event.reason for event in await host.states("reply.delivery_unknown")]
    assert ["m1", "m2"] == [reply.in_reply_to for reply in host.sent]
    assert 0 == await host.count("cf_deadline")
    assert {"delivered": 1, "delivery_failed": 0, "delivery_unknown": 1} == host.runtime.sendings


@pytest.mark.contract("RUN-07")
async def test_a_resolve_agent_that_cancels_its_own_task_has_no_agent(host: Host) -> None:
    """The task that it can cancel is its own, not the worker's or that of whoever admits."""

    async def resolve(alias: str, identity: Identity, inbound: Inbound) -> Any:
        await cancel_oneself()

    async def authorize(inbound: Inbound, action: str) -> Any:
        await cancel_oneself()

    host.on_resolve = resolve
    await host.answer("m1")
    host.on_authorize = authorize
    assert "authorization_failed" == (await host.admit("m2")).reason

    assert [FAILURE_NOTICE] == [reply.text for reply in host.sent]
    assert set() == route_tasks()


@pytest.mark.contract("ADM-01")
async def test_cancelling_who_admits_cancels_the_authorize_that_is_asked(host: Host) -> None:
    """And its end is waited for."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def authorize(inbound: Inbound, action: str) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    host.on_authorize = authorize
    admitting = asyncio.create_task(host.admit("m1"))
    await asked.wait()
    admitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await admitting

    assert ended.is_set()


@pytest.mark.contract("DIA-01")
@pytest.mark.parametrize("plain", [False, True])
async def test_debug_mode_of_asyncio_shows_nothing_of_a_callback(
    hosts: Hosts, caplog: pytest.LogCaptureFixture, plain: bool
) -> None:
    """Every step of the event loop is logged as slow, with the tasks and futures that it was about."""
    caplog.set_level(logging.DEBUG)
    host = await hosts.open()
    asking = {"raises": True}

    def end(value: Any) -> Any:
        if asking["raises"]:
            raise ConnectionError(f"{MARK} {value}")
        return f"{MARK} {value}"

    def either(function: Any) -> Any:
        async def coroutine(*arguments: Any) -> Any:
            return function(*arguments)

        return function if plain else coroutine

    host.on_turn = either(lambda turn: end(turn.text))
    host.runtime._host._deliver = either(lambda reply: end(reply.text))
    host.runtime._host._resolve_agent = either(
        lambda alias, identity, inbound: end("agent") if inbound.event_id == "m3" else host.on_turn
    )
    host.runtime._host._authorize = either(lambda inbound, action: end("grant") if inbound.event_id == "m4" else granted())
    loop = asyncio.get_running_loop()
    before = loop.slow_callback_duration
    loop.slow_callback_duration = 0.0
    loop.set_debug(True)
    try:
        for raises in (True, False):
            asking["raises"] = raises
            for number in (1, 3, 4):
                await host.admit(f"m{number}", f"{raises}", text=MARK)
            await host.drain()
    finally:
        loop.set_debug(False)
        loop.slow_callback_duration = before

    assert "counterfoil-run" in caplog.text
    assert [] == [line for line in caplog.text.splitlines() if MARK in line]
