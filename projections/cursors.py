"""cursors: how far each connection has been admitted, in each scope."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.event import Recorded
from counterfoil.domain.operation import OperationAdmitted

from .projection import Key, Projection


class CursorRow(NamedTuple):
    scope_id: bytes
    connection: str
    admitted: int
    position: int
    updated_at: int


class Cursors(Projection[CursorRow]):
    """Count the admissions of a connection and keep the position of the newest."""

    NAME = "cursors"
    VERSION = 1
    ROW = CursorRow
    AGGREGATED = True
    KEY_COLUMNS = 2
    EVENTS = (OperationAdmitted,)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.header.scope_id, recorded.header.connection)

    def fold(self, row: CursorRow | None, recorded: Recorded) -> CursorRow | None:
        header = recorded.header
        assert header.scope_id is not None and header.connection is not None
        count = 0 if row is None else row.admitted
        return CursorRow(header.scope_id, header.connection, count + 1, recorded.position, recorded.recorded_at)
