"""Stand between an engine and its commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.unit import Unit

Around = Callable[[Unit, Callable[[], bool]], bool]


def around_commits(core: Core, around: Around) -> Callable[[], None]:
    """
    Have a function called on the writer thread for each commit of an opening, with what was decided and with what commits it.

    Every engine commits by a method of one name. Returns what undoes it.
    """
    engine: Any = core.engine
    commit = engine._commit

    def undo() -> None:
        engine._commit = commit

    engine._commit = lambda unit: around(unit, lambda: bool(commit(unit)))
    return undo
