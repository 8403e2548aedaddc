"""
The journal as an application recorder of the `eventsourcing` library.

It lies below the openings: it adds no event of its own. Events of the library are appended, chained and carried as they are;
events of the journal's own are read under the topic `type/version`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import (
    ApplicationRecorder,
    IntegrityError,
    ListenNotifySubscription,
    Mapper,
    Notification,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Subscription,
)

from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.event import REGISTRY, Event
from counterfoil.domain.ids import is_our_originator

from .commands.recording import RecordForeign, VersionTaken
from .core import Core
from .rows import SQLRow
from .statements import Names, Statement
from .store import Values

SQL: Final = Names("recorder")

LOOK: Final = 0.25
"""Seconds after which a subscription looks for commits of other processes."""

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_NO_LIMIT: Final = -1
_TOPIC: Final = re.compile(r"([a-z_]+\.[a-z_]+)/([1-9][0-9]*)")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class JournalRecorder(ApplicationRecorder):
    """
    Record and select events of the `eventsourcing` library in an opened journal, and follow all of its events.

    Ids of originators that are UUIDs come back as such, all others as text. Nothing can be recorded in the streams of the
    journal's own aggregates: those are appended by its commands alone.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """
        Append events, all or none, and return their positions.

        Raises the library's `IntegrityError` if an aggregate has a version already, `OperationalError` if the store did not do
        it, and `ProgrammingError` for a stream of the journal's own.
        """
        if not stored_events:
            return []
        rows = [(str(each.originator_id), each.originator_version, each.topic, bytes(each.state)) for each in stored_events]
        for originator_id, *_ in rows:
            if is_our_originator(originator_id):
                raise ProgrammingError("the streams of the journal's own aggregates are appended by its commands alone")
        with _in_their_words():
            return self._core.committer.submit(RecordForeign(rows)).result()

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return a stretch of one aggregate's events: versions above `gt`, up to `lte`."""
        values = (
            str(originator_id),
            _LEAST if gt is None else gt,
            _MOST if lte is None else lte,
            _NO_LIMIT if limit is None else limit,
        )
        return [
            StoredEvent(_originator(found), version, _topic(kind, kind_version), state)
            for found, version, kind, kind_version, state in self._read(SQL.stream_backwards if desc else SQL.stream, values)
        ]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return at most `limit` events from position `start` (or after it) up to `stop`, of some topics or of all."""
        first = 1 if start is None else start if inclusive_of_start else start + 1
        last = _MOST if stop is None else stop
        if topics:
            rows = self._read(SQL.notifications_of_topics, {"first": first, "last": last, "topics": list(topics), "limit": limit})
        else:
            rows = self._read(SQL.notifications, (first, last, limit))
        return [
            Notification(_originator(originator_id), version, _topic(kind, kind_version), state, position)
            for position, originator_id, version, kind, kind_version, state in rows
        ]

    def max_notification_id(self) -> int | None:
        """Return the position of the last event, None in an empty journal."""
        with _in_their_words():
            return self._core.read(lambda store: store.head()).position or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Follow the events after a position: those of this process as they are committed, others' within a quarter second."""
        return JournalSubscription(self, gt, topics)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called after each commit of this process that appended events."""
        self._core.engine.on_commit.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no longer."""
        with suppress(ValueError):
            self._core.engine.on_commit.remove(listener)

    def _read(self, statement: Statement, values: Values) -> list[SQLRow]:
        with _in_their_words():
            return self._core.read(lambda store: list(store.rows(statement, values)))


class JournalSubscription(ListenNotifySubscription[JournalRecorder]):
    """
    Iterate over the events of a journal as they come, none skipped and none twice.

    A commit of this process wakes it; besides it looks at the head of the journal every quarter second, because other processes
    cannot wake it.
    """

    def __init__(self, recorder: JournalRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        recorder.listen(self._has_been_notified.set)
        if self._has_been_stopped:  # the first look failed before it stood
            recorder.unlisten(self._has_been_notified.set)

    def stop(self) -> None:
        """End the iteration; stopping again does nothing."""
        super().stop()
        self._recorder.unlisten(self._has_been_notified.set)

    def _loop_on_pull(self) -> None:
        try:
            seen = 0
            while not self._has_been_stopped:
                self._has_been_notified.clear()
                head = self._recorder.max_notification_id() or 0
                if head != seen:
                    self._pull()
                    seen = head
                    if not self._has_been_stopped:  # also past what the topics leave out, which is not looked at again
                        self._last_notification_id = max(self._last_notification_id or 0, head)
                self._has_been_notified.wait(LOOK)
        except BaseException as error:
            self._thread_error = self._thread_error or error
            self.stop()


@dataclass(frozen=True)
class JournalEvent:
    """An event of the journal's own, as a projection of the library gets it."""

    originator_id: str
    originator_version: int
    event: Event


class JournalMapper(Mapper[Any]):
    """
    Decode the events of a journal for an application of the library: the journal's own by its registry, upcast, and all others as
    the library does.
    """

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Return a `JournalEvent`, or what the library makes of a topic that is not the journal's."""
        ours = _TOPIC.fullmatch(stored_event.topic)
        if ours is None:
            return super().to_domain_event(stored_event)
        event = REGISTRY.decode(ours[1], int(ours[2]), stored_event.state)
        assert event is not None
        return JournalEvent(str(stored_event.originator_id), stored_event.originator_version, event)


def _topic(event_type: str, version: int) -> str:
    return f"{event_type}/{version}" if version else event_type


def _originator(text: str) -> UUID | str:
    return UUID(text) if _UUID.fullmatch(text) else text


@contextmanager
def _in_their_words() -> Iterator[None]:
    try:
        yield
    except VersionTaken:
        raise IntegrityError("an aggregate has an event of this version already") from None
    except JournalUnavailable as error:
        raise OperationalError(str(error)) from None
