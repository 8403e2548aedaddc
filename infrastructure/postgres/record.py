"""
The record of a group: all that `cf_append` needs to write what was decided, and to see whether the decision still stands.

It is one JSON object, so that an append by an opening and one that a host's transaction stages are the same. Bytes are written as
PostgreSQL reads them, and what is absent is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from counterfoil.domain.admission import DAY
from counterfoil.domain.lock import Deadline
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Key, Projection

from ..unit import Unit
from .projection_tables import name_in_record

INLINE: Final[tuple[Projection[Any], ...]] = tuple(projection for projection in BUILT_IN if not projection.AGGREGATED)
"""The projections whose rows are written with the events."""

_EVENT: Final = (
    "originator_id version type type_version opening_id actor_kind scope_id connection conversation thread actor operation "
    "correlation causation state"
).split()
_CONVERSATION: Final = 10
"""Where the conversation stands in an event of `Changes`."""
_DEADLINE: Final = Deadline._fields


class Standpoint(NamedTuple):
    """What the journal was when a group was decided; whatever lies beyond is provisional."""

    position: int
    """The newest event that the decision knows of: positions above are provisional."""
    time: int
    """The provisional time of the group's first event: times from here on are provisional."""
    epoch: int
    erasures: int
    goes_on: int = 0
    """How many events the records before this one hold, in the same host's transaction; this one was decided on top of them."""


def record(
    unit: Unit,
    standpoint: Standpoint,
    *,
    relied: Iterable[str] = (),
    presumed: Iterable[bytes] = (),
    least: int | None = None,
    synced: bool = True,
) -> bytes:
    """
    Return the record of what the kept commands of a group did.

    `relied` names the leases whose deadlines must still be what they were, beside those that the group moves, and `presumed` the
    conversations in which nothing may have happened at all. With `least` the first event lands above this position. Without
    `synced` its commit need not survive a crash of the server.
    """
    changes, caches = unit.changes, unit.caches
    made: dict[str, Any] = {
        "opening_id": unit.opening_id,
        "seen": standpoint.position,
        "since": standpoint.time,
        "goes_on": standpoint.goes_on or None,
        "erasures": standpoint.erasures,
        "presumed": list(map(_value, presumed)),
        "least": least,
        "unsynced": None if synced else True,
    }
    if changes.events:
        made |= _events(changes.events, standpoint)
    if unit.head.epoch != standpoint.epoch:
        made |= {"epoch_before": standpoint.epoch, "epoch": unit.head.epoch}
    made |= {
        "scopes": as_records(("scope_id", "tenant", "account", "user", "key"), changes.scopes),
        "subjects": as_records(("pseudonym", "scope_id", "kind", "connection", "value"), changes.subjects),
        "payloads": as_records(("position", "salt", "body"), changes.payloads),
        "external_ids": as_records(("position", "external_id"), changes.external_ids),
        "erased": [position for (position,) in changes.erased],
        "actions": [[name, *map(_value, values)] for name, values in changes.actions],
        "erases": any(name.startswith("erase_") for name, _ in changes.actions) or None,
        "rows": {
            name_in_record(projection): written
            for projection in INLINE
            if (written := _written(projection, caches.rows[projection.NAME].changed()))
        },
        "rings": [ring for ring in dict.fromkeys(changes.rings) if ring[0] != unit.opening_id],
    }
    made |= _deadlines(unit, relied)
    made |= _commands(unit, standpoint)
    return orjson.dumps({name: value for name, value in made.items() if value is not None and value != [] and value != {}})


def _events(events: Sequence[tuple[Any, ...]], standpoint: Standpoint) -> dict[str, Any]:
    leaves, rows = [], []
    conversations: dict[bytes, None] = {}
    for nth, event in enumerate(events, standpoint.goes_on):
        assert event[:2] == (standpoint.position + nth + 1, standpoint.time + nth)
        rows.append({name: _value(value) for name, value in zip(_EVENT, event[2:17], strict=True) if value is not None})
        leaves.append(event[17])
        if event[_CONVERSATION] is not None:
            conversations[event[_CONVERSATION]] = None
    return {
        "events": rows,
        "leaves": _value(b"".join(leaves)),
        "conversations": list(map(_value, conversations)),
        "folds": [name_in_record(projection) for projection in INLINE],
    }


def _written(projection: Projection[Any], changed: Iterable[tuple[Key, Any | None]]) -> dict[str, Any]:
    put, gone = [], []
    for key, row in changed:
        if row is None:
            gone.append(key)
        else:
            put.append(row)
    columns = projection.ROW._fields
    return {name: as_records(columns, rows) for name, rows in (("put", put), ("gone", gone)) if rows}


def _deadlines(unit: Unit, relied: Iterable[str]) -> dict[str, Any]:
    deadlines = unit.caches.deadlines
    committed = deadlines.committed
    put, ended, before = [], [], dict.fromkeys(relied)
    for lease_id, deadline in deadlines.changed():
        if deadline is None:
            ended.append(lease_id)
        else:
            put.append(deadline)
        if lease_id in committed:
            before[lease_id] = None
    return {
        "relied": [_expected(lease_id, committed[lease_id]) for lease_id in before],
        "deadlines": as_records(_DEADLINE, put),
        "ended": ended,
    }


def _expected(lease_id: str, deadline: Deadline | None) -> dict[str, Any]:
    if deadline is None:
        return {"lease_id": lease_id}
    return {"lease_id": lease_id, "token": _value(deadline.token), "renewal": deadline.renewal}


def _commands(unit: Unit, standpoint: Standpoint) -> dict[str, Any]:
    rows = []
    committed = unit.caches.commands.committed
    for key, kept in unit.caches.commands.changed():
        if kept is None:
            continue
        fingerprint, answer, recorded_at = kept
        before = committed.get(key)
        rows.append(
            {
                "scope_id": _value(key[0]),
                "command_id": _value(key[1]),
                "fingerprint": _value(fingerprint),
                "answer": _value(answer),
                "recorded_at": recorded_at,
                "before": None if before is None else before[2],
            }
        )
    return {"commands": rows, "keep_commands": unit.limits.command_id_days * DAY} if rows else {}


def as_records(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return rows by their columns; a key is the first of them."""
    return [{name: _value(value) for name, value in zip(columns, row, strict=False) if value is not None} for row in rows]


def _value(value: Any) -> Any:
    return "\\x" + value.hex() if isinstance(value, bytes) else value
