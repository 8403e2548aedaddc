"""The journal as an application recorder of the eventsourcing library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import singledispatchmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application, LocalNotificationLog
from eventsourcing.domain import Aggregate
from eventsourcing.domain import event as happens
from eventsourcing.persistence import (
    ApplicationRecorder,
    IntegrityError,
    Mapper,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.tests.persistence import ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase

from counterfoil.domain.limits import Limits
from counterfoil.domain.operation import OperationAdmitted, OperationSettled, ReplyDelivered
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.recorder import JournalEvent, JournalMapper, JournalRecorder
from counterfoil.infrastructure.sqlite.append_lock import AppendLock
from counterfoil.infrastructure.sqlite.descriptor import side_file
from counterfoil.infrastructure.sqlite.store import MEMORY
from counterfoil.infrastructure.verification import verify
from tests.postgres_server import Postgres

if TYPE_CHECKING:
    from tests.journal.conftest import Host, Processes

pytestmark = pytest.mark.contract("JRN-14")


def event(originator_id: UUID | str, version: int = 1, topic: str = "topic1", state: bytes = b"{}") -> StoredEvent:
    return StoredEvent(originator_id, version, topic, state)


# The library's own cases, on every kind of store.


class OnFile:
    """Where a case keeps its journal."""

    def create_recorder(self) -> JournalRecorder:
        folder = TemporaryDirectory()
        self.addCleanup(folder.cleanup)  # type: ignore[attr-defined]
        return self.on(f"{folder.name}/journal.sqlite")

    def on(self, url: str) -> JournalRecorder:
        core = Core(url)
        self.addCleanup(self._verify_and_close, core)  # type: ignore[attr-defined]
        return JournalRecorder(core)

    def _verify_and_close(self, core: Core) -> None:
        verification = core.read(verify)
        core.close()
        assert verification.agrees, verification


class InMemory(OnFile):
    def create_recorder(self) -> JournalRecorder:
        return self.on(MEMORY)


class OnPostgres(OnFile):
    @pytest.fixture(autouse=True)
    def _schemas(self, postgres: Postgres, new_schema: Callable[[], str]) -> None:
        self._postgres, self._new_schema = postgres, new_schema

    def create_recorder(self) -> JournalRecorder:
        return self.on(self._postgres.url(self._new_schema()))


FILE = pytest.mark.sqlite_only("the cases on a file")
MEMORY_ONLY = pytest.mark.sqlite_only("the cases in memory")
SCHEMA = pytest.mark.postgres_only("the cases in a schema")


@FILE
class TestRecorderOnFile(OnFile, ApplicationRecorderTestCase[JournalRecorder]):
    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


@MEMORY_ONLY
class TestRecorderInMemory(InMemory, ApplicationRecorderTestCase[JournalRecorder]):
    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


@SCHEMA
class TestRecorderOnPostgres(OnPostgres, ApplicationRecorderTestCase[JournalRecorder]):
    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


@FILE
class TestNoInterleavingOnFile(OnFile, NonInterleavingNotificationIDsBaseCase):
    pass


@MEMORY_ONLY
class TestNoInterleavingInMemory(InMemory, NonInterleavingNotificationIDsBaseCase):
    pass


@SCHEMA
class TestNoInterleavingOnPostgres(OnPostgres, NonInterleavingNotificationIDsBaseCase):
    pass


del ApplicationRecorderTestCase, NonInterleavingNotificationIDsBaseCase  # or pytest would collect the abstract cases


# What the cases leave open.


def test_no_event_of_the_journal_s_own_comes_with_those_of_the_library(core: Core) -> None:
    """Neither an opening nor its end, and no projection folds what it does not know."""
    recorder = JournalRecorder(core)

    assert [1, 2] == recorder.insert_events([event("a"), event("a", 2)])
    assert [3] == recorder.insert_events([event(uuid4(), 0)])
    assert core.read(lambda store: [row.type for row in store.events_after(0, 10)]) == ["topic1"] * 3
    verification = core.read(verify)
    assert verification.agrees
    assert {check.checked for check in verification.checks if check.name.startswith("projection")} == {0}


def test_a_taken_version_leaves_nothing_and_costs_the_neighbours_nothing(core: Core) -> None:
    recorder = JournalRecorder(core)
    recorder.insert_events([event("a")])

    with pytest.raises(IntegrityError):
        recorder.insert_events([event("b"), event("a")])
    with pytest.raises(IntegrityError):
        recorder.insert_events([event("c"), event("c")])
    assert recorder.insert_events([event("b")]) == [2]


@pytest.mark.sqlite_only("its writers queue for a lock on a file; tests/postgres stops the server")
def test_an_unavailable_store_is_told_in_the_words_of_the_library(host: Host) -> None:
    core = host.open(limits=Limits(busy_wait="20ms"))
    lock = AppendLock(side_file(host.path, "append"))
    assert lock.acquire(0)
    try:
        with pytest.raises(OperationalError):
            JournalRecorder(core).insert_events([event("a")])
    finally:
        lock.close()


def test_the_streams_of_the_journal_s_own_aggregates_take_nothing_else(core: Core, host: Host) -> None:
    admitted = host.admit(core, "e1")
    operation_id = admitted.admission.operation_id
    assert operation_id is not None

    with pytest.raises(ProgrammingError):
        JournalRecorder(core).insert_events([event(operation_id, 2)])
    assert "claimed" == host.claim(core, admitted).found


def test_events_of_both_are_read_in_one_order(core: Core, host: Host) -> None:
    recorder = JournalRecorder(core)
    uuid = uuid4()
    recorder.insert_events([event(uuid, topic="library:Topic")])
    operation = host.admit(core, "e1").admission.operation_id
    assert operation is not None

    notifications = recorder.select_notifications(start=1, limit=10)
    assert ["library:Topic", "opening.started/1", "opening.epoch_raised/1", "operation.admitted/1"] == [
        notification.topic for notification in notifications
    ]
    assert (uuid, operation) == (notifications[0].originator_id, notifications[-1].originator_id)
    assert [4] == [each.id for each in recorder.select_notifications(None, 10, topics=["operation.admitted/1"])]
    assert [] == recorder.select_notifications(None, 10, topics=["operation.admitted"])
    assert ["operation.admitted/1"] == [each.topic for each in recorder.select_events(operation)]
    assert 4 == recorder.max_notification_id()


# Following.


class Seen(POPOTrackingRecorder):
    """What a projection of the library has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def see(self, event: Any, tracking: Tracking) -> None:
        with self._database_lock:
            self._assert_tracking_uniqueness(tracking)
            self._insert_tracking(tracking)
            self.events.append(event)


class Watcher(Projection[Seen]):
    """A plain projection."""

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.see(domain_event, tracking)


class JournalApplication(Application[str]):
    """A plain application of the library whose recorder is a journal."""

    core: ClassVar[Core]

    def construct_recorder(self) -> ApplicationRecorder:
        return JournalRecorder(self.core)

    def construct_mapper(self) -> Mapper[str]:
        return JournalMapper(self.construct_transcoder())


def test_a_plain_projection_runner_follows_a_journal(core: Core, host: Host) -> None:
    """What was there, what comes while it runs, and what another application of the library appended."""
    JournalApplication.core = core
    host.turn(core, "before")
    with ProjectionRunner(application_class=JournalApplication, projection_class=Watcher, view_class=Seen) as runner:
        host.turn(core, "during")
        runner.wait(host.position(core), timeout=30)
        seen = runner.projection.view.events

    assert all(isinstance(each, JournalEvent) for each in seen)
    kinds = [type(each.event) for each in seen]
    assert (2, 2, 2) == tuple(kinds.count(kind) for kind in (OperationAdmitted, OperationSettled, ReplyDelivered))
    assert host.position(core) == len(seen)


def test_a_plain_notification_log_pages_through_a_journal(core: Core, host: Host) -> None:
    for number in range(5):
        host.turn(core, f"e{number}")
    log = LocalNotificationLog(JournalRecorder(core), section_size=7)

    ids: list[int] = []
    following: str | None = "1,7"
    while following:
        section = log[following]
        ids += [item.id for item in section.items]
        following = section.next_id
    assert list(range(1, host.position(core) + 1)) == ids
    assert ids[2:7] == [item.id for item in log.select(start=3, limit=5)]


def test_a_subscription_passes_over_what_its_topics_leave_out(core: Core, host: Host) -> None:
    recorder = JournalRecorder(core)
    with recorder.subscribe(topics=["wanted"]) as subscription:
        for number in range(3):
            host.turn(core, f"e{number}")
            recorder.insert_events([event("a", number + 1, "wanted")])
            assert (number + 1, "wanted") == ((found := next(subscription)).originator_version, found.topic)


def test_a_subscription_hears_of_other_processes(host: Host, processes: Processes) -> None:
    recorder = JournalRecorder(host.open())
    with recorder.subscribe() as subscription:
        recorder.insert_events([event("own")])
        assert 1 == next(subscription).id
        processes.run("core = Core(sys.argv[1]); run(core, message('e1')); core.close()", host.url)
        assert ["opening.started/1", "opening.epoch_raised/1", "operation.admitted/1", "opening.ended/1"] == [
            next(subscription).topic for _ in range(4)
        ]


def test_a_subscription_ends_with_the_journal(host: Host, tmp_path: Path) -> None:
    """It neither hangs nor keeps the journal."""
    core = host.open()
    subscription = JournalRecorder(core).subscribe()
    ended: list[BaseException] = []

    def follow() -> None:
        try:
            next(subscription)
        except BaseException as error:
            ended.append(error)

    with subscription:
        thread = threading.Thread(target=follow)
        thread.start()
        core.close()
        thread.join(30)
    assert ["Closed"] == [type(error).__name__ for error in ended]
    assert [] == core.engine.on_commit


class Dog(Aggregate):
    """An aggregate of the library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tricks: list[str] = []

    @happens("TrickAdded")
    def add_trick(self, trick: str) -> None:
        self.tricks.append(trick)


def test_applications_of_the_library_work_on_a_journal(core: Core) -> None:
    """Aggregates are saved and read again, and their versions guarded."""

    class Kennel(Application[UUID]):
        def construct_recorder(self) -> ApplicationRecorder:
            return JournalRecorder(core)

    app = Kennel()
    dog = Dog("Fido")
    dog.add_trick("roll over")
    app.save(dog)
    copies: Sequence[Dog] = [app.repository.get(dog.id), app.repository.get(dog.id)]
    for copy in copies:
        copy.add_trick("play dead")
    app.save(copies[0])
    with pytest.raises(IntegrityError):
        app.save(copies[1])
    found: Dog = app.repository.get(dog.id)
    assert ["roll over", "play dead"] == found.tricks
    app.close()
