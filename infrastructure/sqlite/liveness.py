"""The sign of life of an opening: a lock of the kernel's, which ends with its process, however that ends."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from counterfoil.domain.errors import JournalRefused

from .descriptor import HAS_BYTE_LOCKS, Descriptor, side_file

_TRIES: Final = 1_000
_TRY_S: Final = 0.001


class Liveness(Protocol):
    """What tells which openings of a journal live. One object shows the life of one opening."""

    def begin(self, opening_id: int) -> None:
        """Show that this opening lives, from now until `end` or the end of the process."""

    def is_live(self, opening_id: int) -> bool:
        """Tell whether an opening that has begun lives still, in this or any process."""

    def end(self) -> None:
        """Show that the own opening has ended; ending again does nothing."""


class MemoryLiveness:
    """The liveness of a journal in memory: nobody else can have it open."""

    def __init__(self) -> None:
        self._own: int | None = None

    def begin(self, opening_id: int) -> None:
        """Show that this opening lives."""
        self._own = opening_id

    def is_live(self, opening_id: int) -> bool:
        """Tell whether this is the own opening."""
        return opening_id == self._own

    def end(self) -> None:
        """Show that the own opening has ended; ending again does nothing."""
        self._own = None


class FileLiveness:
    """
    The liveness of the openings of a journal file.

    On Linux opening n has byte n of `J-live` locked for an open file description (`F_OFD_SETLK`, never
    `F_SETLK`, which any close of the file drops and the own process cannot see). On other Unixes it has the
    file `J-live-n` locked with `flock`. An opening that was seen dead stays so: its number is never given
    again.

    In a child of the process where it began, `is_live` raises `ForkedError`, and `end` does nothing.
    """

    def __init__(self, path: Path, *, byte_locks: bool = HAS_BYTE_LOCKS) -> None:
        """Open nothing yet; `path` is that of `J-live`. Leave `byte_locks`, Linux or other Unixes, as it is."""
        self._path = path
        self._byte_locks = byte_locks
        self._own: int | None = None
        self._sign: Descriptor | None = None
        self._probe: Descriptor | None = None
        self._dead: set[int] = set()

    def begin(self, opening_id: int) -> None:
        """
        Show that this opening lives, from now until `end` or the end of the process.

        Raises `JournalRefused` if the file cannot be opened, or if the opening lives already: then the
        journal was exchanged for an older one while it was open.
        """
        if opening_id < 1 or self._sign is not None:
            raise RuntimeError("one object shows the life of one opening, whose number is 1 or more")
        sign = Descriptor(self._file(opening_id))
        if not self._locks(sign, opening_id):
            sign.close()
            raise JournalRefused(
                f"{self._file(opening_id)}: opening {opening_id} lives already, so the journal was exchanged "
                "while it was open; end every process that has it open, and open it again"
            )
        self._dead.discard(opening_id)
        self._sign, self._own = sign, opening_id

    def is_live(self, opening_id: int) -> bool:
        """Tell whether an opening that has begun lives still, in this or any process; takes about 1 us."""
        if opening_id in self._dead:
            return False
        if self._sign is not None and self._sign.number >= 0 and opening_id == self._own:
            return True
        live = self._sees_byte(opening_id) if self._byte_locks else self._sees_file(opening_id)
        if not live:
            self._dead.add(opening_id)
        return live

    def end(self) -> None:
        """Show that the own opening has ended; ending again does nothing."""
        if self._sign is None or self._own is None or not self._sign.is_open:
            return
        self._dead.add(self._own)
        if not self._byte_locks:
            with suppress(OSError):
                self._file(self._own).unlink()
        self._sign.close()

    def _file(self, opening_id: int) -> Path:
        return sign_file(self._path, opening_id, byte_locks=self._byte_locks)

    def _locks(self, sign: Descriptor, opening_id: int) -> bool:
        """Lock the own sign. Whoever waited for the end of an earlier opening of this number has it, shared, for a moment."""
        for _ in range(_TRIES):
            if sign.try_lock_byte(opening_id) if self._byte_locks else sign.try_lock():
                return True
            if self._is_held(sign, opening_id):
                return False
            time.sleep(_TRY_S)
        return False

    def _is_held(self, sign: Descriptor, opening_id: int) -> bool:
        if self._byte_locks:
            return sign.sees_byte_locked(opening_id)
        if not sign.try_lock(shared=True):
            return True
        sign.unlock()
        return False

    def _sees_byte(self, opening_id: int) -> bool:
        if self._probe is None:
            try:
                self._probe = Descriptor(self._file(opening_id), create=False)
            except FileNotFoundError:
                return False
        return self._probe.sees_byte_locked(opening_id)

    def _sees_file(self, opening_id: int) -> bool:
        path = self._file(opening_id)
        try:
            probe = Descriptor(path, create=False)
        except FileNotFoundError:
            return False
        live = not probe.try_lock(shared=True)
        if not live:
            with suppress(OSError):
                path.unlink()
        probe.close()
        return live


def sign_file(path: Path, opening_id: int, *, byte_locks: bool) -> Path:
    """Return the path of the file whose lock is the sign of an opening's life; `path` is that of `J-live`."""
    return path if byte_locks else side_file(path, str(opening_id))


def find_sign(path: Path, opening_id: int, *, byte_locks: bool) -> Descriptor | None:
    """Open the sign of an opening that has begun, to wait for its end; None if it is gone. Raises `JournalRefused`."""
    try:
        return Descriptor(sign_file(path, opening_id, byte_locks=byte_locks), create=False)
    except FileNotFoundError:
        return None


def wait_for_end(sign: Descriptor, opening_id: int, *, byte_locks: bool) -> None:
    """
    Wait in the kernel, for however long it takes, until an opening has ended, and close its sign.

    It waits for a shared lock, so any number may wait, and what they get for a moment is no sign of life to anybody.
    """
    try:
        if byte_locks:
            sign.wait_lock_byte(opening_id, shared=True)
        else:
            sign.wait_lock(shared=True)
    finally:
        sign.close()


def check_locking(path: Path) -> None:
    """
    Check, on `J-live`, that locks on this file system exclude and see each other; many may check at once.

    Raises `JournalRefused` if they do not, as on some network and container file systems.
    """
    holder, other = Descriptor(path), Descriptor(path)
    try:
        fails = _what_fails(holder, other)
    except OSError as error:
        fails = f"cannot be had ({error.strerror})"
    finally:
        other.close()
        holder.close()
    if fails:
        raise JournalRefused(f"{path}: locks on this file system {fails}; move the journal to a local disk")


def _what_fails(holder: Descriptor, other: Descriptor) -> str | None:
    # Shared locks, so that two processes that check at the same time do not take each other for a fault.
    if not holder.try_lock(shared=True) or other.try_lock():
        return "do not exclude each other"
    if HAS_BYTE_LOCKS:
        if not holder.try_lock_byte(0, shared=True) or other.try_lock_byte(0):
            return "do not exclude each other"
        if not other.sees_byte_locked(0, shared=True):
            return "are not seen by others"
    return None
