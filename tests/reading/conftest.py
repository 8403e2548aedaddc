"""Journals with histories to read: made by the commands that a host's calls run, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, TypeVar

import pytest

from counterfoil.domain.identity import Grant, Identity, Reach, reach
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.reconcile import Reconcile
from counterfoil.domain.turn import Answer, Delivery
from counterfoil.infrastructure import reading
from counterfoil.infrastructure.commands.admission import AdmitInbound, Admitted
from counterfoil.infrastructure.commands.reconcile import ReconcileOperation
from counterfoil.infrastructure.commands.turn import Claim, Claimed, Mark, Settle
from counterfoil.infrastructure.core import Core
from counterfoil.projections.story import Story
from counterfoil.projections.timeline import TimelineEntry, TimelineFilter
from counterfoil.testing import MovableClock
from tests.clocks import JournalClock
from tests.rows import change

T = TypeVar("T")


def identity(tenant: str = "acme", user: str | None = None) -> Identity:
    return Identity(tenant=tenant, user=user, principal="pat", verified=True, permissions=frozenset({"journal:operate"}))


OWN = reach(identity(), None)


class Told:
    """A journal, and what happens in it. Everything takes a second."""

    def __init__(self, url: str, clock: MovableClock, stack: ExitStack) -> None:
        self._url, self._stack = url, stack
        self.clock = clock
        self.limits = Limits(max_pending_per_process=10_000, max_routes=10_000, max_pending_per_binding=32)
        self.core = self.open(url)

    def open(self, url: str) -> Core:
        """Go on in another opening, or in another journal; an opening of before stays as it is."""
        self.core = self._stack.enter_context(closing(Core(url, limits=self.limits, clock=self.clock)))
        return self.core

    def run(self, command: Any) -> Any:
        self.clock.advance("1s")
        return self.core.committer.submit(command).result(30)

    def read(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function of `reading` on a snapshot."""
        return self.core.read(lambda store: function(store, *args, **options))

    def damage(self, sql: str) -> None:
        """Change a row past the journal; through the opening, if the journal is in memory."""
        if self._url == ":memory:":
            self.core.read(lambda store: store.connection.execute(sql))
        else:
            assert change(self._url, sql) == 1

    # What happens.

    def admit(self, event_id: str, who: Identity | None = None, **fields: Any) -> Admitted:
        base = {"connection": "tg", "conversation": "c1", "actor": "ann", "text": "hello"}
        grant = Grant(identity=who or identity(), aliases=("agent",))
        answer: Admitted = self.run(AdmitInbound(Inbound(**{**base, "event_id": event_id, **fields}), grant, "agent"))
        return answer

    def claim(self, event_id: str, who: Identity | None = None, **fields: Any) -> Claimed:
        return self.take(self.admit(event_id, who, **fields))

    def take(self, admitted: Admitted) -> Claimed:
        claimed: Claimed = self.run(Claim(str(admitted.route), admitted.position))
        assert claimed.found == "claimed"
        return claimed

    def settle(self, claimed: Claimed, answer: Answer | None = None) -> Claimed:
        assert claimed.operation is not None
        assert claimed.fence is not None
        self.run(Settle(claimed.operation.operation_id, claimed.fence, answer or Answer("succeeded", reply="hi")))
        return claimed

    def mark(self, claimed: Claimed, delivery: Delivery | None = None, attempt: int = 1) -> Claimed:
        assert claimed.operation is not None
        delivery = delivery or Delivery("delivered", message_id="m1")
        self.run(Mark(claimed.operation.operation_id, attempt, delivery, claimed.fence))
        return claimed

    def turn(self, event_id: str, who: Identity | None = None, **fields: Any) -> Claimed:
        """Take a message through a whole turn."""
        return self.mark(self.settle(self.claim(event_id, who, **fields)))

    def reconcile(self, operation_id: str, note: str | None = None, force: bool = False) -> Any:
        """File what cannot be proven, with the acknowledgment; a reply that has to be sent again is claimed."""
        version = self.explain(operation_id)[0].version
        command = Reconcile(version, acknowledge_duplicate_risk=True, force=force, reason="host_died", note=note)
        return self.run(ReconcileOperation(OWN, operation_id, command, may_send=True))

    # What is read.

    def unresolved(self, who: Reach = OWN, **options: Any) -> reading.Page[reading.UnresolvedOperation]:
        return self.read(reading.unresolved, who, self.limits, **{"now": self.clock.now(), **options})

    def timeline(self, who: Reach = OWN, where: TimelineFilter | None = None, /, **options: Any) -> reading.Page[TimelineEntry]:
        return self.read(reading.timeline, who, self.limits, where or TimelineFilter(), **{"limit": 500, **options})

    def entries(self, who: Reach = OWN, **where: Any) -> tuple[TimelineEntry, ...]:
        """All that a filter lets through."""
        page = self.timeline(who, TimelineFilter(**where))
        assert page.next is None
        return page.rows

    def explain(self, identifier: str, who: Reach = OWN, **options: Any) -> list[Story]:
        return self.read(reading.explain, who, identifier, **options)


@pytest.fixture
def told(quick_url: str, clock: JournalClock) -> Iterator[Told]:
    with ExitStack() as stack:
        yield Told(quick_url, clock, stack)
