"""bindings: the agent session of every route."""

from __future__ import annotations

from typing import NamedTuple

from counterfoil.domain.event import Recorded
from counterfoil.domain.route import Binding, BindingAdvanced, BindingOpened, evolve_binding

from .projection import Key, Projection


class BindingRow(NamedTuple):
    route: str
    version: int
    alias: str
    generation: int
    session_id: str
    leaf: str | None

    @property
    def binding(self) -> Binding:
        return Binding(*self)


class Bindings(Projection[BindingRow]):
    NAME = "bindings"
    VERSION = 1
    ROW = BindingRow
    EVENTS = (BindingOpened, BindingAdvanced)

    def key(self, recorded: Recorded) -> Key | None:
        return (recorded.originator_id,)

    def fold(self, row: BindingRow | None, recorded: Recorded) -> BindingRow | None:
        state = evolve_binding(None if row is None else row.binding, recorded)
        return BindingRow(state.route, state.version, state.alias, state.generation, state.session_id, state.leaf)
