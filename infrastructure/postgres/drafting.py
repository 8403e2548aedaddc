"""
Decisions ahead of a host's COMMIT: on what is committed now, read in one snapshot, with nothing of what the writer has cached.

All that one transaction of a host appends makes one record. When more comes to it, all of it is decided anew, and must come out
as the host was told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson
import psycopg

from counterfoil.domain.admission import Admission
from counterfoil.domain.identity import Scope
from counterfoil.domain.ids import ScopeKey
from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import Operation

from ..caches import Caches
from ..clocks import Clocks
from ..commands.admission import Admitted
from ..commands.guarding import check_lease
from ..committer import Command
from ..rows import Head
from ..statements import Names
from ..tx import Fenced
from ..unit import OpeningState, Unit
from .faults import fault
from .loading import Wanted
from .reader_pool import ReaderPool
from .record import FOLDS, Standpoint, record
from .store import PostgresStore

CALLS: Final = Names("calls")


class HostUnit(Unit):
    """What a host's transaction appends, in one group, after which no other comes."""

    drawn: dict[Scope, ScopeKey]
    """The ids and keys of scopes that begin with the transaction: whatever is decided anew finds them again."""

    def _draw(self, scope: Scope) -> ScopeKey:
        known = self.drawn.get(scope)
        if known is None:
            known = self.drawn[scope] = super()._draw(scope)
        return known

    def only_counts(self, operation: Operation) -> bool:
        return operation.position > self._committed


class Draft(NamedTuple):
    """What commands have come to."""

    answers: tuple[Admission | None, ...]
    record: bytes | None
    """As JSON without a character beyond ASCII, whatever the encoding of the connection; None when there is nothing to append."""


class Drafting:
    """Decide for hosts' transactions, in any thread."""

    def __init__(self, readers: ReaderPool, clocks: Clocks, name: str, *, keep_inbound: bool) -> None:
        self._readers = readers
        self._clocks = clocks
        self._name = name
        self._keep_inbound = keep_inbound

    def draft(self, opening_id: int, limits: Limits, commands: Sequence[Command[Any]], drawn: dict[Scope, ScopeKey]) -> Draft:
        """Decide commands, each on top of those before it. What one raises is raised; a store that fails is `unavailable`."""
        with self._unit(opening_id, limits, drawn) as (unit, store, standpoint):
            Wanted(store, unit, commands, presume=False).load()
            before, answers = unit.effects, []
            for command in commands:
                answers.append(_told(command.run(unit)))
                unit.keep()
            if unit.effects == before:
                return Draft(tuple(answers), None)
            return Draft(tuple(answers), _ascii(record(unit, standpoint)))

    def check(self, opening_id: int, limits: Limits, leases: Sequence[Fenced]) -> None:
        """Raise `LeaseLost` unless these leases are the current ones now, and `InvalidValue` for one of somebody else's."""
        with self._unit(opening_id, limits, {}) as (unit, _, _):
            for lease in leases:
                check_lease(unit, lease)

    @contextmanager
    def _unit(
        self, opening_id: int, limits: Limits, drawn: dict[Scope, ScopeKey]
    ) -> Iterator[tuple[HostUnit, PostgresStore, Standpoint]]:
        opening = OpeningState()
        opening.opening_id, opening.started = opening_id, True
        try:
            with self._readers.snapshot() as store:
                row = store.one(CALLS.standpoint, {"folds": FOLDS})
                assert row is not None
                *values, erasures, _, _ = row
                head = Head._make((*values, store.access.journal_key or b""))
                unit = HostUnit(
                    store=store,
                    caches=Caches(store),
                    head=head,
                    opening=opening,
                    clocks=self._clocks,
                    limits=limits,
                    raise_epoch=lambda proposed: proposed,
                    keep_inbound=self._keep_inbound,
                    ahead=True,
                )
                unit.drawn = drawn
                store.lines.begin(unit.changes)
                yield unit, store, Standpoint(head.position, unit.now, head.epoch, erasures)
        except psycopg.Error as error:
            raise fault(error, self._name) from None


def _told(answer: Any) -> Admission | None:
    """Return what the host is told: no position, which nobody knows before the commit."""
    return replace(answer.admission, position=None) if isinstance(answer, Admitted) else None


def _ascii(body: bytes) -> bytes:
    return body if body.isascii() else json.dumps(orjson.loads(body)).encode()
