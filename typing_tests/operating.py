"""What an operator's program does with a journal, typed as in a repository of its own. Never run; see host.py."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import assert_type

import counterfoil
from counterfoil import (
    EVERY_TENANT,
    Check,
    Every,
    Grant,
    Identity,
    Inbound,
    Measured,
    Page,
    Progress,
    Reconciliation,
    Statistics,
    Story,
    StoryStep,
    SubjectKind,
    TimelineEntry,
    TimelineFilter,
    UnresolvedOperation,
    Verification,
)

OPERATOR = Identity(tenant="acme", principal="olga", permissions=["journal:operate"], verified=True)


def everything(desk: counterfoil.Desk) -> list[TimelineEntry]:
    rows: list[TimelineEntry] = []
    after: str | None = None
    while True:
        page: Page[TimelineEntry] = desk.timeline(TimelineFilter(types=["reply.delivered"], outcome="delivered"), after=after)
        rows.extend(page.rows)
        after = page.next
        if after is None:
            return rows


def steps_of(stories: list[Story]) -> list[StoryStep]:
    return [step for story in stories for step in story.steps]


def busiest(statistics: Statistics) -> Measured:
    return max(statistics.totals, key=lambda row: row.count)


def forget(desk: counterfoil.Desk, kind: SubjectKind, value: str) -> bool:
    return desk.erase(kind, value, connection=None if kind == "principal" else "tg")


def main(tenant: str | Every = EVERY_TENANT, progress: Progress | None = None) -> None:
    with counterfoil.open("support.sqlite", keep_inbound=30) as journal:
        person = Identity(tenant="acme", user="bob", principal="bob", verified=True)
        inbound = Inbound(
            connection="tg", conversation="chat", actor="bob", event_id="2", text="hello", received_at=datetime.now(UTC)
        )
        admission = journal.admit(inbound, Grant(identity=person, aliases=["helper"]), command_id="once")
        desk = journal.acting_as(OPERATOR, tenant=tenant)
        assert_type(desk.unresolved().rows, tuple[UnresolvedOperation, ...])
        if admission.operation_id is not None and admission.version is not None:
            filed = desk.reconcile(admission.operation_id, expected_version=admission.version)
            assert_type(filed, Reconciliation)
        verification: Verification = journal.verify(progress)
        failed: list[Check] = [check for check in verification.checks if not check.agrees]
        print(len(everything(desk)), steps_of(desk.explain("2")), busiest(desk.statistics()), failed)


async def main_async() -> None:
    async with counterfoil.open_async("support.sqlite", readonly=True) as journal:
        desk: counterfoil.AsyncDesk = journal.acting_as(OPERATOR)
        assert_type(await desk.timeline(newest_first=True), Page[TimelineEntry])


if __name__ == "__main__":
    main()
    asyncio.run(main_async())
