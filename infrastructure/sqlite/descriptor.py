"""
Descriptors of the files beside an SQLite journal, and the kernel's locks on them.

Nothing here opens the journal file, its `-wal` or its `-shm`: closing a descriptor on one of them would drop
the locks that SQLite holds in this process.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from counterfoil.domain.errors import Closed, ForkedError, JournalRefused

from ..forks import forking, give_up_in_child

if sys.platform != "win32":
    import fcntl

HAS_BYTE_LOCKS: Final = sys.platform == "linux"
"""Whether single bytes can be locked for an open file description, which `F_SETLK` does not do."""

_GETLK: Final = 36  # F_OFD_GETLK, F_OFD_SETLK and F_OFD_SETLKW: the fcntl of some Pythons does not name them
_SETLK: Final = 37
_SETLKW: Final = 38
_FLOCK: Final = struct.Struct("@hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid, and the padding at the end
_BLOCKED: Final = (BlockingIOError, PermissionError)  # EAGAIN, and EACCES where a system answers that

_CLOSED: Final = -1
_IN_CHILD: Final = -2


def side_file(path: Path, name: str) -> Path:
    """Return the path of a file beside another: `J-append` for `append` beside `J`."""
    return path.with_name(f"{path.name}-{name}")


class Descriptor:
    """
    An open side file that neither a program started from here nor a forked child keeps.

    A copy in a child would hold the parent's locks after the parent is dead. `close` gives its locks up at
    once, whoever may hold a copy.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """
        Open the file `J-name`; with `create` to lock it, and it is made where it is missing, with the mode of
        `J`; without, only to look at the locks of others, which needs no right to write.

        Raises `JournalRefused` if it cannot be opened, and without `create` `FileNotFoundError` if it is
        missing.
        """
        self._number = _CLOSED
        with forking:
            self._number = _open(path) if create else _open_existing(path, os.O_RDONLY)
            give_up_in_child(self)

    @property
    def is_open(self) -> bool:
        """Whether it is open in this process."""
        return self._number >= 0

    @property
    def number(self) -> int:
        """Return the number of the descriptor. Raises `ForkedError` in a forked child, `Closed` if closed."""
        if self._number >= 0:
            return self._number
        if self._number == _IN_CHILD:
            raise ForkedError("the journal was opened by the parent of this process; open it again after the fork")
        raise Closed("the journal was closed; open it again")

    def try_lock(self, *, shared: bool = False) -> bool:
        """Lock the file as a whole (`flock`), and tell whether nobody was in the way."""
        try:
            fcntl.flock(self.number, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except _BLOCKED:
            return False
        return True

    def wait_lock(self, *, shared: bool = False) -> None:
        """Wait, for however long it takes, until the file is locked as a whole."""
        fcntl.flock(self.number, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Give up the lock on the whole file."""
        fcntl.flock(self.number, fcntl.LOCK_UN)

    def try_lock_byte(self, offset: int, *, shared: bool = False) -> bool:
        """Lock one byte, and tell whether nobody was in the way. Linux only, as are all locks of bytes."""
        try:
            fcntl.fcntl(self.number, _SETLK, _byte(fcntl.F_RDLCK if shared else fcntl.F_WRLCK, offset))
        except _BLOCKED:
            return False
        return True

    def wait_lock_byte(self, offset: int, *, shared: bool = False) -> None:
        """Wait, for however long it takes, until the byte is locked."""
        fcntl.fcntl(self.number, _SETLKW, _byte(fcntl.F_RDLCK if shared else fcntl.F_WRLCK, offset))

    def unlock_byte(self, offset: int) -> None:
        """Give up the lock on one byte."""
        fcntl.fcntl(self.number, _SETLK, _byte(fcntl.F_UNLCK, offset))

    def sees_byte_locked(self, offset: int, *, shared: bool = False) -> bool:
        """Tell whether another descriptor, of this or any process, has this byte locked; with `shared`, in either way."""
        found = fcntl.fcntl(self.number, _GETLK, _byte(fcntl.F_WRLCK if shared else fcntl.F_RDLCK, offset))
        kind: int = _FLOCK.unpack_from(found)[0]
        return kind != fcntl.F_UNLCK

    def close(self) -> None:
        """Give up all locks and close; closing again, or in a forked child, does nothing."""
        with forking:
            number, self._number = self._number, min(self._number, _CLOSED)
            if number < 0:
                return
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_UN)
                if HAS_BYTE_LOCKS:
                    fcntl.fcntl(number, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
            os.close(number)

    def forked(self) -> None:
        """Close the copy of a forked child. The parent's locks stand: they end with its own descriptor."""
        number, self._number = self._number, _IN_CHILD
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        if self._number >= 0 and not sys.is_finalizing():
            self.close()


def _byte(kind: int, offset: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0)


def _open(path: Path) -> int:
    """Open or make a side file. Like SQLite's own it gets the journal's mode, and from root its owner."""
    if sys.platform == "win32":
        raise JournalRefused(f"{path} cannot be shared: a file that several processes write needs Linux, macOS or a BSD")
    try:
        with suppress(FileNotFoundError):
            return _open_existing(path, os.O_RDWR)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with suppress(OSError):
            make_alike(number, path)
    except OSError as error:
        raise refusal(path, error) from error
    return number


def _open_existing(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refusal(path, error) from error


_ENDING: Final = re.compile(r"-(append|bell-[0-9]+|epoch|head|live(-[0-9]+)?)$")


def make_alike(file: int | Path, path: Path) -> None:
    """Give a new side file, by its descriptor or its path, the mode of its journal, and from root its owner."""
    journal = path.with_name(_ENDING.sub("", path.name)).stat()
    os.chmod(file, stat.S_IMODE(journal.st_mode) & 0o666)
    if os.geteuid() == 0:
        os.chown(file, journal.st_uid, journal.st_gid)


def refusal(path: Path, error: OSError) -> JournalRefused:
    """Return what to raise for a side file that the system does not let this process at."""
    return JournalRefused(f"{path} cannot be opened ({error.strerror}): let this user at it and its folder")
