"""Keys of locks that are ids of people: they are forgotten with them, and locked by as before."""

from __future__ import annotations

import pytest

import counterfoil

PAT = counterfoil.Identity(tenant="acme", principal="pat", verified=True)
GRANT = counterfoil.Grant(identity=PAT, aliases=["helper"])


def keys(lock: counterfoil.Lock) -> list[str | None]:
    return [holder.key for holder in lock.holders()]


@pytest.mark.contract("IDN-06")
@pytest.mark.parametrize("whole", [True, False], ids=["scope", "conversation"])
def test_a_key_that_is_an_id_is_erased_with_it(journal: counterfoil.Journal, whole: bool) -> None:
    """Whoever holds it holds it still, and history and lock go by what is made from the key."""
    journal.admit(counterfoil.Inbound(connection="tg", conversation="-100", actor="7", event_id="1", text="hello"), GRANT)
    lock, desk = journal.lock("summaries"), journal.acting_as(PAT)
    with lock.hold(-100) as lease, lock.hold("another"):
        assert {"-100", "another"} == set(keys(lock))
        if whole:
            assert desk.erase_scope()
        else:
            assert desk.erase("conversation", "-100", connection="tg")
        assert {None, "another"} == set(keys(lock))
        lease.check()

    assert ["granted", "released"] == [event.happened for event in lock.history("-100").rows]
    with lock.try_hold("-100") as again:
        assert again is not None
        assert ["-100"] == keys(lock)
