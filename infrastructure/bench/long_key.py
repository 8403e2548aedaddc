"""A key of a lock with a long history beside one with a short one, in one journal, and how many pages are read to give each."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from counterfoil.domain.hold import Terms, checked_terms
from counterfoil.domain.ids import lock_id

from ..commands.holds import Granted, Hold, ReleaseKey
from ..core import Core
from ..journal import open as open_journal
from ..unit import Unit
from . import takes, workload
from .results import Sample

LONG: Final = "long"
SHORT: Final = "short"
SHORT_EVENTS: Final = 10
TOGETHER: Final = 500
"""Times that a key is taken and let go in one append."""
PAGE: Final = 4_096
"""Bytes; what SQLite makes unless told otherwise, and the journal tells it nothing."""
READ: Final = Path("/proc/self/io")
"""Where Linux tells how much a process has read."""


@dataclass(frozen=True, slots=True)
class Takes:
    """A key taken and let go many times in one append. Only a bench may do this: nobody ever held it."""

    terms: Terms
    lease_id: str
    key: str
    count: int

    def run(self, unit: Unit) -> int:
        """Return the version of the key's stream afterwards."""
        for _ in range(self.count):
            token = os.urandom(16)
            granted = Hold(self.terms, self.lease_id, self.key, token, waits=False).run(unit)
            assert isinstance(granted, Granted)
            lost = ReleaseKey(granted.ticket).run(unit)
            assert lost is None
        lease = unit.lease(self.lease_id)
        assert lease is not None
        return lease.version


def build(path: Path, events: int, progress: Callable[[int], None]) -> int:
    """Make a journal with both keys, and return how many events the long one has. `progress` is told how many are there."""
    core = Core(path, limits=workload.LIMITS)
    terms = checked_terms(takes.NAME, takes.TTL, None, None)
    version = 0

    def take(key: str, count: int) -> int:
        lease_id = lock_id(core.engine.journal_key, takes.NAME, key)
        return core.committer.submit(Takes(terms, lease_id, key, count)).result()

    try:
        take(SHORT, SHORT_EVENTS // 2)
        while version < events:
            progress(version)
            version = take(LONG, TOGETHER)
    finally:
        core.close()
    return version


def pages(path: Path) -> Sample:
    """
    Measure how many pages are read to learn how each of the keys stands, in an opening that has read nothing before.

    Both are held meanwhile: nothing is written, so each time the same pages are read.
    """
    with open_journal(path, limits=workload.LIMITS) as journal:
        lock = journal.lock(takes.NAME, ttl=takes.TTL)
        with lock.hold(LONG), lock.hold(SHORT):
            return {key: Context().run(_pages, path, key) for key in (SHORT, LONG)}  # as somebody who holds neither


def _pages(path: Path, key: str) -> int:
    with open_journal(path, limits=workload.LIMITS) as journal:
        before = _bytes_read()
        with journal.lock(takes.NAME, ttl=takes.TTL).try_hold(key) as lease:
            assert lease is None
        read = _bytes_read() - before
    return round(read / PAGE)


def _bytes_read() -> int:
    """Return how many bytes this process has read from files, whether or not the system had them in memory."""
    return next(int(line.split()[1]) for line in READ.read_text("ascii").splitlines() if line.startswith("rchar"))
