"""
What is kept beside the history, so that an older copy of the journal, put in its place, gives nothing out again: the highest
epoch and the highest position.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from counterfoil.domain.errors import JournalDamaged, JournalUnavailable

from .descriptor import Descriptor, make_alike, refusal, side_file

_EPOCH_TEXT: Final = re.compile(rb"[0-9]{1,19}\n?")
_POSITION_TEXT: Final = re.compile(rb"[0-9]{20}\n")
_POSITION_BYTES: Final = 21

# The highest epoch.


_TRY_AGAIN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO)
_LARGEST: Final = 2**62


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
            raise refusal(self._path, error) from None
        if not _EPOCH_TEXT.fullmatch(text):
            raise _damage(self._path, "an epoch")
        return _bounded(int(text), self._path, "an epoch")

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
                    make_alike(number, self._path)
                file.write(b"%d\n" % epoch)
                file.flush()
                os.fsync(number)
            os.replace(new, self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            if error.errno in _TRY_AGAIN:
                raise JournalUnavailable(f"{self._path} cannot be written ({error.strerror}): make room and try again") from None
            raise refusal(self._path, error) from None


# The highest position.


class HighestPosition(Protocol):
    """Where the highest position is kept."""

    def read(self) -> int:
        """Return it, 0 when nothing was kept."""

    def write(self, position: int) -> None:
        """Keep it."""

    def close(self) -> None:
        """Close what is open."""


class MemoryHead:
    """A journal in memory is never put back from a copy."""

    def read(self) -> int:
        return 0

    def write(self, position: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class HeadFile:
    """
    The file `J-head`, written in place before each commit and not synced.

    It outlives the process, which is what counts: after a power cut it may be behind the journal, and then says nothing.
    """

    def __init__(self, path: Path) -> None:
        """Open `J-head`, and make it where it is missing. Raises `JournalRefused`."""
        self._path = path
        self._descriptor = Descriptor(path)

    def read(self) -> int:
        """
        Return the highest position, 0 for a file that is empty, or as long as it was and without its bytes.

        Raises `JournalDamaged` if it holds anything else, and `JournalUnavailable` if it cannot be read.
        """
        with self._faults():
            text = os.pread(self._descriptor.number, _POSITION_BYTES + 1, 0)
        if not text.strip(b"\0"):
            return 0
        if _POSITION_TEXT.fullmatch(text) is None:
            raise _damage(self._path, "a position")
        return _bounded(int(text), self._path, "a position")

    def write(self, position: int) -> None:
        """Keep it. Raises `JournalUnavailable` if it cannot be written."""
        with self._faults():
            os.pwrite(self._descriptor.number, b"%020d\n" % position, 0)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalUnavailable(f"{self._path}: reading or writing failed ({error.strerror}); try again") from None

    def close(self) -> None:
        self._descriptor.close()


def _bounded(number: int, path: Path, what: str) -> int:
    """Refuse a number that no journal reaches, and that would leave no room above it."""
    if number > _LARGEST:
        raise _damage(path, what)
    return number


def _damage(path: Path, what: str) -> JournalDamaged:
    return JournalDamaged(
        f"{path} does not hold {what}: put it back from a backup, or remove it if the journal is the newest there is"
    )


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
