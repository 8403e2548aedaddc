"""
The bell of an opening: a socket beside the journal, on which other processes tell it to look at something now.

A ring is a hint and nothing more: one that is lost costs its hearer the half second after which it looks by itself.
"""

from __future__ import annotations

import logging
import os
import re
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from counterfoil.domain.errors import Closed, ForkedError

from ..bell import Bell
from ..forks import forking, give_up_in_child
from .descriptor import make_alike, refusal, side_file

log = logging.getLogger(__name__)

MESSAGE_BYTES: Final = 256
"""The longest message that is heard whole; ids are shorter."""
_MESSAGES: Final = 1_000
"""How many messages `hear` takes at once; the kernel keeps fewer, unless somebody rings without a pause."""
_ADDRESS_BYTES: Final = 107 if sys.platform == "linux" else 103
_NUMBER: Final = re.compile(r"[1-9][0-9]*")
_NONE: Final = -1


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
        """Have `hear` return now, or the next time at once."""
        self._interrupted.set()

    def close(self) -> None:
        """Have `hear` return."""
        self._interrupted.set()


class SocketBell:
    """
    The bell of an opening of a journal file: a datagram socket, `J-bell-N` for opening N.

    Where there can be none nobody can ring, which is logged, and all else works: on a file system without sockets; where the path
    is too long for the address of one, which on Linux only a name of 80 bytes and more is, since folders are gone around.

    The kernel keeps few messages for one who does not hear (eleven, as Linux is set up), and the rest is lost: whoever hears
    anything may have been told more. In a child of the process where it was made, `hear` raises `ForkedError`, and the rest does
    nothing.
    """

    def __init__(self, journal: Path, opening_id: int, is_live: Callable[[int], bool]) -> None:
        """
        Make the socket of an opening that shows its life, and remove those of openings that have ended.

        Raises `JournalRefused` if this process may open nothing more.
        """
        self._open = self._in_child = False
        self._path = _path(journal, opening_id)
        self._hearing = threading.Lock()
        self._socket = self._woken = self._waker = _NONE
        _sweep(journal, is_live)
        with forking:
            try:
                self._woken, self._waker = os.pipe()
            except OSError as error:
                raise refusal(self._path, error) from None
            os.set_blocking(self._woken, False)
            os.set_blocking(self._waker, False)
            self._open = True
            self._socket = _bind(self._path)
            give_up_in_child(self)

    def hear(self, timeout_s: float | None) -> list[bytes]:
        """
        Wait for a message, an interruption or the timeout, and return the messages that are there.

        None waits for ever. Raises `Closed`, and `ForkedError` in a forked child; returns nothing when it is closed meanwhile.
        """
        self._check_open()
        with self._hearing:
            if not self._open:
                return []
            poll = select.poll()
            for number in (self._woken, self._socket):
                if number != _NONE:
                    poll.register(number, select.POLLIN)
            poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1_000))
            with suppress(BlockingIOError):
                os.read(self._woken, select.PIPE_BUF)
            return [] if self._socket == _NONE or not self._open else _messages(self._socket)

    def interrupt(self) -> None:
        """Have `hear` return now, or the next time at once; never blocks, and does nothing when closed."""
        with forking:
            if self._open:
                self._wake()

    def close(self) -> None:
        """Hear nothing more, and remove the socket; before the opening ends. Closing again does nothing."""
        with forking:
            if not self._open:
                return
            self._open = False
            if self._socket != _NONE:
                with suppress(OSError):  # what somebody else removed, or cannot be removed now, the next opening sweeps
                    self._path.unlink()
            self._wake()
        with self._hearing, forking:  # not before `hear` has left: the numbers might be those of other files by then
            self._shut()

    def forked(self) -> None:
        """Close the copies of a forked child. The parent hears on."""
        self._open, self._in_child = False, True
        self._shut()

    def _check_open(self) -> None:
        if self._in_child:
            raise ForkedError("the journal was opened by the parent of this process; open it again after the fork")
        if not self._open:
            raise Closed("the journal was closed; open it again")

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # full: it is woken already
            os.write(self._waker, b"!")

    def _shut(self) -> None:
        numbers = (self._socket, self._woken, self._waker)
        self._socket = self._woken = self._waker = _NONE
        for number in numbers:
            if number != _NONE:
                os.close(number)

    def __del__(self) -> None:
        if self._open and not sys.is_finalizing():
            self.close()


def new_bell(journal: Path | None, opening_id: int, is_live: Callable[[int], bool]) -> Bell:
    """Return the bell of an opening; None names a journal in memory."""
    return MemoryBell() if journal is None else SocketBell(journal, opening_id, is_live)


def ring(journal: Path, opening_id: int, message: bytes) -> None:
    """Ring the bell of an opening; never blocks, and never raises: nobody may be there to hear it."""
    # A socket for each ring. What a frozen hearer does not take counts against the sender's buffer, and with one socket for all
    # it would be in the way of rings to others.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringing:
        ringing.setblocking(False)
        with _address(_path(journal, opening_id)) as address:
            ringing.sendto(message, address)


def _path(journal: Path, opening_id: int) -> Path:
    return side_file(journal, f"bell-{opening_id}")


def _bind(path: Path) -> int:
    """Return the descriptor of a socket at the path, or `_NONE` where there can be none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
            made.setblocking(False)
            with suppress(FileNotFoundError):
                path.unlink()
            with _address(path) as address:
                made.bind(address)
            _let_ring(path)
            return made.detach()
    except OSError as error:
        reason = "the path is too long" if error.errno is None else os.strerror(error.errno)
        log.warning("no other process can ring this opening, which looks by itself instead: %s", reason)
        return _NONE


def _let_ring(path: Path) -> None:
    """Let everybody ring who may use the journal."""
    with suppress(OSError):
        if sys.platform != "linux":
            make_alike(path, path)
            return
        # Not by the path: who may write in the folder could put a link there, and root would change what it points at.
        number = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                make_alike(Path(f"/proc/self/fd/{number}"), path)
        finally:
            os.close(number)


def _messages(number: int) -> list[bytes]:
    found: list[bytes] = []
    with suppress(BlockingIOError):
        while len(found) < _MESSAGES:
            found.append(os.read(number, MESSAGE_BYTES))
    return found


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Lend an address for a path; where it is too long, through a descriptor of its folder."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES or sys.platform != "linux":
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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
            if not path.name.startswith(beginning) or not _NUMBER.fullmatch(number) or not path.is_socket():
                continue
            if not is_live(int(number)):
                with suppress(OSError):
                    path.unlink()
