"""What waits from openings that have ended: when it runs, under whose word, and what is stepped over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import Denied
from counterfoil.domain.identity import EVERY_TENANT, Grant, Identity

if TYPE_CHECKING:
    from tests.runtime.conftest import Host, Hosts


async def left_waiting(hosts: Hosts, *event_ids: str, conversation: str = "c1") -> list[str]:
    """Admit events in an opening that ends before it runs them."""
    host = await hosts.open()
    operations = [await host.queue_only(event_id, conversation, text=f"text of {event_id}") for event_id in event_ids]
    host.die()
    return operations


def identity(**values: Any) -> Identity:
    return Identity(**{"tenant": "acme", "principal": "ann", "verified": True, **values})


def texts(host: Host) -> list[str]:
    return [reply.text for reply in host.sent]


@pytest.mark.contract("RUN-08")
async def test_an_opening_runs_nothing_of_what_it_finds(hosts: Hosts) -> None:
    """Until somebody asks for it."""
    operations = await left_waiting(hosts, "m1", "m2")
    host = await hosts.open()
    await host.answer("other", "c2")

    assert ["re: hello"] == texts(host)
    assert operations == list(await host.unresolved())
    assert {"accepted"} == {row.state for row in (await host.unresolved()).values()}


@pytest.mark.contract("RUN-08", "ADM-05")
async def test_resume_runs_what_waits_in_order(hosts: Hosts) -> None:
    """Accepted and never claimed, so nothing of it has run."""
    await left_waiting(hosts, "m1", "m2")
    await left_waiting(hosts, "m3", "n1")
    await left_waiting(hosts, "n2", conversation="c2")
    host = await hosts.open()
    resumed = await host.resume()
    await host.drain()

    assert 2 == resumed.routes
    assert ["text of m1", "text of m2", "text of m3", "text of n1"] == [t.text for t in host.turns if t.conversation == "c1"]
    assert {} == await host.unresolved()
    assert 0 == (await host.resume()).routes


@pytest.mark.contract("RUN-08")
async def test_a_new_event_runs_what_waits_before_it(hosts: Hosts) -> None:
    """On its own route only."""
    await left_waiting(hosts, "m1", "m2")
    (elsewhere,) = await left_waiting(hosts, "n1", conversation="c2")
    host = await hosts.open()
    await host.answer("m3")

    assert ["re: text of m1", "re: text of m2", "re: hello"] == texts(host)
    assert [elsewhere] == list(await host.unresolved())


@pytest.mark.contract("RUN-08", "ADM-02")
async def test_a_repeat_runs_what_was_accepted(hosts: Hosts) -> None:
    """With what waits before it."""
    operations = await left_waiting(hosts, "m1", "m2")
    host = await hosts.open()
    answer = await host.admit("m2", text="text of m2")
    await host.drain()

    assert (True, operations[1]) == (answer.duplicate, answer.operation_id)
    assert ["re: text of m1", "re: text of m2"] == texts(host)


@pytest.mark.contract("RUN-08", "ADM-02")
async def test_a_repeat_runs_what_its_own_opening_admitted_without_a_runtime(hosts: Hosts) -> None:
    """And a resume does."""
    host = await hosts.open()
    await host.queue_only("m1")
    await host.queue_only("n1", "c2")
    await host.admit("m1")
    await host.drain()
    assert ["m1"] == [reply.in_reply_to for reply in host.sent]
    await host.resume()
    await host.drain()

    assert ["m1", "n1"] == [reply.in_reply_to for reply in host.sent]


@pytest.mark.contract("RUN-08")
async def test_what_waits_for_a_living_process_is_left_to_it(hosts: Hosts) -> None:
    """Neither a resume nor a repeat runs it."""
    living, other = await hosts.open(), await hosts.open()
    await living.queue_only("m1")

    assert 0 == (await other.resume()).routes
    await other.admit("m1")
    await other.drain()
    assert [] == other.sent


@pytest.mark.contract("RUN-08", "LIM-01")
async def test_what_is_older_than_max_wait_is_stepped_over(hosts: Hosts) -> None:
    """It leaves the queue, stays accepted, is listed, counts for no limit, and a repeat puts it at the end."""
    old = await left_waiting(hosts, *[f"m{number}" for number in range(8)])
    hosts.clock.advance("14m59s")
    host = await hosts.open()
    assert "capacity" == (await host.admit("young")).reason
    hosts.clock.advance("2s")
    held = host.held()
    young = await host.accept("young")
    await held.started.wait()

    assert [young] == [row.operation_id for row in await queue(host)]
    assert 8 == (await host.types()).count("entry.stepped_over")
    unresolved = await host.unresolved()
    assert {*old, young} == set(unresolved)
    assert {"accepted"} == {unresolved[operation_id].state for operation_id in old}
    again = await host.admit("m3", text="text of m3")
    assert (True, old[3]) == (again.duplicate, again.operation_id)
    assert [young, old[3]] == [row.operation_id for row in await queue(host)]
    held.go.set()
    await host.drain()
    assert ["young", "m3"] == [reply.in_reply_to for reply in host.sent]
    assert 7 == len(await host.unresolved())


async def queue(host: Host) -> list[Any]:
    operation = (await host.events())[2]
    route = next(row.recorded.event.route for row in [operation])  # type: ignore[union-attr]
    return list(await host.core.read_async(lambda store: store.queue(route).entries))


@pytest.mark.contract("RUN-08")
async def test_resume_steps_over_what_is_too_old_and_runs_the_rest(hosts: Hosts) -> None:
    """Its lines come again, or an operator files it."""
    old = await left_waiting(hosts, "m1", "m2")
    hosts.clock.advance("10m")
    await left_waiting(hosts, "m3")
    hosts.clock.advance("5m1s")
    host = await hosts.open()
    await host.resume()
    await host.drain()

    assert ["re: text of m3"] == texts(host)
    assert old == list(await host.unresolved())
    await host.admit("m1", text="text of m1")
    await host.drain()
    assert ["re: text of m3", "re: text of m1"] == texts(host)


@pytest.mark.contract("RUN-08")
async def test_what_waits_in_a_living_opening_never_grows_too_old(hosts: Hosts) -> None:
    """Only entries of ended openings are stepped over."""
    host = await hosts.open(lease_ttl="300s")
    held = host.held()
    await host.accept("m1")
    await held.started.wait()
    await host.accept("m2", text="two")
    hosts.clock.set_forward("1d")
    held.go.set()
    await host.drain()

    assert ["re: hello", "re: two"] == texts(host)


@pytest.mark.contract("RUN-08")
async def test_adopted_work_is_authorised_anew_from_its_text_without_claims(hosts: Hosts) -> None:
    """Under the host's word of now, and the agent that it was admitted for."""
    first = await hosts.open()
    held = first.held()
    await first.accept("m0")
    await held.started.wait()
    await first.accept("m1", text="the text", thread="t", claims={"a": 1}, received_at="2026-01-01T00:00:00Z")
    first.die()
    host = await hosts.open()
    host.on_authorize = lambda inbound, action: Grant(
        identity=identity(permissions=["now"]), aliases=("new default", "agent"), revision="2"
    )
    await host.resume()
    await host.drain()
    held.go.set()

    (inbound, action), (alias, resolved, _) = host.asked[0], host.resolved[0]
    assert ("the text", "t", None, "message") == (inbound.text, inbound.thread, inbound.claims, action)
    assert 2026 == inbound.received_at.year  # type: ignore[union-attr]
    assert ("agent", frozenset({"now"})) == (alias, resolved.permissions)


@pytest.mark.contract("RUN-08", "IDN-01", "IDN-04")
@pytest.mark.parametrize("word", ["none", "revoked", "alias", "scope", "user"])
async def test_adopted_work_that_is_refused_settles_failed(hosts: Hosts, word: str) -> None:
    """Another scope, or a grant without the agent that it was admitted for, is a refusal too; the rest of the route goes on."""
    first_id, second_id = await left_waiting(hosts, "m1", "m2")
    host = await hosts.open()

    def authorize(inbound: Any, action: str) -> Grant | None:
        if inbound.event_id == "m2":
            return Grant(identity=identity(), aliases=("agent",))
        return {
            "none": None,
            "revoked": Grant(identity=identity(verified=False), aliases=("agent",)),
            "alias": Grant(identity=identity(), aliases=("other",)),
            "scope": Grant(identity=identity(tenant="other"), aliases=("agent",)),
            "user": Grant(identity=identity(user="ann"), aliases=("agent",)),
        }[word]

    host.on_authorize = authorize
    await host.resume()
    await host.drain()

    assert ["re: text of m2"] == texts(host)
    assert ("failed", "none") == ((await host.operation(first_id)).phase, (await host.operation(first_id)).reply)
    assert "rejected" == (await host.states("operation.settled"))[0].code
    assert "succeeded" == (await host.operation(second_id)).phase
    assert ["m2"] == [turn.event_id for turn in host.turns]


@pytest.mark.contract("RUN-08")
async def test_a_repeat_runs_under_the_agent_that_it_was_admitted_for(hosts: Hosts) -> None:
    """Though another is the default by now; one that is no longer granted is refused."""
    await left_waiting(hosts, "m1")
    (refused,) = await left_waiting(hosts, "n1", conversation="c2")
    host = await hosts.open()
    host.on_authorize = lambda inbound, action: Grant(
        identity=identity(), aliases=("new", "agent") if inbound.event_id == "m1" else ("new",)
    )
    await host.admit("m1")
    await host.admit("n1", "c2")
    await host.drain()

    assert ["agent"] == [alias for alias, _, _ in host.resolved]
    assert ["m1"] == [reply.in_reply_to for reply in host.sent]
    assert "failed" == (await host.operation(refused)).phase


@pytest.mark.contract("RUN-08")
async def test_authorize_that_raises_on_adopted_work_is_asked_again(hosts: Hosts) -> None:
    """A host that cannot say has refused nothing: what was accepted waits until it can."""
    await left_waiting(hosts, "m1")
    host = await hosts.open()
    asked = 0
    allow = host.on_authorize

    async def authorize(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise asyncio.CancelledError
        return allow(*arguments)

    host.on_authorize = authorize
    await host.resume()
    await host.drain()

    assert ["succeeded"] == [event.outcome for event in await host.states("operation.settled")]


@pytest.mark.contract("RUN-08")
async def test_authorize_that_is_slow_holds_up_its_route_alone(hosts: Hosts) -> None:
    """A claim is made after it has answered, so nothing is executing meanwhile."""
    (slow,) = await left_waiting(hosts, "m1")
    host = await hosts.open()
    asked, go = asyncio.Event(), asyncio.Event()

    async def authorize(inbound: Any, action: str) -> Grant:
        if inbound.event_id == "m1":
            asked.set()
            await go.wait()
        return Grant(identity=identity(), aliases=("agent",))

    host.on_authorize = authorize
    await host.resume()
    await asked.wait()
    await host.accept("n1", "c2")
    await host.until_event("reply.delivered")
    assert "accepted" == (await host.operation(slow)).phase
    go.set()
    await host.drain()

    assert ["n1", "m1"] == [reply.in_reply_to for reply in host.sent]


@pytest.mark.contract("RUN-08", "IDN-06")
async def test_what_was_erased_meanwhile_is_not_run(hosts: Hosts) -> None:
    """Its text is gone, and the erasure has filed that."""
    (operation_id,) = await left_waiting(hosts, "m1")
    host = await hosts.open()
    assert await host.journal.acting_as(identity()).erase("actor", "ann", connection="tg")
    await host.resume()
    await host.drain()

    assert not host.turns
    assert not host.asked
    assert "abandoned" == (await host.operation(operation_id)).phase


@pytest.mark.contract("RUN-08", "IDN-02", "IDN-05")
async def test_resume_reaches_its_own_scope_or_the_tenants_that_an_operator_names(hosts: Hosts, operator: Identity) -> None:
    """Nothing implies the permission."""
    first = await hosts.open()
    for tenant, user in (("acme", None), ("acme", "u1"), ("other", None)):
        first.on_authorize = lambda *_, tenant=tenant, user=user: Grant(
            identity=identity(tenant=tenant, user=user), aliases=("agent",)
        )
        held = first.held()
        await first.accept("m0", f"{tenant} {user}")
        await held.started.wait()
        await first.accept("m1", f"{tenant} {user}")
    first.die()
    host = await hosts.open()
    host.on_authorize = lambda inbound, _: Grant(
        identity=identity(
            tenant=inbound.conversation.split()[0],
            user=None if inbound.conversation.endswith("None") else inbound.conversation.split()[1],
        ),
        aliases=("agent",),
    )
    with pytest.raises(Denied):
        await host.runtime.resume(identity(), tenant="acme")
    with pytest.raises(Denied):
        await host.runtime.resume(identity(verified=False))
    assert 0 == (await host.runtime.resume(operator)).routes
    assert 1 == (await host.runtime.resume(identity())).routes
    await host.drain()
    assert ["acme None"] == [reply.conversation for reply in host.sent]
    assert 1 == (await host.runtime.resume(operator, tenant="acme")).routes
    assert 1 == (await host.runtime.resume(operator, tenant=EVERY_TENANT)).routes
    await host.drain()

    assert {"acme None", "acme u1", "other None"} == {reply.conversation for reply in host.sent}
    acts = [row for row in await host.events() if row.type == "operator.acted"]
    assert ["resumed"] * 2 == [row.recorded.event.action for row in acts]  # type: ignore[union-attr]
    assert {"operator"} == {row.actor_kind for row in acts}


@pytest.mark.contract("ADM-02", "RUN-08")
async def test_two_processes_that_resume_at_once_run_everything_once(hosts: Hosts) -> None:
    """The lease and the claim decide."""
    for number in range(5):
        await left_waiting(hosts, *[f"m{number}-{entry}" for entry in range(4)], conversation=f"c{number}")
    both = [await hosts.open(), await hosts.open()]
    await asyncio.gather(*(host.resume() for host in both))
    for host in both * 2:
        await host.drain()

    sent = [reply.in_reply_to for host in both for reply in host.sent]
    assert 20 == len(sent) == len(set(sent))
    assert {} == await both[0].unresolved()
