"""What a runtime asks of its host, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.exchange import Action, Reply
from counterfoil.domain.identity import Grant
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.turn import Delivery, DeliveryOutcome

from .callbacks import Agent, Authorize, Deliver, Ended, ResolveAgent, call, send
from .core import Core

log = logging.getLogger(__name__)

OUTCOMES: Final = ("delivered", "delivery_failed", "delivery_unknown")


class Hosted:
    """The callbacks of a host. What they answer wrongly, or raise, becomes an answer that the journal knows."""

    def __init__(
        self,
        core: Callable[[], Core],
        authorize: Authorize,
        resolve_agent: ResolveAgent,
        deliver: Deliver,
        deliver_seconds: float,
    ) -> None:
        self._core = core
        self._authorize = authorize
        self._resolve_agent = resolve_agent
        self._deliver = deliver
        self._deliver_seconds = deliver_seconds
        self._late: set[asyncio.Task[Ended]] = set()
        self.sendings: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        """How many sendings ended in each way; one that was cut off is unknown."""

    async def authorize(self, inbound: Inbound, action: Action) -> Grant | Admission:
        """Return the host's grant, or the refusal that follows."""
        try:
            grant = await call(self._authorize, inbound, action)
        except Exception as error:
            log.warning("authorize raised %s", type(error).__name__)
            return refused("authorization_failed")
        if not isinstance(grant, Grant):
            if grant is not None:
                log.warning("authorize returned %s, not a Grant or None", type(grant).__name__)
            return refused("rejected")
        if grant.identity.refusal(self._core().now()) is not None:
            return refused("revoked")
        return grant

    async def agent(self, alias: str, grant: Grant, inbound: Inbound) -> Agent | None:
        """Return the host's agent; None when it has none to give."""
        try:
            agent = await call(self._resolve_agent, alias, grant.identity, inbound)
        except Exception as error:
            log.warning("resolve_agent raised %s", type(error).__name__)
            return None
        return agent if callable(agent) else None

    async def send(self, reply: Reply) -> Delivery:
        """Have a reply sent, and count what is known of it."""
        outcome: DeliveryOutcome = "delivery_unknown"
        try:
            delivery = await send(self._deliver, reply, self._deliver_seconds, self.keep)
            outcome = delivery.outcome
            return delivery
        finally:
            self.sendings[outcome] += 1
            counters = self._core().counters
            counters["deliveries"] += outcome == "delivered"
            counters["delivery_failures"] += outcome == "delivery_failed"

    def keep(self, task: asyncio.Task[Ended]) -> None:
        """Hold on to a task that goes on after its time; how it ends is nobody's news."""
        self._late.add(task)
        task.add_done_callback(self._late.discard)
