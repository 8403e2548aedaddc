"""
The files beside an SQLite journal: the queue of its writers and the highest epoch.

Nothing here opens the journal file, its `-wal` or its `-shm`: closing a descriptor on one of them would drop
the locks that SQLite holds in this process.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import struct
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Protocol

from counterfoil.domain.errors import Closed, ForkedError, JournalDamaged, JournalRefused, JournalUnavailable

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
        with _forking:
            self._number = _open(path) if create else _open_existing(path, os.O_RDONLY)
            _descriptors.add(self)

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

    def wait_lock(self) -> None:
        """Wait, for however long it takes, until the file is locked as a whole."""
        fcntl.flock(self.number, fcntl.LOCK_EX)

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

    def wait_lock_byte(self, offset: int) -> None:
        """Wait, for however long it takes, until the byte is locked."""
        fcntl.fcntl(self.number, _SETLKW, _byte(fcntl.F_WRLCK, offset))

    def unlock_byte(self, offset: int) -> None:
        """Give up the lock on one byte."""
        fcntl.fcntl(self.number, _SETLK, _byte(fcntl.F_UNLCK, offset))

    def sees_byte_locked(self, offset: int) -> bool:
        """Tell whether another descriptor, of this or any process, has this byte locked."""
        found = fcntl.fcntl(self.number, _GETLK, _byte(fcntl.F_WRLCK, offset))
        kind: int = _FLOCK.unpack_from(found)[0]
        return kind != fcntl.F_UNLCK

    def close(self) -> None:
        """Give up all locks and close; closing again, or in a forked child, does nothing."""
        with _forking:
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


# Held across each fork, that no child is made between the opening of a descriptor and its entry in the set.
# Re-entrant, because a descriptor may be collected, and so closed, anywhere.
_forking: Final = threading.RLock()
_descriptors: Final[weakref.WeakSet[Descriptor]] = weakref.WeakSet()


def _in_child() -> None:
    for descriptor in list(_descriptors):
        descriptor.forked()
    _forking.release()


if sys.platform != "win32":
    os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_in_child)


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
            _make_alike(number, path)
    except OSError as error:
        raise _refusal(path, error) from error
    return number


def _open_existing(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refusal(path, error) from error


_ENDING: Final = re.compile(r"-(append|epoch|head|live(-[0-9]+)?)$")


def _make_alike(number: int, path: Path) -> None:
    journal = path.with_name(_ENDING.sub("", path.name)).stat()
    os.fchmod(number, stat.S_IMODE(journal.st_mode) & 0o666)
    if os.geteuid() == 0:
        os.fchown(number, journal.st_uid, journal.st_gid)


def _refusal(path: Path, error: OSError) -> JournalRefused:
    return JournalRefused(f"{path} cannot be opened ({error.strerror}): let this user at it and its folder")


# The queue of writers.


class AppendQueue(Protocol):
    """The place in which writers of one journal wait for each other; used by one thread at a time."""

    def acquire(self, timeout_us: int) -> bool:
        """Wait for the turn to write, `timeout_us` microseconds at the longest; tell whether it came."""

    def release(self) -> None:
        """Let the next writer in; does nothing if the turn is not had."""

    def close(self) -> None:
        """Release, leave the queue, and close; closing again does nothing."""


class MemoryAppendLock:
    """The queue of a journal in memory: it has one writer, whose turn it always is."""

    def acquire(self, timeout_us: int) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class AppendLock:
    """
    The kernel's queue of writers, on the file `J-append`.

    The lock is `flock`. Free, it costs one system call to take, and three to a writer that has just had it.
    Taken, a thread of this object waits in the kernel, since no call of the kernel waits for a lock with a
    limit; the caller waits for the thread. On Linux those who wait stand behind byte 0, so that only one at a
    time waits for the lock itself, and a writer that comes straight back stands behind them: otherwise it
    would take the lock again before the kernel has woken anybody.

    A place in the queue outlives a wait that came to nothing: the next `acquire` takes it up, and a turn that
    comes in between is passed on at once. A process that is killed loses its turn and its place; one that is
    stopped keeps them. A place of a closed lock is given up when its turn comes.
    """

    def __init__(self, path: Path) -> None:
        """Open `J-append`, and make it where it is missing. Raises `JournalRefused`."""
        self._place = _Place(Descriptor(path))
        self._had = False
        self._given_up_at = -_STRAIGHT_BACK_NS

    def acquire(self, timeout_us: int) -> bool:
        """
        Wait for the turn to write, `timeout_us` microseconds at the longest; tell whether it came.

        Raises `ForkedError` in a child of the process that opened it, `Closed`, `JournalUnavailable` if the
        kernel fails, and `RuntimeError` if the turn is had already.
        """
        self._place.check_open()
        if self._had:
            raise RuntimeError("the turn to write is had already")
        straight_back = HAS_BYTE_LOCKS and time.monotonic_ns() - self._given_up_at < _STRAIGHT_BACK_NS
        self._had = self._place.at_once(behind_others=straight_back)
        if not self._had and timeout_us > 0:
            self._had = self._place.wait(timeout_us / 1_000_000)
        return self._had

    def release(self) -> None:
        """Let the next writer in; does nothing if the turn is not had."""
        if self._had:
            self._had = False
            self._given_up_at = time.monotonic_ns()
            self._place.descriptor.unlock()

    def close(self) -> None:
        """Release, leave the queue, and close; closing again does nothing."""
        self._had = False
        self._place.close()

    def __del__(self) -> None:
        place: _Place | None = getattr(self, "_place", None)  # absent if it could not be opened
        if place is not None and not sys.is_finalizing():
            place.close()


_STRAIGHT_BACK_NS: Final = 20_000_000  # longer than the kernel needs to wake who waits, on a busy machine


class _Place:
    """A place in the queue; apart from `AppendLock`, which the thread that waits must not keep alive."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._changed = threading.Condition()  # re-entrant: `close` may be called by a collection, anywhere
        self._state: Literal["idle", "waiting", "granted", "failed"] = "idle"
        self._wanted = False
        self._closing = False
        self._started = False
        self._error: OSError | None = None

    def at_once(self, *, behind_others: bool) -> bool:
        """Take the lock if it is free, and with `behind_others` only if nobody waits for it."""
        with self._changed:
            if self._state == "waiting":
                return False
        if not behind_others:
            return self.descriptor.try_lock()
        if not self.descriptor.try_lock_byte(0):
            return False
        try:
            return self.descriptor.try_lock()
        finally:
            self.descriptor.unlock_byte(0)

    def wait(self, timeout: float) -> bool:
        """Wait for the thread to get the lock, `timeout` seconds at the longest."""
        with self._changed:
            if self._state == "idle":
                self._ask()
            self._wanted = True
            try:
                self._changed.wait_for(lambda: self._closing or self._state != "waiting", timeout)
            except BaseException:
                if self._state == "granted":
                    self.descriptor.unlock()
                if self._state != "waiting":
                    self._state = "idle"
                raise
            finally:
                self._wanted = False
            self.check_open()
            if self._state == "waiting":
                return False
            state, self._state = self._state, "idle"
            if state == "failed":
                assert self._error is not None
                raise JournalUnavailable(f"the queue of writers failed ({self._error.strerror}); try again")
            return True

    def close(self) -> None:
        """Close, or have the thread close when the kernel lets it go."""
        if not self.descriptor.is_open:
            return  # also in a forked child, where the condition may be held by a thread that is not there
        with self._changed:
            self._closing = True
            if self._state != "waiting":
                self.descriptor.close()
            self._changed.notify_all()

    def check_open(self) -> None:
        """Raise `ForkedError` in a forked child, and `Closed` once closed."""
        if self.descriptor.number >= 0 and self._closing:
            raise Closed("the journal was closed; open it again")

    def _ask(self) -> None:
        if not self._started:
            threading.Thread(target=self._serve, name="counterfoil-append", daemon=True).start()
            self._started = True
        self._state = "waiting"
        self._changed.notify_all()

    def _serve(self) -> None:
        # A handler of the host's must not interrupt the call: it would be made anew, at the end of the queue.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while self._asked():
            error = self._wait_in_kernel()
            with self._changed:
                if self._closing:
                    break
                if self._wanted:
                    self._state, self._error = "failed" if error else "granted", error
                    self._changed.notify_all()
                else:
                    if error is None:
                        self.descriptor.unlock()
                    self._state = "idle"
        self.descriptor.close()

    def _asked(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._state == "waiting")
            return self.descriptor.is_open and not self._closing

    def _wait_in_kernel(self) -> OSError | None:
        try:
            if not HAS_BYTE_LOCKS:
                self.descriptor.wait_lock()
                return None
            self.descriptor.wait_lock_byte(0)
            try:
                self.descriptor.wait_lock()
            finally:
                self.descriptor.unlock_byte(0)
        except OSError as error:
            return error
        return None


# The highest epoch.


class EpochStore(Protocol):
    """Where the highest epoch is kept beside the history, so that a restored journal begins above it."""

    def read(self) -> int:
        """Return the highest epoch that was kept, 0 if none was."""

    def raise_to(self, epoch: int) -> None:
        """Keep this epoch if it is the highest; never lowers."""


class MemoryEpoch:
    """The highest epoch of a journal in memory."""

    def __init__(self) -> None:
        self._epoch = 0

    def read(self) -> int:
        """Return the highest epoch that was kept, 0 if none was."""
        return self._epoch

    def raise_to(self, epoch: int) -> None:
        """Keep this epoch if it is the highest; never lowers."""
        self._epoch = max(self._epoch, epoch)


class EpochFile:
    """The highest epoch that was ever raised here, as decimal text in `J-epoch`."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet; `path` is that of `J-epoch`."""
        self._path = path

    def read(self) -> int:
        """
        Return the highest epoch that was kept, 0 where there is no file.

        Raises `JournalDamaged` if the file holds anything else, and `JournalRefused` if it cannot be read.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _refusal(self._path, error) from error
        if not _EPOCH_TEXT.fullmatch(text):
            raise JournalDamaged(
                f"{self._path} does not hold an epoch: put it back from a backup, "
                "or remove it if the journal is the newest there is"
            )
        return int(text)

    def raise_to(self, epoch: int) -> None:
        """
        Keep this epoch if it is the highest, and return when it would outlive a power cut; never lowers.

        Call it with the turn to write, so that two writers do not meet here. Raises as `read` does.
        """
        if epoch <= self.read():
            return
        new = side_file(self._path, "new")
        try:
            number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            with open(number, "wb") as file:
                with suppress(OSError):
                    _make_alike(number, self._path)
                file.write(b"%d\n" % epoch)
                file.flush()
                os.fsync(number)
            os.replace(new, self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise _refusal(self._path, error) from error


_EPOCH_TEXT: Final = re.compile(rb"[0-9]{1,19}\n?")


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
