"""
Forks and SQLite: a child gives up the connections that it inherits before it opens any of its own.

SQLite keeps a table of the files that it has open and of the locks that it has on them. A fork copies the table, and not the
locks: a connection that the child opens on such a file believes that the locks are there, and takes none. Whoever closes the
file then takes itself for the last one, and removes the log under the child. A child that closes what it inherits has an empty
table. It costs the parent nothing: what a child unlocks is its own, and the parent's locks keep the child from taking itself for
the last one.

What another thread was doing at the fork stays half done in the child, mutexes included. So a fork waits until no thread is
inside SQLite, and who wants to go inside waits for the fork.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, Final

from counterfoil.domain.errors import ForkedError

from .. import forks  # noqa: F401 - its hook is registered first, and so runs last: who is inside may need `forking` to get out

FORK_SECONDS: Final = 5.0
"""How long a fork waits for those who are inside; then it is done, and the child cannot use their files."""
ENTER_SECONDS: Final = 2 * FORK_SECONDS
"""
How long a thread waits for forks, which is for good nearly always: only what is collected may come here with `forking` held,
for which the fork waits in turn. The child sees that somebody has gone in.
"""


class Connection(sqlite3.Connection):
    """A connection that a forked child gives up."""

    file: tuple[int, int] | None = None
    """Device and inode of what is open; None in memory."""

    def close(self) -> None:
        with gate.inside():
            super().close()


class Inherited(Connection):
    """What a connection of the parent's becomes in the child: it is not used there, and what was begun is not rolled back."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name == "in_transaction":
            return False
        if name == "close":
            return _nothing
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")


def _nothing() -> None:
    """Closing what is closed, or must not be."""


class Gate:
    """Who is inside SQLite, and who forks."""

    def __init__(self) -> None:
        self.changed = threading.Condition()  # re-entrant: what is collected goes in and out anywhere
        self.threads: dict[int, int] = {}
        """How many times each thread is inside."""
        self.forking: set[int] = set()
        """The threads that are forking: as long as there are any, no other goes in."""
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._lost: set[tuple[int, int]] = set()
        """The files that the parent had open when it forked while somebody was inside."""

    def inside(self) -> Inside:
        """Return what keeps forks away for a block that uses SQLite; a thread that is inside may go in again."""
        return Inside(self)

    def check_file(self, path: Path) -> None:
        """Raise `ForkedError` for a file that this process inherited in use."""
        if self._lost and _file(path) in self._lost:
            raise ForkedError(
                f"{path}: a call of the journal was under way when this process was forked, so it cannot be opened here; "
                "fork while no call is under way, or start processes by spawn"
            )

    def enter(self, connection: Connection, path: Path | None) -> None:
        """Have a connection given up in every child, from inside."""
        connection.file = None if path is None else _file(path)
        self._connections.add(connection)

    # Around a fork. When it fails, that of the parent is called too.

    def before(self) -> None:
        with self.changed:
            self.forking.add(threading.get_ident())
            self.changed.wait_for(lambda: self.threads.keys() <= self.forking, FORK_SECONDS)

    def after_in_parent(self) -> None:
        with self.changed:
            self.forking.discard(threading.get_ident())
            self.changed.notify_all()

    def after_in_child(self) -> None:
        quiet = not self.threads
        self.changed, self.threads, self.forking = threading.Condition(), {}, set()
        inherited = list(self._connections)
        self._connections.clear()
        for connection in inherited:
            if quiet:
                connection.close()
            else:
                if connection.file is not None:
                    self._lost.add(connection.file)
                # Never closed, not even when Python ends: that might wait for a mutex of a thread that is not there, and would
                # roll back in the log, which is shared, what the parent is writing.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            connection.__class__ = Inherited


class Inside:
    """One stay of one thread; it ends with its block, or when it is collected with a generator that is never finished."""

    __slots__ = ("_counted", "_gate", "_thread")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._counted: dict[int, int] | None = None
        self._thread = 0

    def __enter__(self) -> None:
        gate = self._gate
        self._thread = thread = threading.get_ident()
        with gate.changed:
            if gate.forking and thread not in gate.threads and thread not in gate.forking:
                gate.changed.wait_for(lambda: not gate.forking, ENTER_SECONDS)
            self._counted = gate.threads
            gate.threads[thread] = gate.threads.get(thread, 0) + 1

    def __exit__(self, *raised: object) -> None:
        self._leave()

    def __del__(self) -> None:
        if self._counted is not None:
            self._leave()

    def _leave(self) -> None:
        gate, thread = self._gate, self._thread
        with gate.changed:
            counted, self._counted = self._counted, None
            if counted is None:
                return
            counted[thread] -= 1  # in a child, of a stay that began in the parent, nobody looks at it
            if not counted[thread]:
                del counted[thread]
                if gate.forking:
                    gate.changed.notify_all()


def _file(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at a path from another one; None when there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


gate: Final = Gate()

if sys.platform != "win32":
    os.register_at_fork(before=gate.before, after_in_parent=gate.after_in_parent, after_in_child=gate.after_in_child)
