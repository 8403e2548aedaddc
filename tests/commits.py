"""What happens around the commits of an opening, on either engine, and what is one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.postgres.appending import Appended
from counterfoil.infrastructure.postgres.deciding import Draft
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

    def sending(draft: Draft, body: bytes, meanwhile: Callable[[], None]) -> Appended:
        sent: list[Appended] = []

        def send() -> bool:
            sent.append(commit(draft, body, meanwhile))
            return sent[0].status == "appended"

        around(draft.unit, send)
        return sent[0]

    setattr(engine, name, committing if name == "_commit" else sending)
    return lambda: setattr(engine, name, commit)


@dataclass
class Pause:
    """A command that holds the writer until it is let go, so that what is queued meanwhile becomes one group."""

    begun: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def run(self, unit: Unit) -> None:
        self.begun.set()
        assert self.go.wait(30)


@contextmanager
def one_group(core: Core) -> Iterator[None]:
    """What is submitted inside is taken in one group, when this ends."""
    pause = Pause()
    done = core.committer.submit(pause)
    assert pause.begun.wait(30)
    try:
        yield
    finally:
        pause.go.set()
        done.result(30)
