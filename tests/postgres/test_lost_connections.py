"""Connections that are lost, servers that are started anew: nothing is half done, and the journal goes on by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any

import psycopg
import pytest

import counterfoil
from counterfoil import Admission, AsyncJournal, Grant, Identity, Inbound, JournalUnavailable, LeaseLost, Limits
from counterfoil.infrastructure.postgres.engine import PostgresEngine
from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy

GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))
LIMITS = Limits(max_pending_per_process=10_000, max_routes=10_000, max_pending_per_binding=32)
PATIENCE = 20.0
SIGNS = """
SELECT pid, objid FROM pg_locks
WHERE locktype = 'advisory' AND classid = '"{schema}"'::regnamespace AND objsubid = 2 AND objid > 0 AND mode = 'ExclusiveLock'
"""


def event(event_id: str, conversation: str = "c1") -> Inbound:
    return Inbound(connection="tg", conversation=conversation, actor="ann", event_id=event_id, text="hello")


def end_session_of_the_sign(postgres: Postgres, schema: str, *, of: AsyncJournal | None = None) -> None:
    """End those of all openings, or that of one."""
    for pid, opening_id in postgres.execute(SIGNS.format(schema=schema)):
        if of is None or opening_id == of.core.engine.opening_id:
            postgres.execute("SELECT pg_terminate_backend(%s)", (pid,))


def end_session_of_the_writer(journal: AsyncJournal, postgres: Postgres) -> None:
    engine = journal.core.engine
    assert isinstance(engine, PostgresEngine)
    pid = engine._known.store.connection.info.backend_pid
    postgres.execute("SELECT pg_terminate_backend(%s)", (pid,))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads and on the server
            await asyncio.sleep(0.005)


class Held:
    """A key that is held until it is lost."""

    def __init__(self, journal: AsyncJournal) -> None:
        self._journal = journal
        self.fence = 0
        self.reason: str | None = None
        self.task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            async with self._journal.lock("jobs").hold("k") as lease:
                self.fence = lease.fence
                await asyncio.sleep(PATIENCE)
        except LeaseLost as error:
            self.reason = error.reason


@pytest.mark.contract("LCK-06", "LCK-08", "LCK-03")
async def test_an_opening_whose_sign_is_lost_has_ended(postgres: Postgres, schema: str) -> None:
    """Its leases are lost, and said to be; the next command begins another one, with fences above."""
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        held = Held(journal)
        await until(lambda: held.fence > 0)
        before = journal.core.engine.opening_id

        end_session_of_the_sign(postgres, schema)
        await asyncio.wait_for(held.task, PATIENCE)

        assert "opening_ended" == held.reason
        async with journal.lock("jobs").hold("k") as lease:
            assert lease.fence > held.fence
        assert journal.core.engine.opening_id != before
        assert (await journal.verify()).agrees


@pytest.mark.contract("ADM-07", "LCK-08")
async def test_an_opening_survives_the_session_of_its_writer(postgres: Postgres, schema: str) -> None:
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        held = Held(journal)
        await until(lambda: held.fence > 0)
        before = journal.core.engine.opening_id

        end_session_of_the_writer(journal, postgres)
        answer = await journal.admit(event("1"), GRANT)

        assert "accepted" == answer.status
        assert before == journal.core.engine.opening_id
        assert [held.fence] == [holder.fence for holder in await journal.holders()]
        assert held.reason is None
        held.task.cancel()
        await asyncio.gather(held.task, return_exceptions=True)


class Load:
    """Events that were sent, with what was answered to each."""

    def __init__(self, journal: AsyncJournal) -> None:
        self._journal = journal
        self.answers: dict[str, tuple[Inbound, Admission]] = {}

    async def admit(self, inbound: Inbound) -> Admission:
        answer = await self._journal.admit(inbound, GRANT)
        self.answers[inbound.event_id] = inbound, answer
        return answer

    @property
    def accepted(self) -> int:
        return sum(answer.status == "accepted" for _, answer in self.answers.values())

    async def check(self) -> None:
        """What was accepted is there once, and what was not, and is sent again, is taken once."""
        journal = self._journal
        assert {None, "unavailable"} >= {answer.reason for _, answer in self.answers.values()}
        for inbound, answer in self.answers.values():
            again = await journal.admit(inbound, GRANT)
            while again.reason == "unavailable":  # the last cut was only just heard of
                again = await journal.admit(inbound, GRANT)
            assert "accepted" == again.status
            if answer.status == "accepted":
                assert (answer.operation_id, True) == (again.operation_id, again.duplicate)
        desk, admitted, after = journal.acting_as(GRANT.identity), Counter[str](), None
        while True:
            page = await desk.timeline(counterfoil.TimelineFilter(types=("operation.admitted",)), after=after)
            admitted.update(str(entry.event_id) for entry in page.rows)
            after = page.next
            if after is None:
                break
        assert dict.fromkeys(self.answers, 1) == dict(admitted)
        assert (await journal.verify()).agrees


@pytest.mark.contract("ADM-07", "JRN-03")
async def test_a_server_that_is_started_anew_loses_nothing(own_postgres: Server, schema: str) -> None:
    """In the middle of the load: each answer is true, and the journal goes on by itself."""
    async with counterfoil.open_async(own_postgres.url(schema), limits=LIMITS) as journal:
        load, stopped = Load(journal), False

        async def send(caller: int) -> None:
            number = 0
            while not stopped:
                number += 1
                answer = await load.admit(event(f"{caller}-{number}", f"c{caller}-{number}"))
                if answer.reason == "unavailable":  # as often as that is answered at once, it would be more than can wait
                    await asyncio.sleep(0.01)

        tasks = [asyncio.create_task(send(caller)) for caller in range(8)]
        await until(lambda: load.accepted > 200)
        await asyncio.to_thread(own_postgres.restart, immediate=True)
        accepted = load.accepted
        await until(lambda: load.accepted > accepted + 50)
        stopped = True
        await asyncio.gather(*tasks)

        await load.check()


@pytest.mark.contract("ADM-07", "ADM-02", "JRN-03")
async def test_answers_that_are_lost_are_found_out(proxy: Proxy, schema: str) -> None:
    """The wire is cut again and again, at any moment of a commit."""
    chance = Random(7)
    async with counterfoil.open_async(proxy.url(schema), limits=LIMITS) as journal:
        load = Load(journal)
        for number in range(40):
            while (await load.admit(event(f"{number}-before", f"before {number}"))).reason == "unavailable":
                pass  # it has only just heard of the last cut
            names = [f"{number}-{each}" for each in range(8)]
            tasks = [asyncio.create_task(load.admit(event(name, name))) for name in names]
            await asyncio.sleep(chance.uniform(0, 0.004))  # the moment of the cut is what is random here
            proxy.drop()
            await asyncio.gather(*tasks)

        await load.check()


@pytest.mark.contract("ADM-07", "LCK-06")
async def test_a_wire_that_is_dead_is_unavailable(proxy: Proxy, schema: str) -> None:
    """Within the time that is allowed for it; what was held is lost, and everything works again when the wire does."""
    async with counterfoil.open_async(proxy.url(schema), limits=Limits(busy_wait="500ms")) as journal:
        held = Held(journal)
        await until(lambda: held.fence > 0)

        proxy.stall()
        answer = await journal.admit(event("1"), GRANT)
        await asyncio.wait_for(held.task, PATIENCE)
        proxy.drop()
        proxy.resume()

        assert "unavailable" == answer.reason
        assert "opening_ended" == held.reason
        async with asyncio.timeout(PATIENCE):
            while (await journal.admit(event("1"), GRANT)).reason == "unavailable":
                pass
        assert (await journal.verify()).agrees


@pytest.mark.contract("LCK-06", "LCK-08")
async def test_who_waits_learns_that_its_opening_is_lost(postgres: Postgres, schema: str) -> None:
    """Its place in the line is gone; asked again, it stands in it anew."""
    url = postgres.url(schema)
    async with counterfoil.open_async(url) as holder, counterfoil.open_async(url) as journal:
        lock = journal.lock("jobs")

        async def wait() -> int:
            async with lock.hold("k", wait="20s") as lease:
                return lease.fence

        async def stand_in_line() -> asyncio.Task[int]:
            waiting = asyncio.create_task(wait(), context=Context())  # as somebody who holds nothing
            async with asyncio.timeout(PATIENCE):
                while [place.opening_id for place in await lock.waiters()] != [journal.core.engine.opening_id]:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            return waiting

        async with holder.lock("jobs").hold("k") as lease:
            for _ in range(2):
                waiting = await stand_in_line()
                end_session_of_the_sign(postgres, schema, of=journal)
                with pytest.raises(JournalUnavailable):
                    await asyncio.wait_for(waiting, PATIENCE)
            waiting = await stand_in_line()
        assert await asyncio.wait_for(waiting, PATIENCE) > lease.fence
        assert (await journal.verify()).agrees


@pytest.mark.contract("ADM-07")
async def test_closing_does_not_wait_for_a_server_that_is_gone(proxy: Proxy, schema: str) -> None:
    async with counterfoil.open_async(proxy.url(schema), limits=Limits(busy_wait="500ms")) as journal:
        held = Held(journal)
        await until(lambda: held.fence > 0)

        proxy.stall()
        async with asyncio.timeout(PATIENCE / 2):  # which is far more than it takes, and far less than a dead wire does
            await journal.close()
        await asyncio.wait_for(held.task, PATIENCE)

        assert "opening_ended" == held.reason
        proxy.resume()


@pytest.mark.contract("ADM-07")
async def test_a_session_is_known_by_its_begin_too(postgres: Postgres, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, in a container above all, somebody else may have the number of the session whose answer was lost."""
    async with counterfoil.open_async(postgres.url(schema)) as journal:
        await journal.admit(event("1"), GRANT)
        engine = journal.core.engine
        assert isinstance(engine, PostgresEngine)
        send = engine._send

        def lose_the_answer(*arguments: Any) -> Any:
            monkeypatch.undo()
            send(*arguments)
            engine._known.store.connection.close()
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(engine, "_send", lose_the_answer)
        with postgres.connect() as stranger:
            connection = engine._known.store.connection
            connection.session = connection.session._replace(backend=stranger.info.backend_pid)

            answer = await journal.admit(event("2"), GRANT)

            assert "accepted" == answer.status
            assert not answer.duplicate
            assert (1,) == stranger.execute("SELECT 1").fetchone()
        own = engine._known.store.connection.session
        engine._end_session(engine._known.store, own._replace(began=own.began - 1))  # which it is not, so that it returns
        assert (await journal.verify()).agrees
