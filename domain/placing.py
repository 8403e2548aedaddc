"""
Places that were decided ahead of an append, and what they have become.

An engine that decides outside of its append lock gives provisional positions and times, which the append moves when others have
appended first. Nothing that is hashed holds any; states, rows and answers do.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

from .lock import fence_of, position_of


class Placing(NamedTuple):
    """Where an append has put what was decided ahead of it."""

    seen: int
    """The position that was decided on; those above it are provisional."""
    positions: int
    """How far they are moved."""
    since: int
    """The first provisional time, in microseconds since 1970; all before it are real."""
    times: int
    """How far they are moved, either way."""
    epoch: int
    """The epoch that stands after the append."""

    def position(self, position: int) -> int:
        return position + self.positions if position > self.seen else position

    def time(self, time: int) -> int:
        return time + self.times if time >= self.since else time

    def fence(self, fence: int) -> int:
        """Return the fence of a grant of the append with its place and the epoch that stands there; others as they are."""
        position = position_of(fence)
        return fence_of(self.epoch, position + self.positions) if position > self.seen else fence


class Placed(Protocol):
    """A state or an answer that holds places."""

    def placed(self, placing: Placing) -> Self:
        """Return it with its real places."""
        ...


def placed(value: Any, placing: Placing) -> Any:
    """Return a state or an answer with its real places, if it is `Placed`."""
    move = getattr(value, "placed", None)
    return value if move is None else move(placing)
