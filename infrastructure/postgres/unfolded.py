"""What an opening has appended of late, decoded as it was decided, so that folding it later reads nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from counterfoil.domain.event import Recorded
from counterfoil.domain.placing import Placing

from .gaps import SLICE


class Unfolded:
    """The newest events, as long as all of them are own ones: where others have appended between, the history is read."""

    def __init__(self) -> None:
        self._events: deque[Recorded] = deque(maxlen=4 * SLICE)

    def take(self, head: int, events: Iterable[Recorded]) -> None:
        """Take in what was appended when the head was at a position."""
        if self._events and self._events[-1].position != head:
            self._events.clear()
        self._events.extend(events)

    def above(self, position: int) -> list[Recorded] | None:
        """Return what follows a position, a slice at most; None where it is not known here."""
        while self._events and self._events[0].position <= position:
            self._events.popleft()
        if not self._events or self._events[0].position != position + 1:
            return None
        return list(islice(self._events, SLICE))


def placed_event(event: Recorded, placing: Placing) -> Recorded:
    """Return an event at its real place."""
    position, recorded_at, originator_id, version, header, decoded = event
    return Recorded(placing.position(position), placing.time(recorded_at), originator_id, version, header, decoded)
