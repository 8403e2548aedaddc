"""A key of a lock: fences, the fold over its events, and when a lease stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from counterfoil.domain.lock import (
    Clockwork,
    Deadline,
    ended_by,
    fence_of,
    fence_text,
    is_current,
    stands,
)
from counterfoil.domain.opening import next_epoch

if TYPE_CHECKING:
    from tests.domain.conftest import Given, Names

EPOCHS = st.integers(0, 2**63 - 1)
POSITIONS = st.integers(1, 2**63 - 1)


@pytest.mark.contract("LCK-02")
@for_all(st.lists(st.tuples(EPOCHS, POSITIONS), max_size=20))
def test_a_fence_sorts_as_text_as_it_does_as_a_number(places: list[tuple[int, int]]) -> None:
    """Epoch first, then position; 40 digits always."""
    texts = [fence_text(fence_of(*place)) for place in places]

    assert {40} >= {len(text) for text in texts}
    assert [fence_text(fence_of(*place)) for place in sorted(places)] == sorted(texts)


@pytest.mark.contract("LCK-02")
@for_all(EPOCHS, POSITIONS)
def test_a_fence_is_the_epoch_above_the_position(epoch: int, position: int) -> None:
    """128 bits, of which the lower half is the position."""
    fence = fence_of(epoch, position)

    assert epoch * 2**64 + position == fence
    assert (epoch, position) == divmod(fence, 2**64)
    assert fence < 2**128
    assert fence == int(fence_text(fence))


def test_the_largest_fence_fits_its_digits() -> None:
    """128 bits need 39 digits."""
    assert 40 == len(fence_text(2**128 - 1))


@pytest.mark.contract("LCK-03")
@for_all(EPOCHS, EPOCHS, EPOCHS)
def test_an_epoch_is_above_every_one_before_it(last: int, aside: int, wall: int) -> None:
    """Above the journal's last, above the side file's, and not below the clock."""
    epoch = next_epoch(last, aside, wall)

    assert epoch > last
    assert epoch > aside
    assert epoch >= wall
    assert epoch in (last + 1, aside + 1, wall)


@pytest.mark.contract("LCK-01")
def test_a_grant_makes_the_lease(given: Given, names: Names) -> None:
    """The fold has the grant's version, position, opening and time."""
    lease = given().admitted("a").granted(opening=3).lease

    assert lease is not None
    assert (names.lease, True, 1, 1, 2, 3) == (
        lease.lease_id,
        lease.held,
        lease.version,
        lease.grant,
        lease.position,
        lease.opening_id,
    )
    assert ("counterfoil.route", 30_000_000) == (lease.lock, lease.ttl)
    assert fence_of(names.epoch, 2) == lease.fence


@pytest.mark.contract("LCK-01")
@pytest.mark.parametrize("how", ["released", "revoked", "ttl", "opening_ended", "max_hold"])
def test_every_end_of_a_lease_frees_the_key(given: Given, how: str) -> None:
    """It is no longer held, its grant is still known, and the next grant is another one."""
    scene = given().granted()
    match how:
        case "released":
            scene.released()
        case "revoked":
            scene.revoked()
        case "ttl" | "opening_ended" | "max_hold" as cause:
            scene.expired(cause)
    ended = scene.lease

    assert ended is not None
    assert (False, 2, 1, 1) == (ended.held, ended.version, ended.grant, ended.position)
    assert not stands(ended, scene.deadline, scene.world)

    again = scene.granted(opening=2).lease

    assert again is not None
    assert (True, 3, 3, 3, 2) == (again.held, again.version, again.grant, again.position, again.opening_id)


@pytest.mark.contract("LCK-05", "LCK-08", "LCK-09")
@pytest.mark.parametrize(
    ("live", "boot", "at", "cause"),
    [
        (True, "a", 99, None),
        (True, "a", 100, "ttl"),
        (True, "a", 101, "ttl"),
        (True, "b", 0, "ttl"),
        (False, "a", 99, "opening_ended"),
        (False, "a", 101, "opening_ended"),
        (False, "b", 0, "opening_ended"),
        (True, None, 0, "ttl"),
    ],
)
def test_a_lease_stands_until_its_deadline_its_boot_or_its_opening_ends(
    given: Given, names: Names, live: bool, boot: str | None, at: int, cause: str | None
) -> None:
    """Ended means now >= deadline; another boot, or no deadline at all, has ended it too."""
    lease = given().granted(opening=2).lease
    deadline = None if boot is None else Deadline(names.lease, 2, b"t", "a", 100, 0, 30_000_000)
    world = Clockwork(1, boot or "a", at, {1, 2}.__contains__ if live else {1}.__contains__)

    assert lease is not None
    assert cause == ended_by(lease, deadline, world)
    assert (cause is None) is stands(lease, deadline, world)


@pytest.mark.contract("LCK-05")
def test_the_deadline_of_an_earlier_holder_keeps_no_lease(given: Given, names: Names) -> None:
    """What runs is the deadline of the opening that holds the lease; another's says nothing about it."""
    lease = given().granted(opening=2).lease
    world = Clockwork(1, "a", 0, {1, 2}.__contains__)

    assert lease is not None
    for opening, cause in ((1, "ttl"), (2, None), (3, "ttl")):
        deadline = Deadline(names.lease, opening, b"t", "a", 100, 0, 30_000_000)
        assert cause == ended_by(lease, deadline, world)
        assert (cause is None) is stands(lease, deadline, world)


def test_no_lease_does_not_stand(given: Given) -> None:
    """Nor is anything current."""
    scene = given()

    assert not stands(None, None, scene.world)
    assert not is_current(None, None, 1, scene.world)


@pytest.mark.contract("LCK-10", "RUN-05")
def test_only_the_newest_grant_of_this_opening_is_current(given: Given) -> None:
    """An older fence, another opening, and a lease that has ended are not."""
    scene = given().granted()
    older = scene.fence
    scene.expired("ttl").granted()

    assert is_current(scene.lease, scene.deadline, scene.fence, scene.world)
    assert not is_current(scene.lease, scene.deadline, older, scene.world)

    scene.alive(1, 2).seen_by(2)
    assert not is_current(scene.lease, scene.deadline, scene.fence, scene.world)

    scene.seen_by(1).later(30_000_000)
    assert not is_current(scene.lease, scene.deadline, scene.fence, scene.world)


@pytest.mark.contract("LCK-02", "LCK-10", "RUN-05")
@pytest.mark.parametrize("epoch", [-1, 1], ids=["older", "newer"])
def test_a_fence_is_compared_as_a_whole(given: Given, names: Names, epoch: int) -> None:
    """A grant that a restore took back had the same position in another epoch; its holder is not the one that stands."""
    scene = given().granted()

    assert scene.lease is not None
    assert fence_of(names.epoch, scene.lease.position) == scene.fence
    assert is_current(scene.lease, scene.deadline, scene.fence, scene.world)
    assert not is_current(scene.lease, scene.deadline, fence_of(names.epoch + epoch, scene.lease.position), scene.world)
