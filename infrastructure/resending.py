"""Reconcile with sending: the host is asked again, the resend claimed, the reply sent and marked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TypeAlias

from counterfoil.domain.errors import JournalUnavailable, NeedsRuntime
from counterfoil.domain.identity import Grant, Reach
from counterfoil.domain.reconcile import ReconcileOutcome, Reconciliation
from counterfoil.domain.turn import Delivery

from .commands.reconcile import ResendClaimed
from .commands.turn import Mark
from .committer import Command
from .found import Found, find
from .owed import Owed
from .routes import Routes

Reconciling: TypeAlias = Callable[[bool], Command[Reconciliation | ResendClaimed]]
"""The command, by whether it may send."""

_RESENT: Final[dict[str, ReconcileOutcome]] = {
    "delivered": "reply_delivered",
    "delivery_failed": "reply_failed",
    "delivery_unknown": "reply_unknown",
}


class Resending:
    """Carry out what an operator asks for, where that may send."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._host = routes.host

    async def reconcile(
        self, reached: Reach, operation_id: str, expected_version: int, acknowledged: bool, command: Reconciling
    ) -> Reconciliation:
        """File, or send with a grant that was given for it."""
        for _ in range(2):
            found = await self._find(reached, operation_id)
            leave = "unasked" if found is None else await self._ask_again(found, expected_version, acknowledged)
            if found is not None and leave == "withdrawn":
                return Reconciliation("denied", version=found.operation.version)
            with suppress(NeedsRuntime):  # it has become what would be sent, and the host was not asked: look again
                answer = await self._routes.submit(command(leave == "granted"))
                if isinstance(answer, ResendClaimed):
                    return await self._resend(answer, found)
                if answer.outcome == "execution_unknown":
                    await self._abort_what_was_revoked()
                return answer
        return Reconciliation("conflict", detail="stale")

    async def _find(self, reached: Reach, operation_id: str) -> Found | None:
        """Read an operation; None if it is not known within the reach. Where its scope was erased, nothing of it can be sent."""
        found = await self._routes.core.read_async(lambda store: find(store, operation_id))
        if found is None or (found.scope is not None and not reached.includes(found.scope)):
            return None
        return found if found.scope is not None else found._replace(inbound=None, reply=None)

    async def _ask_again(
        self, found: Found, expected_version: int, acknowledged: bool
    ) -> Literal["granted", "withdrawn", "unasked"]:
        """Ask the host anew where a reply would be sent. What cannot be sent needs no grant, and is claimed to be filed."""
        operation = found.operation
        if operation.version != expected_version or operation.resolved or not operation.ended:
            return "unasked"
        if operation.reply != "delivery_failed" and not acknowledged:
            return "unasked"
        if found.inbound is None or found.reply is None:
            return "granted" if found.reply is None else "withdrawn"
        grant = await self._host.authorize(found.inbound, "message")
        if not isinstance(grant, Grant) or grant.identity.scope != found.scope or operation.alias not in grant.aliases:
            return "withdrawn"
        return "granted"

    async def _abort_what_was_revoked(self) -> None:
        """End a run here whose lease was revoked with what was filed; where the look fails the next one comes soon."""
        with suppress(JournalUnavailable):
            await self._routes.look_at_leases()

    async def _resend(self, claimed: ResendClaimed, found: Found | None) -> Reconciliation:
        if found is None or found.reply is None:
            delivery = Delivery("delivery_failed", "text_erased")
        else:
            delivery = await self._host.send(found.reply)
        owed = Owed(self._routes.core.committer, Mark(claimed.operation.operation_id, claimed.attempt, delivery))
        marked = await self._routes.insist(owed, self._routes.limits.duration("busy_wait") / 1_000_000)
        return Reconciliation("resolved", _RESENT[delivery.outcome], version=marked.operation.version)
