"""What `counterfoil reconcile` does: the journal files by itself, and a runtime without an agent sends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from counterfoil.domain.identity import EVERY_TENANT, Identity
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.reconcile import Reconciliation
from counterfoil.infrastructure.callbacks import Agent, Authorize, Deliver
from counterfoil.infrastructure.journal_async import open_async
from counterfoil.infrastructure.runtime import Runtime

from .desk import opened, operator
from .grants import authorize_from
from .sending import deliver_from


class Words(TypedDict):
    """What an operator decides, by the names of the library."""

    expected_version: int
    acknowledge_duplicate_risk: bool
    force: bool
    reason: str
    note: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operator decided about an operation."""

    operation_id: str
    version: int
    acknowledge: bool
    force: bool
    reason: str
    note: str | None

    @property
    def words(self) -> Words:
        return Words(
            expected_version=self.version,
            acknowledge_duplicate_risk=self.acknowledge,
            force=self.force,
            reason=self.reason,
            note=self.note,
        )


def file_it(journal: str, asked: Asked) -> Reconciliation:
    """File it without sending; raises `NeedsRuntime` where a reply would have to be sent."""
    with opened(journal, readonly=False) as (_, desk):
        return desk.reconcile(asked.operation_id, **asked.words)


def send_it(
    journal: str, asked: Asked, function: str | None, command: str | None, timeout_us: int, grants: str | None
) -> Reconciliation:
    """File it, or send its reply again through what the command line names."""
    deliver = deliver_from(function, command, Limits().max_response_bytes)
    authorize = authorize_from(grants, journal)
    return asyncio.run(_send(journal, asked, deliver, authorize, timedelta(microseconds=timeout_us)))


async def _no_agent(_alias: str, _identity: Identity, _inbound: Inbound) -> Agent:
    raise AssertionError("reconcile calls no agent")


async def _send(journal: str, asked: Asked, deliver: Deliver, authorize: Authorize, sending: timedelta) -> Reconciliation:
    async with open_async(journal) as opened_journal:
        runtime = Runtime(opened_journal, authorize=authorize, resolve_agent=_no_agent, deliver=deliver, deliver_timeout=sending)
        return await runtime.reconcile(operator(), asked.operation_id, tenant=EVERY_TENANT, **asked.words)
