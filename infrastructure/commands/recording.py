"""Append events of the `eventsourcing` library as they are: chained, carried, and folded by no projection of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.event import Header
from counterfoil.domain.ids import is_our_originator
from counterfoil.domain.placing import Placing

from ..unit import Unit

_OUR_TOPIC: Final = re.compile(r"[a-z_]+\.[a-z_]+/[0-9]+")
_LARGEST: Final = 2**63


class Positions(list[int]):
    """Where events were put."""

    def placed(self, placing: Placing) -> Positions:
        return Positions(map(placing.position, self))


class VersionTaken(Exception):
    """An aggregate already has an event of this version."""


@dataclass(frozen=True, slots=True)
class RecordForeign:
    """Append (originator id, version, topic, state) below the openings: no event of ours comes with them."""

    events: Sequence[tuple[str, int, str, bytes]]

    def run(self, unit: Unit) -> Positions:
        positions = Positions()
        taken: set[tuple[str, int]] = set()
        for originator_id, version, topic, state in self.events:
            _check(originator_id, version, topic, state)
            if (originator_id, version) in taken or unit.has_event(originator_id, version):
                raise VersionTaken
            taken.add((originator_id, version))
            positions.append(unit.write_event(originator_id, version, topic, 0, Header(), state, None).position)
        return positions


def _check(originator_id: object, version: object, topic: object, state: object) -> None:
    """Refuse what would be stored as something else than was hashed, or could be taken for an event of the journal's own."""
    for name, value in (("originator id", originator_id), ("topic", topic)):
        if not isinstance(value, str) or not value or "\0" in value or not _is_encodable(value):
            raise InvalidValue(f"the {name} of an event must be text, not empty, without NUL and lone surrogates")
    if isinstance(version, bool) or not isinstance(version, int) or not -_LARGEST <= version < _LARGEST:
        raise InvalidValue("the version of an event must be a whole number of 64 bits")
    if not isinstance(state, bytes):
        raise InvalidValue(f"the state of an event must be bytes, not {type(state).__name__}")
    if is_our_originator(str(originator_id)):
        raise InvalidValue("an originator id of the journal's own aggregates takes no events of others; use another id")
    if _OUR_TOPIC.fullmatch(str(topic)):
        raise InvalidValue("a topic like the journal's own types takes no events of others; use another topic")


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
