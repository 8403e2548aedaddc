"""
The end of other openings, heard at once: a thread waits in the kernel for the lock that is an opening's sign of life.

There is one thread for each opening that anybody in this process watches, however many watch it and through however many
journals. The kernel cannot be told to stop waiting, so the thread stays when nobody watches any more, and serves whoever watches
the same opening next.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from counterfoil.domain.errors import CounterfoilError

from .liveness import wait_for_end

log = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[], None]
_Watched: TypeAlias = tuple[Path, int]

_guard = threading.Lock()
_watchers: Final[dict[_Watched, list[Tell]]] = {}


def watch_death(live: Path, opening_id: int, tell: Tell) -> Callable[[], None]:
    """
    Have `tell` called once, on a thread of its own, when an opening has ended; soon, if it has already.

    `live` is the path of `J-live`. Returns what takes the watch back.
    """
    watched = (live, opening_id)
    with _guard:
        tells = _watchers.get(watched)
        if tells is not None:
            tells.append(tell)
        else:
            _watchers[watched] = [tell]
            threading.Thread(target=_watch, args=(watched,), name="counterfoil-watch", daemon=True).start()

    def cancel() -> None:
        with _guard:
            if tell in _watchers.get(watched, ()):
                _watchers[watched].remove(tell)

    return cancel


def _watch(watched: _Watched) -> None:
    try:
        wait_for_end(*watched)
    except (OSError, CounterfoilError) as error:  # then whoever waits looks by itself, four times a second
        log.warning("an opening cannot be watched: %s", type(error).__name__)
        with _guard:
            del _watchers[watched]
        return
    with _guard:
        tells = _watchers.pop(watched)
    for tell in tells:
        try:
            tell()
        except Exception as error:
            log.error("telling of the end of an opening raised %s", type(error).__name__)


def _in_child() -> None:
    """The threads are the parent's."""
    global _guard
    _guard = threading.Lock()
    _watchers.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
