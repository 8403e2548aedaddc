"""What happens around the commits of an opening, on either engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.postgres.appending import Appended
from counterfoil.infrastructure.postgres.engine import PostgresEngine
from counterfoil.infrastructure.unit import Unit

Around: TypeAlias = Callable[[Unit, Callable[[], bool]], bool]
"""Gets the unit that is committed, and what commits it and tells whether it landed; returns that."""


def around_commits(core: Core, around: Around) -> Callable[[], None]:
    """
    Have a function called on the writer thread for each commit of an opening, with what was decided and with what commits it.

    Returns what undoes it.
    """
    engine: Any = core.engine
    name = "_send" if isinstance(engine, PostgresEngine) else "_commit"
    commit = getattr(engine, name)

    def committing(unit: Unit) -> bool:
        return around(unit, lambda: bool(commit(unit)))

    def sending(unit: Unit, body: bytes) -> Appended:
        sent: list[Appended] = []

        def send() -> bool:
            sent.append(commit(unit, body))
            return sent[0].status == "appended"

        around(unit, send)
        return sent[0]

    setattr(engine, name, committing if name == "_commit" else sending)
    return lambda: setattr(engine, name, commit)
