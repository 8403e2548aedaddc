"""Append events of the `eventsourcing` library as they are: chained, carried, and folded by no projection of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.event import Header
from counterfoil.domain.ids import is_our_originator

from ..unit import Unit


class VersionTaken(Exception):
    """An aggregate already has an event of this version."""


@dataclass(frozen=True, slots=True)
class RecordForeign:
    """Append (originator id, version, topic, state) below the openings: no event of ours comes with them."""

    events: Sequence[tuple[str, int, str, bytes]]

    def run(self, unit: Unit) -> list[int]:
        positions = []
        taken: set[tuple[str, int]] = set()
        for originator_id, version, topic, state in self.events:
            if is_our_originator(originator_id):
                raise InvalidValue("an originator id of the journal's own aggregates takes no events of others; use another id")
            if (originator_id, version) in taken or unit.has_event(originator_id, version):
                raise VersionTaken
            taken.add((originator_id, version))
            positions.append(unit.write_event(originator_id, version, topic, 0, Header(), state, None).position)
        return positions
