"""Where a body of `transact` runs, no call of a journal is taken: it would wait for the writer, which waits for the body."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from counterfoil.domain.errors import InsideTransaction


class Refuses(Protocol):
    """A transaction that is rolled back once a call from within was refused, whatever its body makes of that."""

    def refuse(self, error: InsideTransaction) -> None:
        """Take note of the refusal."""
        ...


class _Here(threading.local):
    running: Refuses | None = None


_here: Final = _Here()


@contextmanager
def inside(transaction: Refuses) -> Iterator[None]:
    """Refuse the calls that come from this thread meanwhile."""
    _here.running = transaction
    try:
        yield
    finally:
        _here.running = None


@contextmanager
def outside() -> Iterator[None]:
    """Let what the transaction itself asks of the journal pass meanwhile."""
    running, _here.running = _here.running, None
    try:
        yield
    finally:
        _here.running = running


def refuse_inside() -> None:
    """Raise `InsideTransaction` where a body runs in this thread."""
    if _here.running is not None:
        error = InsideTransaction("a journal is not called inside a transaction; use tx, or call it before or after")
        _here.running.refuse(error)
        raise error


def _in_child() -> None:
    """The body that forked runs in the parent; the child is told of the fork, and may use other journals."""
    _here.running = None


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
