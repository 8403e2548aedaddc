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

from counterfoil.domain.errors import JournalRefused

from .descriptor import HAS_BYTE_LOCKS, Descriptor
from .liveness import find_sign, wait_for_end

log = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[], None]
_Watched: TypeAlias = tuple[int, int, int]
"""Device, inode and opening: beside a journal that was put in the place of another lie other files of the same names."""

_guard = threading.Lock()
_watches: Final[dict[_Watched, dict[object, Tell]]] = {}


def watch_death(live: Path, opening_id: int, tell: Tell, *, byte_locks: bool = HAS_BYTE_LOCKS) -> Callable[[], None]:
    """
    Have `tell` called once, on a thread of its own, when an opening has ended; soon, if it has already.

    `live` is the path of `J-live`. Returns what takes the watch back: afterwards `tell` is not called, unless it is being called
    right then. An opening that cannot be watched is logged, and `tell` is not called. Leave `byte_locks` as it is.
    """
    asked = object()
    tells = {asked: tell}
    try:
        sign = find_sign(live, opening_id, byte_locks=byte_locks)
    except JournalRefused as error:
        _cannot_watch(error)
    else:
        if sign is None:
            _start(_tell, tells)
        else:
            tells = _join(sign, opening_id, byte_locks, tells)

    def cancel() -> None:
        tells.pop(asked, None)  # takes no lock, so it may be called anywhere

    return cancel


def _join(sign: Descriptor, opening_id: int, byte_locks: bool, tells: dict[object, Tell]) -> dict[object, Tell]:
    """Have the thread of this opening tell these too, and return all that it will tell; without a thread, start it."""
    found = os.fstat(sign.number)
    watched = (found.st_dev, found.st_ino, opening_id)
    with _guard:
        others = _watches.get(watched)
        if others is None:
            _start(_watch, sign, watched, byte_locks, tells)
            _watches[watched] = tells
            return tells
        others.update(tells)
    sign.close()
    return others


def _start(target: Callable[..., None], *args: object) -> None:
    threading.Thread(target=target, args=args, name="counterfoil-watch", daemon=True).start()


def _watch(sign: Descriptor, watched: _Watched, byte_locks: bool, tells: dict[object, Tell]) -> None:
    ended = True
    try:
        wait_for_end(sign, watched[2], byte_locks=byte_locks)
    except OSError as error:
        _cannot_watch(error)
        ended = False
    with _guard:
        del _watches[watched]
    if ended:
        _tell(tells)


def _tell(tells: dict[object, Tell]) -> None:
    for asked in list(tells):
        tell = tells.pop(asked, None)
        if tell is None:
            continue
        try:
            tell()
        except Exception as error:
            log.error("telling of the end of an opening raised %s", type(error).__name__)


def _cannot_watch(error: Exception) -> None:
    """Nobody is told of an end that nobody saw: whoever waits looks by itself, once a second."""
    log.warning("an opening cannot be watched: %s", type(error).__name__)


def _in_child() -> None:
    """The threads are the parent's."""
    global _guard
    _guard = threading.Lock()
    _watches.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
