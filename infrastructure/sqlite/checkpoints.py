"""When the log of an SQLite journal is written back into its file."""

from __future__ import annotations

import logging
import sqlite3

log = logging.getLogger(__name__)


class Checkpoints:
    """
    Checkpoints of one writer, which runs them between its own groups.

    How many frames have gathered is estimated from how many an event took up to the last checkpoint, because SQLite tells it
    only when one runs.
    """

    def __init__(self, frames: int, *, there: int = 0) -> None:
        """Be due from so many frames in the log; `there` are those that it was found with."""
        self._frames = frames
        self._frames_per_event = 3.0
        self._events = int(there / self._frames_per_event)

    def count(self, events: int) -> None:
        """Take note of events that were committed."""
        self._events += events

    def empty(self, connection: sqlite3.Connection) -> None:
        """Write everything back and empty the log, so that what was erased does not stay in it; readers may keep it from that."""
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            log.warning("a checkpoint failed: %s", getattr(error, "sqlite_errorname", type(error).__name__))
            return
        self._events = 0

    def run_if_due(self, connection: sqlite3.Connection) -> None:
        """Write back what no reader needs any more, if enough has gathered; what fails is tried again after the next group."""
        if self._events * self._frames_per_event < self._frames:
            return
        try:
            _busy, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            log.warning("a checkpoint failed: %s", getattr(error, "sqlite_errorname", type(error).__name__))
            return
        if frames > 0:
            self._frames_per_event = max(1.0, frames / max(1, self._events))
        if frames == done:
            self._events = 0
