"""Lines of a stream, read by a thread of its own: neither the event loop nor a stop ever waits for whoever writes them."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from .named_files import Source

LONGEST: Final = 16_777_216
"""Bytes of the longest line that is looked at; a longer one is never held in memory."""
AHEAD: Final = 2
"""Pieces of the stream that are read before they are asked for."""


class Lines:
    """Give the lines of a source a batch at a time; None in place of a line that is too long."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[list[bytes | None] | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._ended = False
        self.fault: str | None = None
        """Why reading ended early, if it did."""
        threading.Thread(target=self._read, name="counterfoil-lines", daemon=True).start()

    async def batch(self) -> list[bytes | None] | None:
        """Return the next lines, None at the end."""
        batch = await self._batches.get()
        self._room.release()
        return batch

    def end(self) -> None:
        """Read no more. A thread that waits for input is left to wait: it ends with the process."""
        self._ended = True
        self._room.release()

    def _read(self) -> None:
        rest = bytearray()
        try:
            while not self._ended and (piece := self._source.read()):
                first, *others = piece.split(b"\n")
                rest += first
                batch: list[bytes | None] = []
                for part in others:
                    batch.append(_line(rest))
                    rest[:] = part
                del rest[LONGEST + 1 :]
                if batch:
                    self._put(batch)
            if rest and not self._ended:
                self._put([_line(rest)])
        except OSError as error:
            self.fault = error.strerror or type(error).__name__
        finally:
            self._source.close()
            self._put(None)

    def _put(self, batch: list[bytes | None] | None) -> None:
        self._room.acquire()
        try:
            self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)
        except RuntimeError:  # the loop has ended
            self._ended = True


def _line(line: bytearray) -> bytes | None:
    return None if len(line) > LONGEST else bytes(line)
