"""
The runtime: it authorises, admits, runs one turn at a time on each route, and sends what was staged.

Each route that has work is run by a task of its own, which the runtime owns and awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from pydantic import ValidationError

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.duration import in_words, microseconds
from counterfoil.domain.errors import Denied, InvalidValue, JournalUnavailable
from counterfoil.domain.identity import Every, Identity, reach
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.reconcile import Reconciliation

from .admitting import action_of, is_oversized
from .callbacks import Authorize, Deliver, ResolveAgent
from .commands.admission import AdmitInbound
from .commands.opening import RecordAct
from .core import STORE_FAILS, store_failed
from .hosted import Hosted
from .journal_async import AsyncJournal
from .reconciling import reconcile_command
from .remembering import waiting_routes
from .resending import Resending
from .routes import Routes

SENDING_US: Final = (1_000, 3_600_000_000)
"""The least and the most that a sending may be given, in microseconds."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume found waiting and has started."""

    routes: int


def _sending_us(timeout: timedelta | str) -> int:
    """Return how long a sending may take; raises `InvalidValue` outside `SENDING_US`."""
    duration = microseconds(timeout, name="deliver_timeout")
    least, most = SENDING_US
    if not least <= duration <= most:
        raise InvalidValue(f"deliver_timeout must be {in_words(least)} to {in_words(most)}, not {duration / 1_000_000:g} s")
    return duration


class Runtime:
    """
    Run a host's agents on a journal.

    `authorize(inbound, action)` gives a `Grant` or None; `resolve_agent(alias, identity, inbound)` a callable that gets a `Turn`
    and returns text; `deliver(reply)` returns None or the message id when it was delivered, or `DeliveryFailed`. Each may be a
    coroutine function, or plain, and then runs in a thread. Use the runtime as a context manager: leaving it stops it and keeps
    what waits for the next `resume`.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        *,
        authorize: Authorize,
        resolve_agent: ResolveAgent,
        deliver: Deliver,
        limits: Limits | None = None,
        deliver_timeout: timedelta | str = "30s",
    ) -> None:
        for name, function in (("authorize", authorize), ("resolve_agent", resolve_agent), ("deliver", deliver)):
            if not callable(function):
                raise InvalidValue(f"{name} must be callable, not {type(function).__name__}")
        deliver_seconds = _sending_us(deliver_timeout) / 1_000_000
        self.journal = journal
        if limits is not None:
            journal.core.use_limits(limits)
        self._host = Hosted(lambda: journal.core, authorize, resolve_agent, deliver, deliver_seconds)
        self._routes = Routes(journal, self._host)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop(keep_queued=True)

    @property
    def limits(self) -> Limits:
        """The limits of the journal's opening; those given to the runtime became them."""
        return self.journal.limits

    @property
    def sendings(self) -> dict[str, int]:
        """How many sendings were `delivered`, how many are `delivery_failed`, and of how many nobody knows."""
        return dict(self._host.sendings)

    # Admission.

    async def admit(self, inbound: Inbound | Mapping[str, Any]) -> Admission:
        """
        Authorise one event, admit it, and schedule its turn.

        Returns after the durable append and before any model or tool call. A mapping that is no inbound event is `malformed`.
        Acknowledge to the platform unless the answer is `retryable`.
        """
        return self.journal.core.count_admission(await self._decide(inbound))

    async def _decide(self, inbound: Inbound | Mapping[str, Any]) -> Admission:
        if self._routes.stopping:
            return refused("stopped")
        if not isinstance(inbound, Inbound):
            try:
                inbound = Inbound.model_validate(inbound)
            except ValidationError:
                return refused("malformed")
        if is_oversized(inbound, self.limits):
            return refused("oversized")
        action = action_of(inbound)
        grant = await self._host.authorize(inbound, action)
        if isinstance(grant, Admission):
            return grant
        if action == "command":
            return refused("unknown_command")
        if self._routes.stopping:
            return refused("stopped")
        command = AdmitInbound(inbound, grant, grant.alias)
        try:  # whoever asked may be gone by then; what the journal has taken is nobody's but this process's to run
            return (await asyncio.shield(self._routes.admit(command))).admission
        except STORE_FAILS as error:
            return store_failed(error)

    async def wait_for_room(self) -> None:
        """
        Wait, after a refusal for `capacity`, until an entry has left a queue here, or for a quarter of a second for those of
        other processes.
        """
        await self._routes.wait_for_room()

    # What was found waiting.

    async def resume(self, identity: Identity, *, tenant: str | Every | None = None) -> Resumed:
        """
        Start what waits from openings that have ended, in the identity's scope or in the tenants that it names.

        Naming tenants is recorded as an act of the identity. Entries older than `max_wait` are stepped over: they stay accepted,
        are listed, and run when their event comes again.
        """
        core = self.journal.core
        reached = reach(identity, tenant)
        identity.require_active(core.now())
        found = await self.journal.core.read_async(lambda store: waiting_routes(store, reached))
        own = core.engine.opening_id
        idle = [
            worker
            for item in found
            if item.opening_id == own or not core.is_live(item.opening_id)
            if (worker := self._routes.worker(item.route)).task is None
        ]
        if idle and tenant is not None:
            await self._routes.submit(RecordAct("resumed", identity))
        for worker in idle:
            worker.start()
        return Resumed(len(idle))

    async def drain(self, timeout: timedelta | str | None = None) -> bool:  # noqa: ASYNC109 - it answers, and does not raise
        """Wait until no route has work here; tells whether that came within the time."""
        return await self._routes.drain(None if timeout is None else microseconds(timeout, name="timeout") / 1_000_000)

    # Reconcile with sending.

    async def reconcile(
        self,
        identity: Identity,
        operation_id: str,
        *,
        expected_version: int,
        acknowledge_duplicate_risk: bool = False,
        force: bool = False,
        reason: str = "operator",
        note: str | None = None,
        command_id: str | bytes | None = None,
        tenant: str | Every | None = None,
    ) -> Reconciliation:
        """
        File what cannot be proven, and send again what has to be sent: as `Desk.reconcile`, with the sending.

        A reply that is pending or unknown needs `acknowledge_duplicate_risk`. `authorize` is asked again; without a grant nothing
        is sent. The resend is claimed in the journal before it is sent, so of two operators at once one sends. An identity that
        is not active, or may not name the tenant, is answered with `denied`.
        """
        try:
            reached = reach(identity, tenant)
            command = partial(
                reconcile_command,
                reached,
                operation_id,
                expected_version=expected_version,
                acknowledge_duplicate_risk=acknowledge_duplicate_risk,
                force=force,
                reason=reason,
                note=note,
                command_id=command_id,
            )
            command(may_send=False)  # says what is wrong with the words before anything is looked at
            identity.require_active(self.journal.core.now())
            return await Resending(self._routes).reconcile(
                reached, operation_id, expected_version, acknowledge_duplicate_risk, lambda may: command(may_send=may)
            )
        except Denied:
            return Reconciliation("denied")
        except JournalUnavailable:
            return Reconciliation("unavailable")

    # The end.

    async def stop(self, *, keep_queued: bool = False) -> None:
        """
        Refuse new work, cancel what waits, abort what runs, wait at most `stop_deadline`, and give the leases back.

        With `keep_queued` what waits stays accepted, and the next `resume` runs it. A run that does not end in time is recorded
        as `execution_unknown`. Calling it again retries what failed: a store that is away is no error here; the first error of
        another kind is raised when all has been tried.
        """
        await self._routes.stop(keep_queued=keep_queued)
