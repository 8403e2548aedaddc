"""
What counterfoil raises.

    CounterfoilError
    ├── InvalidValue (ValueError)      an argument of the caller's is outside what is allowed
    ├── JournalUnavailable             the store did not do it, or cannot tell within the time allowed
    ├── JournalRefused                 this cannot be opened as a journal
    │   ├── NotAJournal
    │   ├── JournalDamaged
    │   └── FormatUnknown
    ├── ReadOnly                       a command on a journal opened for reading
    ├── Closed                         the journal was closed
    │   └── ForkedError                it was opened before a fork, in the parent
    ├── CommandConflict                a command id that was used for another command
    ├── LockError                      about one key of a lock
    │   ├── LockHeld                   somebody else has it, and the wait for it is over
    │   ├── AlreadyHeld                the caller itself has it
    │   └── LeaseLost                  the lease has ended while its holder was at work
    ├── Denied                         the identity may not do this
    ├── NeedsRuntime                   this would send, and a journal does not send
    ├── InsideTransaction              a call that a transaction's body may not make
    ├── WrongThread                    a synchronous wait where an event loop runs
    └── NotSent                        raised by a host's `deliver`: nothing was sent

A message names the thing and the cure. No message holds text, external ids, tokens or keys; an error of a database driver is
never chained into what is raised.
"""

from __future__ import annotations

import copyreg
import re
from typing import Any


class CounterfoilError(Exception):
    """Be the base of all that counterfoil raises. Each can be pickled, so a pool of processes hands it on."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how it is made again: from its message and its attributes, whatever its class is called with."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidValue(CounterfoilError, ValueError):
    """A value is outside what is allowed; the message names it, its type or length, and the range."""


class JournalUnavailable(CounterfoilError):
    """The store did not take the command, or nobody can tell whether it did; trying again is safe."""


class JournalRefused(CounterfoilError):
    """What was named cannot be opened as a journal."""


class NotAJournal(JournalRefused):
    """The file is something else; nothing in it was touched."""


class JournalDamaged(JournalRefused):
    """The journal is truncated or does not agree with itself; restore a backup, or look at it with `counterfoil verify`."""


class FormatUnknown(JournalRefused):
    """The journal was written in a format that this release does not know; install a newer release."""


class ReadOnly(CounterfoilError):
    """The journal was opened for reading only; open it without `readonly` to change something."""


class Closed(CounterfoilError):
    """The journal was closed; open it again. Also raised by a `tx` whose transaction is over."""


class ForkedError(Closed):
    """The journal was opened by the parent of this process; open it again after the fork."""


class CommandConflict(CounterfoilError):
    """The command id was used in this scope for another command; use a new id for a new command."""


class LockError(CounterfoilError):
    """
    Be about one key of a lock.

    `lock` is its name, `key` the key, as text, and `lease_id` the id of the key, which is a pseudonym. The message names the
    lock and the first digits of that id, and not the key.
    """

    def __init__(self, what: str, *, lock: str, lease_id: str, key: str | None = None) -> None:
        super().__init__(f"lock {lock}, key #{lease_id[3:11]}: {what}")
        self.lock = lock
        self.lease_id = lease_id
        self.key = key


class LockHeld(LockError):
    """Somebody else has the key, and the wait for it is over, or its line is full; try again later."""


class AlreadyHeld(LockError):
    """The caller has the key already and would wait for itself; use the lease that it has."""


class LeaseLost(LockError):
    """
    The lease has ended while its holder was at work: what it does from now on may meet the work of the next holder.

    `reason` is a class word: `ttl` (it was not renewed in time), `max_hold`, `revoked`, `released`, or `opening_ended`.
    """

    def __init__(self, reason: str, *, lock: str, lease_id: str, key: str | None = None) -> None:
        super().__init__(f"the lease is lost ({reason}); take the key again", lock=lock, lease_id=lease_id, key=key)
        self.reason = reason


class Denied(CounterfoilError):
    """The identity may not do this; `reason` is a class word."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NeedsRuntime(CounterfoilError):
    """The reply would have to be sent, and a journal does not send; use `Runtime.reconcile`. Nothing was changed."""


class InsideTransaction(CounterfoilError):
    """The body of a transaction called a journal, or awaited something else than its `tx`; all of it was rolled back."""


class WrongThread(CounterfoilError):
    """A synchronous call would block the event loop that runs in this thread; use `counterfoil.open_async`."""


class NotSent(CounterfoilError):
    """
    Raised by `deliver` when it failed before anything could be sent; the reply is recorded as `delivery_failed`.

    `reason` is a class word (`[a-z0-9_]{1,64}`); anything else becomes `not_sent`, because it could hold text.
    """

    def __init__(self, reason: str = "not_sent") -> None:
        self.reason = reason if isinstance(reason, str) and re.fullmatch(r"[a-z0-9_]{1,64}", reason) else "not_sent"
        super().__init__(f"nothing was sent: {self.reason}")
