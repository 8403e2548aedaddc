"""What belongs to the parent alone: a forked child gives up its copies of these descriptors at once."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Final, Protocol


class Forked(Protocol):
    """Something with descriptors that a forked child must not keep."""

    def forked(self) -> None:
        """Close the copies, in the child. What the parent has stands."""


forking: Final = threading.RLock()
"""
Held across each fork, and while descriptors are opened and entered here, that no child is made in between.

Re-entrant, because what is entered may be collected, and so closed, anywhere.
"""

_entered: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()


def give_up_in_child(thing: Forked) -> None:
    """Have `forked` called in every child, for as long as the thing is in use; call it while `forking` is held."""
    _entered.add(thing)


def _in_child() -> None:
    for thing in list(_entered):
        thing.forked()
    forking.release()


if sys.platform != "win32":
    os.register_at_fork(before=forking.acquire, after_in_parent=forking.release, after_in_child=_in_child)
