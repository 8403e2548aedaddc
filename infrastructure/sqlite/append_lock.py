"""The queue of an SQLite journal's writers: the kernel's, in which those of all processes wait for each other."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final, Literal, Protocol

from counterfoil.domain.errors import Closed, JournalUnavailable

from .descriptor import HAS_BYTE_LOCKS, Descriptor


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
