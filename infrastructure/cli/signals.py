"""
SIGTERM and Ctrl-C, from the first moment of a run: what comes before there is anything to stop is kept until there is.

This loads nothing of weight, because `main` listens before it imports the rest.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

INTERRUPTED: Final = 130
STOPPING: Final = "Stopping; what waits stays for the next run"
ONCE_MORE: Final = "; once more stops at once"


class Signals:
    """Listens to the signals that stop a run. A second Ctrl-C ends the process at once, whatever it is doing."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The first that came, or Ctrl-C if that came too: it decides the exit status."""
        self.told: Callable[[], None] | None = None
        """Called, in the middle of whatever runs, when one has come."""
        self.take_along: Callable[[], None] = lambda: None
        """Called before the process ends at once."""
        self.said = False
        """That the run stops has been said."""
        self._leaving = False
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Begin to; where this is not the main thread, whoever runs it there stops it otherwise."""
        for number in (signal.SIGTERM, signal.SIGINT):
            if number not in self._before:
                try:
                    self._before[number] = signal.signal(number, self._on_signal)
                except ValueError:
                    return

    def restore(self) -> None:
        """Leave the signals to who had them before."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def ignore(self) -> None:
        """Hear no more: the status is settled, and the process ends."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._leaving:
            os._exit(INTERRUPTED)
        if self.number == number == signal.SIGINT:
            self._leaving = True
            self.take_along()
            leave(INTERRUPTED, "Stopped at once; what was at work is listed by `counterfoil unresolved`.")
        if self.number is None or number == signal.SIGINT:
            self.number = number
        if self.told is not None:
            self.told()
        elif not self.said:
            self.said = True
            _write(f"{STOPPING}{ONCE_MORE if number == signal.SIGINT else ''}.")


_of_process: list[Signals] = []


def listen_as_process() -> None:
    """Listen for as long as this process lives; for a process that does nothing else but one run."""
    signals = Signals()
    signals.listen()
    _of_process.append(signals)


def of_process() -> Signals | None:
    """Return who listens for the process; None where a run is only a part of what it does."""
    return _of_process[0] if _of_process else None


def leave(status: int, reason: str) -> NoReturn:
    """End the process, whatever goes on in it, after what has been printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # it is closed or full, or what was interrupted is writing to it
            continue
    _write(reason)
    os._exit(status)


def _write(line: str) -> None:
    """Write a line to standard error, past its buffer: what was interrupted may hold that."""
    try:
        os.write(2, f"{line}\n".encode())
    except OSError:
        return
