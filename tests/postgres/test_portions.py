"""A large group is decided in portions, each while the one before is appended, and comes out as if none had been."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

import counterfoil
from counterfoil import AsyncJournal, Grant, Identity, Inbound, Limits, Reply, Turn
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.postgres import engine as engines
from counterfoil.infrastructure.postgres.appending import Appended
from counterfoil.infrastructure.postgres.deciding import Draft
from counterfoil.infrastructure.postgres.engine import PostgresEngine
from counterfoil.infrastructure.postgres.knowledge import Knowledge
from counterfoil.projections.catalogue import BUILT_IN
from tests.postgres_server import Postgres

GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))
LIMITS: Any = Limits(max_pending_per_process=10_000, max_routes=10_000, max_pending_per_binding=32)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Portions are small; counts how often something was decided ahead, and how often not."""
    counted: Counter[bool] = Counter()
    draft_ahead = Knowledge.draft_ahead

    def counting(self: Knowledge, draft: Draft, following: list[Any]) -> Draft | None:
        found = draft_ahead(self, draft, following)
        if following:
            counted[found is not None] += 1
        return found

    monkeypatch.setattr(engines, "PORTION", 4)
    monkeypatch.setattr(Knowledge, "draft_ahead", counting)
    return counted


@pytest.fixture
def url(postgres: Postgres, schema: str) -> str:
    return postgres.url(schema)


def event(number: int, conversation: int = 0, actor: str = "ann") -> Inbound:
    return Inbound(connection="tg", conversation=f"c{conversation}", actor=actor, event_id=f"e{number}", text="hello")


def check_caches(journal: AsyncJournal) -> None:
    """What an opening has cached is what is stored."""
    engine = journal.core.engine
    assert isinstance(engine, PostgresEngine)
    caches, store = engine._known.caches, engine._known.store
    for operation_id, operation in caches.operations.committed.items():
        assert operation == caches._load_operation(operation_id)
    for route, queue in caches.queues.committed.items():
        assert queue == store.queue(route)
    for projection in BUILT_IN:
        if not projection.AGGREGATED:
            for key, row in caches.rows[projection.NAME].committed.items():
                assert row == store.row(projection, key)
    for command, kept in caches.commands.committed.items():
        assert kept == store.kept_command(command)


@pytest.mark.contract("JRN-02", "JRN-04")
async def test_portions_of_one_group_use_the_same_queues(url: str, ahead: Counter[bool]) -> None:
    async with counterfoil.open_async(url, limits=LIMITS) as journal:
        await journal.admit(event(0), GRANT)

        answers = await asyncio.gather(*(journal.admit(event(number, number % 5), GRANT) for number in range(1, 100)))

        assert ahead[True] > 5
        assert {"accepted"} == {answer.status for answer in answers}
        positions = [answer.position for answer in answers]
        assert sorted(set(positions), key=str) == sorted(positions, key=str)
        check_caches(journal)
        assert (await journal.verify()).agrees


@pytest.mark.contract("ADM-02", "JRN-04")
async def test_an_event_that_comes_again_in_the_next_portion_is_a_duplicate(url: str, ahead: Counter[bool]) -> None:
    async with counterfoil.open_async(url, limits=LIMITS) as journal:
        await journal.admit(event(0), GRANT)

        answers = await asyncio.gather(*(journal.admit(event(number % 7, number % 7), GRANT) for number in range(1, 71)))

        by_operation = Counter(answer.operation_id for answer in answers)
        assert [10] * 7 == list(by_operation.values())
        assert 6 == sum(not answer.duplicate for answer in answers)
        check_caches(journal)
        assert (await journal.verify()).agrees


@pytest.mark.contract("ADM-01", "LIM-01")
async def test_what_the_portion_before_has_filled_is_full(url: str, ahead: Counter[bool]) -> None:
    async with counterfoil.open_async(url, limits=Limits(max_pending_per_binding=6, max_pending_per_process=100)) as journal:
        await journal.admit(event(0), GRANT)

        answers = await asyncio.gather(*(journal.admit(event(number), GRANT) for number in range(1, 40)))

        assert ahead[True]
        assert {"accepted": 5, "denied": 34} == Counter(answer.status for answer in answers)
        assert ["accepted"] * 5 == [answer.status for answer in answers[:5]]
        check_caches(journal)


@pytest.mark.contract("JRN-05")
async def test_the_answer_of_a_command_is_kept_across_portions(url: str, ahead: Counter[bool]) -> None:
    async with counterfoil.open_async(url, limits=LIMITS) as journal:
        await journal.admit(event(0), GRANT)

        answers = await asyncio.gather(
            *(journal.admit(event(number % 20, number % 20), GRANT, command_id=f"{number % 20}") for number in range(60))
        )

        assert answers[:20] == answers[20:40] == answers[40:]
        check_caches(journal)
        assert (await journal.verify()).agrees


@pytest.mark.contract("JRN-02", "ADM-02")
async def test_portions_of_two_hosts_that_append_between(url: str, ahead: Counter[bool]) -> None:
    """What was decided on top of what did not land where it was thought to is decided again."""
    chance = Random(5)
    async with counterfoil.open_async(url, limits=LIMITS) as one, counterfoil.open_async(url, limits=LIMITS) as other:

        async def load(journal: AsyncJournal, first: int) -> list[Any]:
            answers = []
            for begin in range(first, first + 200, 40):
                await asyncio.sleep(chance.uniform(0, 0.02))  # so that there are moments in which nobody disturbs
                some = (
                    journal.admit(event(number, number % 40, actor=str(number % 3)), GRANT) for number in range(begin, begin + 40)
                )
                answers += await asyncio.gather(*some)
            return answers

        found = await asyncio.gather(load(one, 0), load(other, 1_000))

        assert ahead[True]
        assert {"accepted"} == {answer.status for answers in found for answer in answers}
        assert 400 == len({answer.operation_id for answers in found for answer in answers})
        for journal in (one, other):
            await journal.admit(event(5_000), GRANT)
            journal.core.engine._known.has_moved()  # type: ignore[attr-defined]
            check_caches(journal)
        assert (await one.verify()).agrees


async def test_somebody_who_appends_between_costs_one_portion(
    url: str, ahead: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was cached before it stays: otherwise what is presumed from then on would be wrong, and cost as much again."""
    appended: Counter[str] = Counter()
    append = PostgresEngine._append

    def counting(self: PostgresEngine, draft: Draft, following: list[Any]) -> tuple[Appended, Draft | None]:
        found = append(self, draft, following)
        appended[found[0].status] += 1
        return found

    async with counterfoil.open_async(url, limits=LIMITS) as one, counterfoil.open_async(url, limits=LIMITS) as other:
        await asyncio.gather(*(one.admit(event(number, number), GRANT) for number in range(60)))
        drafted, again = Knowledge.draft_ahead, [True]

        def while_other_appends(self: Knowledge, draft: Draft, following: list[Any]) -> Draft | None:
            if following and again:
                again.clear()
                other.core.committer.submit(AdmitInbound(event(1_000, 1_000), GRANT, "agent")).result(30)
            return drafted(self, draft, following)

        monkeypatch.setattr(PostgresEngine, "_append", counting)
        monkeypatch.setattr(Knowledge, "draft_ahead", while_other_appends)

        await asyncio.gather(*(one.admit(event(100 + number, number), GRANT) for number in range(60)))

        assert not again
        assert 1 >= appended["conflict"]
        assert ahead[True] > 5
        check_caches(one)
        assert (await one.verify()).agrees


@pytest.mark.contract("RUN-01", "RUN-03")
async def test_turns_in_portions(url: str, ahead: Counter[bool]) -> None:
    """Claims and settlements read, and build on what the portion before has done."""
    delivered: Counter[str] = Counter()

    async def echo(turn: Turn) -> str:
        return turn.text

    async def deliver(reply: Reply) -> None:
        delivered[reply.operation_id] += 1

    async with counterfoil.open_async(url, limits=LIMITS) as journal:
        async with counterfoil.Runtime(
            journal,
            authorize=lambda inbound, action: GRANT,
            resolve_agent=lambda alias, identity, inbound: echo,
            deliver=deliver,
        ) as runtime:
            answers = await asyncio.gather(*(runtime.admit(event(number, number % 30)) for number in range(120)))
            await runtime.drain()

        assert {answer.operation_id: 1 for answer in answers} == dict(delivered)
        assert not (await journal.acting_as(GRANT.identity).unresolved()).rows
        check_caches(journal)
        assert (await journal.verify()).agrees
