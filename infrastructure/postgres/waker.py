"""What wakes a thread that waits for a socket."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress

from ..forks import forking, give_up_in_child


class Waker:
    """A pipe that one thread waits for, together with a socket, and any thread may write into. A child has nothing of it."""

    def __init__(self) -> None:
        """Raises `OSError` where this process may open nothing more."""
        self._open = False
        with forking:
            self.number, self._end = os.pipe()
            os.set_blocking(self.number, False)
            os.set_blocking(self._end, False)
            self._open = True
            give_up_in_child(self)

    def wake(self) -> None:
        """Have the thread return from its wait, or from the next one at once; never blocks."""
        with forking:
            if self._open:
                with suppress(BlockingIOError):  # full: it is woken already
                    os.write(self._end, b"!")

    def wait(self, number: int | None, timeout_s: float | None) -> tuple[bool, bool]:
        """Wait until it was woken or something is readable, and tell both; None waits for no socket, and for ever."""
        poll = select.poll()
        poll.register(self.number, select.POLLIN)
        if number is not None:
            poll.register(number, select.POLLIN)
        ready = {each for each, _ in poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1_000))}
        if self.number in ready:
            with suppress(BlockingIOError):
                os.read(self.number, select.PIPE_BUF)
        return self.number in ready, number in ready

    def close(self) -> None:
        """Close both ends; its thread waits no more. Closing again does nothing."""
        with forking:
            if self._open:
                self._open = False
                os.close(self.number)
                os.close(self._end)

    def forked(self) -> None:
        """Close the copies of a forked child."""
        self.close()

    def __del__(self) -> None:
        if self._open and not sys.is_finalizing():
            self.close()
