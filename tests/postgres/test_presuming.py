"""What is presumed without a look, that an event and its conversation are new, and proves wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import counterfoil
from counterfoil import Grant, Identity, Inbound, Limits
from counterfoil.infrastructure.commands.admission import AdmitInbound
from counterfoil.infrastructure.postgres import refreshing
from counterfoil.infrastructure.postgres.loading import Wanted
from tests.commits import one_group
from tests.postgres_server import Postgres

GRANT = Grant(identity=Identity(tenant="acme", principal="pat", verified=True), aliases=("agent",))


def event(event_id: str, conversation: str = "c1", actor: str = "ann") -> Inbound:
    return Inbound(connection="tg", conversation=conversation, actor=actor, event_id=event_id, text="hello")


@pytest.fixture
def url(postgres: Postgres, schema: str) -> str:
    return postgres.url(schema)


@pytest.mark.contract("ADM-02", "JRN-02")
async def test_an_event_of_another_host_is_a_duplicate(url: str) -> None:
    async with counterfoil.open_async(url) as one, counterfoil.open_async(url) as other:
        first = await one.admit(event("1"), GRANT)

        repeat = await other.admit(event("1"), GRANT)

        assert (True, first.operation_id) == (repeat.duplicate, repeat.operation_id)


@pytest.mark.contract("ADM-02", "ADM-05")
async def test_a_duplicate_is_no_matter_of_room(url: str) -> None:
    """Though it is decided together with what takes the last room, and was taken for new."""
    async with counterfoil.open_async(url) as one, counterfoil.open_async(url, limits=Limits(max_pending_per_process=2)) as other:
        await one.admit(event("1"), GRANT)
        await other.admit(event("2", "c2"), GRANT)

        last, repeat, refused = await asyncio.gather(
            other.admit(event("3", "c3"), GRANT), other.admit(event("1"), GRANT), other.admit(event("4", "c4"), GRANT)
        )

        assert "accepted" == last.status
        assert repeat.duplicate
        assert "capacity" == refused.reason
        again = await other.admit(event("1"), GRANT)
        assert again.duplicate


@pytest.mark.contract("ADM-01", "LIM-01")
async def test_the_queue_of_a_route_that_another_host_fills_is_full(url: str) -> None:
    limits = Limits(max_pending_per_binding=1)
    async with counterfoil.open_async(url, limits=limits) as one, counterfoil.open_async(url, limits=limits) as other:
        assert "accepted" == (await one.admit(event("1"), GRANT)).status
        assert "capacity" == (await other.admit(event("2"), GRANT)).reason
        assert "accepted" == (await other.admit(event("3", actor="bob"), GRANT)).status
        assert "capacity" == (await one.admit(event("4", actor="bob"), GRANT)).reason


@pytest.mark.contract("ADM-01", "JRN-02")
def test_what_is_presumed_is_presumed_anew_when_others_were_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scope is looked up for one command of a group while somebody appends; the route of the other is not empty for that."""
    limits = Limits(max_pending_per_binding=1)
    stranger = Grant(identity=Identity(tenant="other", principal="pat", verified=True), aliases=("agent",))
    with counterfoil.open(url, limits=limits) as one, counterfoil.open(url, limits=limits) as other:
        other.admit(event("1", actor="bob"), GRANT)
        one.admit(event("2"), GRANT)
        other.admit(event("3", "c3"), GRANT)
        load, meanwhile = Wanted.load, [event("4", "c4")]

        def loading(self: Wanted) -> bool:
            if meanwhile:
                one.admit(meanwhile.pop(), GRANT)
            return load(self)

        with one_group(other.core):
            full = other.core.committer.submit(AdmitInbound(event("5"), GRANT, "agent"))
            other.core.committer.submit(AdmitInbound(event("6"), stranger, "agent"))
            monkeypatch.setattr(Wanted, "load", loading)

        assert "capacity" == full.result(30).admission.reason


@pytest.mark.contract("JRN-02")
@pytest.mark.parametrize("most", [0, 5_000])
async def test_what_others_did_is_known_before_the_next_decision(url: str, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Whether the caches are looked through for it, or forgotten."""
    monkeypatch.setattr(refreshing, "MOST", most)
    limits: Any = Limits(max_pending_per_binding=2)
    async with counterfoil.open_async(url, limits=limits) as one, counterfoil.open_async(url, limits=limits) as other:
        for number in range(6):
            admitted = [await host.admit(event(f"{number}-{who}", f"c{number}"), GRANT) for who, host in enumerate((one, other))]
            full = [await host.admit(event(f"{number}-{who}-full", f"c{number}"), GRANT) for who, host in enumerate((other, one))]

            assert ["accepted", "accepted"] == [answer.status for answer in admitted]
            assert ["capacity", "capacity"] == [answer.reason for answer in full]
        assert (await one.verify()).agrees
