"""Replies: staged before they are sent, and what is known of a sending afterwards."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import InvalidValue, NotSent
from counterfoil.domain.exchange import DeliveryFailed, Reply, Turn
from counterfoil.domain.identity import EVERY_TENANT, Grant, Identity, instant_of
from counterfoil.domain.turn import TRUNCATED
from counterfoil.infrastructure.commands.turn import Mark, Settle
from counterfoil.infrastructure.runtime import Runtime

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts


async def outcome(host: Host, operation_id: str) -> tuple[str, str | None]:
    """What is known of the reply, and the class word with it."""
    operation = await host.operation(operation_id)
    reasons = [
        row.recorded.event.reason  # type: ignore[union-attr]
        for row in await host.events()
        if row.type in ("reply.delivery_failed", "reply.delivery_unknown")
    ]
    return operation.reply, reasons[-1] if reasons else None


def raising(error: BaseException) -> Any:
    def deliver(reply: Reply) -> None:
        raise error

    return deliver


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize(
    ("deliver", "known", "reason"),
    [
        (lambda reply: None, "delivered", None),
        (lambda reply: "message-1", "delivered", None),
        (lambda reply: "", "delivered", None),
        (lambda reply: DeliveryFailed("forbidden"), "delivery_failed", "forbidden"),
        (lambda reply: DeliveryFailed(), "delivery_failed", "failed"),
        (raising(NotSent("no_program")), "delivery_failed", "no_program"),
        (raising(NotSent()), "delivery_failed", "not_sent"),
        (raising(NotSent("Kein Anschluß: ann")), "delivery_failed", "not_sent"),
        (raising(NotSent(7)), "delivery_failed", "not_sent"),  # type: ignore[arg-type]
        (raising(OSError("connection reset")), "delivery_unknown", "raised"),
        (raising(asyncio.CancelledError()), "delivery_unknown", "raised"),
        (raising(SystemExit(1)), "delivery_unknown", "raised"),
        (raising(BaseExceptionGroup("x", [ValueError()])), "delivery_unknown", "raised"),
        (lambda reply: 42, "delivery_unknown", "unexpected_answer"),
        (lambda reply: True, "delivery_unknown", "unexpected_answer"),
    ],
)
async def test_what_is_known_of_a_sending(host: Host, deliver: Any, known: str, reason: str | None) -> None:
    """Returning is a known outcome; raising is not, unless nothing could have been sent. The route goes on in any case."""
    host.on_deliver = deliver
    first = await host.answer("m1")
    host.on_deliver = lambda reply: None
    await host.answer("m2")

    assert (known, reason) == await outcome(host, first)
    assert ["m1", "m2"] == [reply.in_reply_to for reply in host.sent]
    assert ([] if known == "delivered" else [first]) == list(await host.unresolved())
    counters = host.journal.diagnostics()
    assert (1 + (known == "delivered"), int(known == "delivery_failed")) == (
        counters["deliveries"],
        counters["delivery_failures"],
    )


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize("kind", ["async", "stubborn", "thread"])
async def test_a_send_that_times_out_is_unknown(hosts: Hosts, kind: str) -> None:
    """Also one that does not let itself be cancelled; what it does later is nobody's news."""
    host = await hosts.open(deliver_timeout="20ms")
    go, in_thread, ended = asyncio.Event(), threading.Event(), asyncio.Event()

    async def deliver(_: Reply) -> str:
        try:
            await go.wait()
        except asyncio.CancelledError:
            if kind != "stubborn":
                raise
            await go.wait()
        finally:
            ended.set()
        raise ValueError("much too late")

    def plainly(_: Reply) -> str:
        assert in_thread.wait(20)
        return "much too late"

    host.on_deliver = deliver
    if kind == "thread":
        host.runtime = Runtime(
            host.journal,
            authorize=host._authorize,
            resolve_agent=host._resolve,
            deliver=plainly,
            deliver_timeout="20ms",
        )
    first = await host.answer("m1")

    assert ("delivery_unknown", "timed_out") == await outcome(host, first)
    go.set()
    in_thread.set()
    if kind != "thread":
        await ended.wait()
    assert ("delivery_unknown", "timed_out") == await outcome(host, first)


@pytest.mark.contract("RPL-02")
async def test_sendings_are_counted_by_how_they_ended(host: Host) -> None:
    """Those of a resend too."""
    answers: list[Any] = [None, "m-1", DeliveryFailed("forbidden"), NotSent("offline"), OSError("reset"), 7]

    def deliver(reply: Reply) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    host.on_deliver = deliver
    for number in range(6):
        operation_id = await host.answer(f"m{number}")
    counted = {"delivered": 2, "delivery_failed": 2, "delivery_unknown": 2}
    assert counted == host.runtime.sendings
    answers.append(None)
    version = (await host.operation(operation_id)).version
    identity = host.desk._reach.identity
    await host.runtime.reconcile(
        identity, operation_id, expected_version=version, acknowledge_duplicate_risk=True, tenant=EVERY_TENANT
    )

    assert counted | {"delivered": 3} == host.runtime.sendings
    assert (3, 2) == tuple(host.journal.diagnostics()[name] for name in ("deliveries", "delivery_failures"))


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize(
    ("duration", "said"),
    [("0s", "0 s"), (timedelta(seconds=-1), "-1 s"), (timedelta(microseconds=999), "0.000999 s"), ("1h1s", "3601 s")],
)
async def test_a_time_to_send_that_is_none_is_refused_by_name(host: Host, duration: Any, said: str) -> None:
    """With the range; what is inside it is taken, to its ends."""
    callbacks: dict[str, Any] = {"authorize": host._authorize, "resolve_agent": host._resolve, "deliver": host._deliver}
    with pytest.raises(InvalidValue, match=f"^deliver_timeout must be 1 ms to 1 h, not {re.escape(said)}$"):
        Runtime(host.journal, **callbacks, deliver_timeout=duration)
    for taken in ("1ms", "1h"):
        Runtime(host.journal, **callbacks, deliver_timeout=taken)


@pytest.mark.contract("RPL-02")
@pytest.mark.parametrize(
    ("message_id", "kept"),
    [("m-1", True), ("ü" * 128, True), ("ü" * 128 + "x", False), ("a\0b", False), ("\ud800", False), ("m" * 257, False)],
)
async def test_the_message_id_is_kept_where_it_is_an_id(host: Host, message_id: str, kept: bool) -> None:
    """One that no engine can keep is left out: the reply was delivered all the same, and neighbours notice nothing."""
    host.on_deliver = lambda reply: message_id
    operation_ids = await asyncio.gather(*(host.accept(f"m{number}", f"c{number}") for number in range(3)))
    await host.drain()
    rows = await host.rows("SELECT external_id FROM cf_external_id JOIN cf_event USING (position) WHERE type = 'reply.delivered'")

    assert [(message_id,)] * 3 * kept == rows
    assert {"delivered"} == {(await host.operation(operation_id)).reply for operation_id in operation_ids}


@pytest.mark.contract("RPL-01")
async def test_a_reply_that_cannot_be_staged_is_not_sent(host: Host) -> None:
    """Nothing is sent before its text is durable."""
    with host.failing(Settle) as failed:
        await host.accept()
        await failed.wait()
        assert [] == host.sent
    staged: list[int] = []

    async def deliver(reply: Reply) -> None:
        staged.append((await host.types(reply.operation_id)).count("reply.staged"))

    host.on_deliver = deliver
    await host.drain()

    assert [1] == staged


@pytest.mark.contract("RPL-02", "RPL-03")
async def test_a_mark_that_fails_is_made_again_and_the_reply_is_not(host: Host) -> None:
    """What is known of a sending is kept until the journal has it."""
    with host.failing(Mark) as failed:
        operation_id = await host.accept()
        await failed.wait()
        assert "pending" == (await host.operation(operation_id)).reply
    await host.drain()

    assert "delivered" == (await host.operation(operation_id)).reply
    assert 1 == len(host.sent)


@pytest.mark.contract("RPL-02", "RPL-03", "RUN-02")
async def test_a_crash_after_staging_leaves_pending_and_nothing_resends_it(hosts: Hosts) -> None:
    """Neither a restart nor a repeat; an operator decides."""
    first = await hosts.open()
    sending, go = asyncio.Event(), asyncio.Event()

    async def deliver(reply: Reply) -> None:
        sending.set()
        await go.wait()

    first.on_deliver = deliver
    operation_id = await first.accept("m1")
    await sending.wait()
    first.die()
    second = await hosts.open()
    await second.resume()
    await second.admit("m1")
    await second.answer("m2")

    operation = await second.operation(operation_id)
    assert ("succeeded", "pending", 1) == (operation.phase, operation.reply, operation.attempts)
    assert ["m2"] == [reply.in_reply_to for reply in second.sent]
    assert [operation_id] == list(await second.unresolved())
    go.set()


@pytest.mark.contract("RPL-04")
@pytest.mark.parametrize("text", ["x" * 100, "ü" * 50, "x" + "ü" * 50, "👍" * 25, "xx👍" * 17, "\ud800" * 34, "a" * 101])
async def test_a_reply_over_the_limit_is_cut_on_a_code_point(hosts: Hosts, text: str) -> None:
    """With a marker, and the cut is recorded; what fits is not touched."""
    host = await hosts.open(max_response_bytes=100)

    async def agent(turn: Turn) -> str:
        return text

    host.on_turn = agent
    await host.answer()
    sent, body = host.sent[0].text, text.encode("utf-8", "surrogatepass")
    staged = (await host.states("reply.staged"))[0]

    assert staged.text.length == len(sent.encode("utf-8", "surrogatepass")) <= 100
    if len(body) <= 100:
        assert (text, False) == (sent, staged.truncated)
    else:
        assert staged.truncated
        assert sent.endswith(TRUNCATED)
        assert text.startswith(kept := sent.removesuffix(TRUNCATED))
        assert len((kept + text[len(kept)] + TRUNCATED).encode("utf-8", "surrogatepass")) > 100
    assert int(staged.truncated) == host.journal.diagnostics()["truncated"]


@pytest.mark.contract("RPL-04", "JRN-18")
@pytest.mark.parametrize("text", ["\ud800", "a\udc80b", "\0", "\r\n\t\x1b[31m", "\u202e\u200d", "\U0010ffff"])
async def test_no_text_fails_for_the_way_in_which_it_is_encoded(host: Host, text: str) -> None:
    """Lone surrogates and NUL go in and come out as they were."""
    host.on_turn = echo
    operation_id = await host.answer(text=text)

    assert [text] == [reply.text for reply in host.sent]
    assert "delivered" == (await host.operation(operation_id)).reply


async def echo(turn: Turn) -> str:
    return turn.text


@pytest.mark.contract("RPL-05", "IDN-04")
@pytest.mark.parametrize("how", ["expires", "revoked"])
async def test_an_identity_that_is_no_longer_active_is_sent_nothing(hosts: Hosts, how: str) -> None:
    """It was active when the turn began."""
    host = await hosts.open(lease_ttl="300s")
    end = instant_of(hosts.clock.now() + 2_000_000)
    person = Identity(tenant="acme", principal="ann", verified=True, **{f"{how}_at": end})
    host.on_authorize = lambda *_: Grant(identity=person, aliases=("agent",))
    held = host.held()
    operation_id = await host.accept()
    await held.started.wait()
    hosts.clock.advance("2s")
    held.go.set()
    await host.drain()

    assert [] == host.sent
    assert ("delivery_failed", "identity_revoked") == await outcome(host, operation_id)
    assert "succeeded" == (await host.operation(operation_id)).phase


@pytest.mark.contract("RPL-01", "RUN-11")
async def test_a_reply_goes_to_where_its_event_came_from(host: Host) -> None:
    """With what the platform needs to thread it."""
    operation_id = await host.accept("m1", "-100", "hello", thread="t7")
    await host.drain()

    assert (
        Reply(
            operation_id=operation_id,
            connection="tg",
            conversation="-100",
            thread="t7",
            actor="ann",
            in_reply_to="m1",
            kind="final",
            text="re: hello",
        )
        == host.sent[0]
    )


@pytest.mark.contract("RPL-02")
async def test_deliver_may_be_a_plain_function(host: Host) -> None:
    """It runs in a thread."""
    threads: list[threading.Thread] = []

    def deliver(reply: Reply) -> str:
        threads.append(threading.current_thread())
        return "m-1"

    host.runtime = Runtime(host.journal, authorize=host._authorize, resolve_agent=host._resolve, deliver=deliver)
    operation_id = await host.answer()

    assert "delivered" == (await host.operation(operation_id)).reply
    assert [threading.main_thread()] != threads
    assert 1 == len(threads)


@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("name", ["authorize", "resolve_agent", "deliver"])
async def test_a_callback_that_cannot_be_called_is_refused_at_construction(host: Host, name: str) -> None:
    """By its name."""
    callbacks: dict[str, Any] = {"authorize": echo, "resolve_agent": echo, "deliver": echo, name: "text"}
    with pytest.raises(InvalidValue, match=f"{name} must be callable, not str"):
        Runtime(host.journal, **callbacks)
    with pytest.raises(InvalidValue, match="deliver_timeout"):
        Runtime(host.journal, authorize=echo, resolve_agent=echo, deliver=echo, deliver_timeout="soon")  # type: ignore[arg-type]
