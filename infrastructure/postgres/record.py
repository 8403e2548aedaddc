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
from counterfoil.projections.projection import Projection

from ..unit import Unit
from .projection_tables import name_in_record

INLINE: Final[tuple[Projection[Any], ...]] = tuple(projection for projection in BUILT_IN if not projection.AGGREGATED)
"""The projections whose rows are written with the events."""

_LEASES: Final = "leases"
FOLDS: Final = [name_in_record(projection) for projection in INLINE]
"""What a record calls them."""

_EVENT: Final = (
    "originator_id version type type_version opening_id actor_kind scope_id connection conversation thread actor operation "
    "correlation causation state"
).split()
_CONVERSATION: Final = 10
"""Where the conversation stands in an event of `Changes`."""
_SCOPE: Final = ("scope_id", "tenant", "account", "user", "key")
_SUBJECT: Final = ("pseudonym", "scope_id", "kind", "connection", "value")
_PAYLOAD: Final = ("position", "salt", "body")
_EXTERNAL_ID: Final = ("position", "external_id")
_DEADLINE: Final = ("lease_id", "opening_id", "token", "boot_id", "at", "renewal", "ttl", "ends")
_COMMAND: Final = ("scope_id", "command_id", "fingerprint", "answer", "recorded_at", "before")


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
    presumed_routes: Iterable[str] = (),
    least: int | None = None,
    synced: bool = True,
) -> bytes:
    """
    Return the record of what the kept commands of a group did.

    `relied` names the leases whose deadlines must still be what they were, beside those that the group moves, and `presumed` the
    conversations in which nothing may have happened at all; of `presumed_routes` the queues must be empty. With `least` the first
    event lands above this position. Without `synced` its commit need not survive a crash of the server.
    """
    changes = unit.changes
    made: dict[str, Any] = {
        "opening_id": unit.opening_id,
        "seen": standpoint.position,
        "since": standpoint.time,
        "erasures": standpoint.erasures,
    }
    if standpoint.goes_on:
        made["goes_on"] = standpoint.goes_on
    if presumptions := [_value(conversation) for conversation in presumed]:
        made["presumed"] = presumptions
    if routes := list(presumed_routes):
        made["presumed_routes"] = routes
    if least is not None:
        made["least"] = least
    if not synced:
        made["unsynced"] = True
    if unit.head.epoch != standpoint.epoch:
        made |= {"epoch_before": standpoint.epoch, "epoch": unit.head.epoch}
    if changes.events:
        made |= _events(changes.events, standpoint)
    for name, columns, rows in (
        ("scopes", _SCOPE, changes.scopes),
        ("subjects", _SUBJECT, changes.subjects),
        ("payloads", _PAYLOAD, changes.payloads),
        ("external_ids", _EXTERNAL_ID, changes.external_ids),
    ):
        if rows:
            made[name] = as_records(columns, rows)
    if changes.erased:
        made["erased"] = [position for (position,) in changes.erased]
    if changes.actions:
        made["actions"] = [[name, *map(_value, values)] for name, values in changes.actions]
        if any(name.startswith("erase_") for name, _ in changes.actions):
            made["erases"] = True
    if written := _written(unit):
        made["rows"] = written
    if leases := _changed_leases(unit):
        made["leases"] = leases
    if rings := [ring for ring in dict.fromkeys(changes.rings) if ring[0] != unit.opening_id]:
        made["rings"] = rings
    _add_deadlines(made, unit, relied)
    _add_commands(made, unit)
    return orjson.dumps(made)


def _events(events: Sequence[tuple[Any, ...]], standpoint: Standpoint) -> dict[str, Any]:
    first_position, first_time = standpoint.position + standpoint.goes_on + 1, standpoint.time + standpoint.goes_on
    assert (events[0][0], events[0][1]) == (first_position, first_time)
    assert (events[-1][0], events[-1][1]) == (first_position + len(events) - 1, first_time + len(events) - 1)
    conversations = dict.fromkeys(event[_CONVERSATION] for event in events)
    return {
        "events": as_records(_EVENT, (event[2:17] for event in events)),
        "leaves": _value(b"".join([event[17] for event in events])),
        "conversations": [_value(conversation) for conversation in conversations if conversation is not None],
        "folds": FOLDS,
    }


def _written(unit: Unit) -> dict[str, Any]:
    """Return the rows of projections that changed, by what the record calls them."""
    written = {}
    for projection, name in zip(INLINE, FOLDS, strict=True):
        put, gone = [], []
        for key, row in unit.caches.rows[projection.NAME].changed():
            if row is None:
                gone.append(key)
            else:
                put.append(row)
        columns = projection.ROW._fields
        if put or gone:
            written[name] = {kind: as_records(columns, rows) for kind, rows in (("put", put), ("gone", gone)) if rows}
    return written


def _changed_leases(unit: Unit) -> list[str]:
    """Return the leases that were there already and are another's or nobody's from now on."""
    rows = unit.caches.rows[_LEASES]
    return [lease_id for (lease_id,), _ in rows.changed() if rows.committed.get((lease_id,)) is not None]


def _add_deadlines(made: dict[str, Any], unit: Unit, relied: Iterable[str]) -> None:
    deadlines = unit.caches.deadlines
    committed, before = deadlines.committed, dict.fromkeys(relied)
    put, ended = [], []
    for lease_id, deadline in deadlines.changed():
        if deadline is None:
            ended.append(lease_id)
        else:
            put.append(deadline)
        if lease_id in committed:
            before[lease_id] = None
    if put:
        made["deadlines"] = as_records(_DEADLINE, put)
    if ended:
        made["ended"] = ended
    if before:
        made["relied"] = [_expected(lease_id, committed[lease_id]) for lease_id in before]


def _expected(lease_id: str, deadline: Deadline | None) -> dict[str, Any]:
    if deadline is None:
        return {"lease_id": lease_id}
    return {"lease_id": lease_id, "token": _value(deadline.token), "renewal": deadline.renewal}


def _add_commands(made: dict[str, Any], unit: Unit) -> None:
    """Add the answers that are kept, each with when the one was kept that it takes the place of."""
    commands = unit.caches.commands
    rows = []
    for key, kept in commands.changed():
        if kept is not None:
            before = commands.committed.get(key)
            rows.append((*key, *kept, None if before is None else before[2]))
    if rows:
        made["commands"] = as_records(_COMMAND, rows)
        made["keep_commands"] = unit.limits.command_id_days * DAY


def as_records(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return rows as objects; of a row's columns the first may be all that there are, as of a key."""
    return [
        {
            name: "\\x" + value.hex() if type(value) is bytes else value
            for name, value in zip(columns, row, strict=False)
            if value is not None
        }
        for row in rows
    ]


def _value(value: Any) -> Any:
    return "\\x" + value.hex() if isinstance(value, bytes) else value
