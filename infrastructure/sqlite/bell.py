"""
The bell of an opening: a socket beside the journal, on which other processes tell it to look at something now.

A ring is a hint and nothing more: one that is lost costs its hearer the quarter of a second after which it looks by itself.
"""

from __future__ import annotations

import os
import re
import select
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from .descriptor import make_alike, side_file

MESSAGE_BYTES: Final = 256
"""The longest message that is heard; ids are shorter."""
_ADDRESS_BYTES: Final = 107 if sys.platform == "linux" else 103
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")


class Bell(Protocol):
    """Heard by one thread; rung, and interrupted, by any."""

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """Wait for a message, an interruption or the timeout, and return the messages that are there."""

    def interrupt(self) -> None:
        """Have `hear` return now, or the next time at once; never blocks."""

    def close(self) -> None:
        """Hear nothing more; closing again does nothing."""


class MemoryBell:
    """The bell of a journal in memory: nobody else can ring it."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """Wait for an interruption or the timeout."""
        self._interrupted.wait(timeout_s)
        self._interrupted.clear()
        return []

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        """Do nothing."""


class SocketBell:
    """
    The bell of an opening of a journal file: a datagram socket, `J-bell-N` for opening N.

    Where the path is too long for a socket and the system has no way around that, nobody can ring it.
    """

    def __init__(self, journal: Path, opening_id: int, is_live: Callable[[int], bool]) -> None:
        """Make the socket, and remove those of openings that have ended."""
        self._path = _path(journal, opening_id)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._socket: socket.socket | None = None
        self._pid = os.getpid()
        _sweep(journal, is_live)
        self._bind()
        _bells.add(self)

    def _bind(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with suppress(FileNotFoundError):
                self._path.unlink()
            with _address(self._path) as address:
                made.bind(address)
            with suppress(OSError):
                make_alike(self._path, self._path)
            made.setblocking(False)
        except OSError:  # then it is not rung, and looks by itself
            made.close()
            return
        self._socket = made

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """Wait for a message, an interruption or the timeout, and return the messages that are there."""
        heard: list[bytes] = []
        sockets = [self._woken] if self._socket is None else [self._woken, self._socket]
        poll = select.poll()
        for each in sockets:
            poll.register(each, select.POLLIN)
        poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1_000))
        with suppress(BlockingIOError):
            while self._woken.recv(MESSAGE_BYTES):
                pass
        if self._socket is not None:
            with suppress(OSError):
                while len(heard) < 1_000:
                    heard.append(self._socket.recv(MESSAGE_BYTES))
        return heard

    def interrupt(self) -> None:
        with suppress(OSError):  # full is interrupted already, and closed needs no interruption
            self._waker.send(b"!")

    def close(self) -> None:
        """Remove the socket; closing again, or in a forked child, removes nothing."""
        if self._socket is not None:
            if os.getpid() == self._pid:
                with suppress(OSError):
                    self._path.unlink()
            self._socket.close()
            self._socket = None
        self._waker.close()
        self._woken.close()


def new_bell(journal: Path | None, opening_id: int, is_live: Callable[[int], bool]) -> Bell:
    """Return the bell of an opening; None names a journal in memory."""
    return MemoryBell() if journal is None else SocketBell(journal, opening_id, is_live)


def ring(journal: Path, opening_id: int, message: bytes) -> None:
    """Ring the bell of an opening; never blocks, and never raises: nobody may be there to hear it."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringing:
        ringing.setblocking(False)
        with _address(_path(journal, opening_id)) as address:
            ringing.sendto(message, address)


def _path(journal: Path, opening_id: int) -> Path:
    return side_file(journal, f"bell-{opening_id}")


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Lend an address for a path; where it is too long, through a descriptor of its folder."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES or sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _sweep(journal: Path, is_live: Callable[[int], bool]) -> None:
    """Remove the sockets that openings left which were killed."""
    beginning = f"{journal.name}-bell-"
    with suppress(OSError):
        for path in journal.parent.iterdir():
            number = path.name.removeprefix(beginning)
            if path.name.startswith(beginning) and _NUMBER.fullmatch(number) and not is_live(int(number)):
                with suppress(OSError):
                    path.unlink()


_bells: Final[weakref.WeakSet[SocketBell]] = weakref.WeakSet()


def _in_child() -> None:
    for bell in list(_bells):
        bell.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
