"""Telling on standard error what is being measured: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.status import Status

SECONDS_BETWEEN_LINES: Final = 5.0


class Progress:
    """Lend a function that is told in words what happens."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._said = float("-inf")

    def __enter__(self) -> Callable[[str], None]:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self._say

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def _say(self, words: str) -> None:
        if self._status is not None:
            self._status.update(words)
        elif monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = monotonic()
            self._console.print(words)
