"""Admissions, claims, settlements, marks and reopenings in any order, against a model of a few lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, integers, sampled_from

from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.commands.turn import Claim, Mark, Settle
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.verification import verify
from tests.clocks import JournalClock
from tests.conftest import FreshURL
from tests.engines import Engine
from tests.rows import rows_in

ROOM = 3
LIMITS = Limits(max_pending_per_binding=ROOM)
GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))
CONVERSATIONS = sampled_from(["a", "b"])


@dataclass
class Message:
    """What the model knows of one event."""

    operation_id: str
    position: int
    phase: Literal["accepted", "executing", "ended"] = "accepted"
    reply: Literal["none", "pending", "delivered", "delivery_failed", "delivery_unknown"] = "none"
    fence: int = 0
    life: int = 0
    """The opening that claimed it."""

    @property
    def resolved(self) -> bool:
        return self.phase == "ended" and self.reply in ("none", "delivered")


@dataclass
class Chat:
    """What the model knows of one route."""

    route: str = ""
    messages: dict[int, Message] = field(default_factory=dict)
    waiting: list[Message] = field(default_factory=list)
    executing: Message | None = None


class JournalMachine(RuleBasedStateMachine):
    """A journal that outlives its openings, with a clock that stands until it is moved."""

    new_url: FreshURL

    @initialize()
    def begin(self) -> None:
        self.url = self.new_url()
        self.clock = JournalClock()
        self.clock.drive(self.url)
        self.chats = {"a": Chat(), "b": Chat()}
        self.life = 0
        self.open()

    def open(self) -> None:
        self.core = Core(self.url, limits=LIMITS, clock=self.clock)
        self.life += 1

    def run(self, command: Any) -> Any:
        return self.core.committer.submit(command).result(30)

    @rule(name=CONVERSATIONS, event=integers(0, 7))
    def admit(self, name: str, event: int) -> None:
        chat = self.chats[name]
        inbound = Inbound(connection="tg", conversation=name, actor="ann", event_id=str(event), text="hello")
        answer = self.run(AdmitInbound(inbound, GRANT, "agent"))
        known = chat.messages.get(event)
        if known is not None:
            assert (known.operation_id, True) == (answer.admission.operation_id, answer.admission.duplicate)
        elif len(chat.waiting) >= ROOM:
            assert "capacity" == answer.admission.reason
        else:
            assert ("accepted", False) == (answer.admission.status, answer.admission.duplicate)
            message = Message(answer.admission.operation_id, answer.position)
            chat.route = answer.route
            chat.messages[event] = message
            chat.waiting.append(message)

    @precondition(lambda self: any(chat.route for chat in self.chats.values()))
    @rule(name=CONVERSATIONS, which=integers(0, ROOM - 1))
    def claim(self, name: str, which: int) -> None:
        """The head is claimed and nothing overtakes it, and never two at once in one route."""
        chat = self.chats[name]
        if not chat.route:
            return
        expected = chat.waiting[which % len(chat.waiting)] if chat.waiting else None
        answer = self.run(Claim(chat.route, expected.position if expected else None))
        if not chat.waiting:
            assert "empty" == answer.found
        elif chat.executing is not None and chat.executing.life == self.life:
            assert "busy" == answer.found
        elif expected is not chat.waiting[0]:
            assert ("head", chat.waiting[0].operation_id) == (answer.found, answer.operation.operation_id)
        else:
            assert ("claimed", expected.operation_id) == (answer.found, answer.operation.operation_id)
            chat.waiting.pop(0)
            chat.executing = expected
            expected.phase, expected.fence, expected.life = "executing", answer.fence, self.life

    @rule(name=CONVERSATIONS, replies=booleans())
    def settle(self, name: str, replies: bool) -> None:
        """Under its fence; one whose opening has ended comes late, and stays to be reconciled."""
        message = self.chats[name].executing
        if message is None:
            return
        answer = self.run(Settle(message.operation_id, message.fence, Answer("succeeded", reply="hi" if replies else None)))
        if message.life != self.life:
            assert "late" == answer.found
            return
        assert "settled" == answer.found
        message.phase, message.reply = "ended", "pending" if replies else "none"
        self.chats[name].executing = None
        again = self.run(Settle(message.operation_id, message.fence, Answer("failed")))
        assert "before" == again.found

    @rule(name=CONVERSATIONS, event=integers(0, 7), outcome=sampled_from(["delivered", "delivery_failed", "delivery_unknown"]))
    def mark(self, name: str, event: int, outcome: Any) -> None:
        message = self.chats[name].messages.get(event)
        if message is None or message.reply != "pending":
            return
        self.run(Mark(message.operation_id, 1, Delivery(outcome), message.fence))
        message.reply = outcome

    @rule()
    def reopen(self) -> None:
        self.core.close()
        self.open()

    @rule(back=booleans())
    def move_the_clock(self, back: bool) -> None:
        """Neither way does it change anything: no lease goes by the wall clock."""
        if back:
            self.clock.set_back("3s")
        else:
            self.clock.set_forward("2s")

    @invariant()
    def unresolved_is_what_the_model_says(self) -> None:
        rows = rows_in(self.core, "SELECT operation_id, state, reply_state FROM cf_unresolved_v1")
        expected = {
            message.operation_id: (message.phase if message.phase != "ended" else "succeeded", message.reply)
            for chat in self.chats.values()
            for message in chat.messages.values()
            if not message.resolved
        }
        assert expected == {operation_id: (state, reply) for operation_id, state, reply in rows}

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        verification = self.core.read(verify)
        self.core.close()
        self.clock.close()
        assert verification.agrees, verification


@pytest.mark.contract("JRN-02", "RUN-02", "RUN-03", "RUN-05", "PRJ-02")
def test_a_journal_does_as_the_model_says(fresh_url: FreshURL, engine: Engine) -> None:
    """Less often on PostgreSQL, where each example makes a schema and connects again and again."""

    class Machine(JournalMachine):
        new_url = staticmethod(fresh_url)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100 if engine == "sqlite" else 25,
            stateful_step_count=60,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
