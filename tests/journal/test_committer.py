"""The committer: callers in one group cost each other nothing, and nothing ends its thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from counterfoil.domain.errors import Closed, JournalUnavailable
from counterfoil.domain.event import Header
from counterfoil.domain.limits import Limits
from counterfoil.infrastructure.commands.admission import Admitted
from counterfoil.infrastructure.commands.recording import RecordForeign
from counterfoil.infrastructure.commands.turn import Claim, Claimed
from counterfoil.infrastructure.core import Core
from counterfoil.infrastructure.unit import Unit
from counterfoil.infrastructure.verification import verify
from counterfoil.projections.queues import Queues
from tests.commits import Pause, around_commits, one_group
from tests.sqlite import sqlite_engine

if TYPE_CHECKING:
    from tests.journal.conftest import Host, Processes


@dataclass
class Does:
    """A command that does as it is told."""

    what: Callable[[Unit], Any]

    def run(self, unit: Unit) -> Any:
        return self.what(unit)


def raises(error: BaseException) -> Callable[[Unit], Any]:
    def run(unit: Unit) -> Any:
        RecordForeign([("half-done", 1, "topic", b"")]).run(unit)
        raise error

    return run


def commits_of(core: Core) -> list[int]:
    """Return a list to which each commit of an opening adds how many events it appends."""
    seen: list[int] = []

    def seeing(unit: Unit, commit: Callable[[], bool]) -> bool:
        seen.append(len(unit.changes.events))
        return commit()

    around_commits(core, seeing)
    return seen


@pytest.mark.contract("JRN-04")
def test_many_callers_share_one_commit(core: Core, host: Host) -> None:
    host.admit(core, "first")
    commits = commits_of(core)
    with one_group(core):
        futures = [core.committer.submit(host.message(f"e{number}", f"c{number}")) for number in range(80)]
    answers = [future.result(30) for future in futures]

    assert [80] == [events for events in commits if events]
    assert 80 == len({answer.admission.position for answer in answers})
    assert core.read(verify).agrees


@pytest.mark.contract("JRN-04")
async def test_a_cancelled_caller_costs_its_neighbours_nothing(core: Core, host: Host) -> None:
    """Cancelled before it was picked up its command is withdrawn; each neighbour gets its own answer."""
    with one_group(core):
        futures = [core.committer.submit_async(host.message(f"e{number}")) for number in range(10)]
        futures[3].cancel()
        thread = core.committer.submit(host.message("of a thread"))
        cancelled = core.committer.submit(host.message("of another thread"))
        assert cancelled.cancel()
    answers = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 30)

    assert [3] == [number for number, answer in enumerate(answers) if not isinstance(answer, Admitted)]
    assert "accepted" == thread.result(30).admission.status
    assert 10 == host.types(core).count("operation.admitted")


@pytest.mark.contract("JRN-04")
async def test_what_a_cancelled_caller_acquired_is_given_back(core: Core, host: Host) -> None:
    """Cancelled after its claim was picked up: the claim is settled and the lease released, so the next entry can be claimed."""
    admitted = host.admit(core, "e1")
    following = host.admit(core, "e2")
    assert admitted.route is not None
    pause = Pause()
    claim = Claim(admitted.route, admitted.position)

    @dataclass
    class SlowClaim:
        def run(self, unit: Unit) -> Claimed:
            pause.run(unit)
            return claim.run(unit)

        def give_back(self, answer: Claimed) -> Any:
            return claim.give_back(answer)

    future = core.committer.submit_async(SlowClaim())
    assert await asyncio.to_thread(pause.begun.wait, 30)
    future.cancel()
    pause.go.set()
    with pytest.raises(asyncio.CancelledError):
        await future
    while "operation.settled" not in host.types(core):  # each look lets the loop run what the writer has sent it
        await asyncio.wrap_future(core.committer.submit(Does(lambda unit: None)))
    assert "claimed" == (await core.committer.submit_async(Claim(admitted.route, following.position))).found


@pytest.mark.contract("JRN-04")
def test_a_loop_that_has_ended_costs_the_neighbours_nothing(core: Core, host: Host) -> None:
    """And what its caller acquired is given back."""
    admitted = host.admit(core, "e1")
    assert admitted.route is not None
    claim = Claim(admitted.route, admitted.position)

    async def leave() -> None:
        core.committer.submit_async(claim)

    with one_group(core):
        asyncio.run(leave())
        neighbour = core.committer.submit(host.message("e2", "c2"))
    assert "accepted" == neighbour.result(30).admission.status
    host.run(core, Does(lambda unit: None))
    assert "operation.settled" in host.types(core)
    assert "accepted" == host.admit(core, "e3").admission.status


class Stop(BaseException):
    """Not an exception that anybody catches."""


@pytest.mark.contract("JRN-04")
@pytest.mark.parametrize("error", [ValueError("no"), Stop(), KeyboardInterrupt(), SystemExit(3), StopIteration()])
def test_a_command_that_raises_costs_its_neighbours_nothing(core: Core, host: Host, error: BaseException) -> None:
    """What it had appended until then is undone, and the positions are the neighbours'."""
    with one_group(core):
        before = core.committer.submit(host.message("e1"))
        failing = core.committer.submit(Does(raises(error)))
        after = core.committer.submit(host.message("e2"))
    with pytest.raises(type(error)):
        failing.result(30)
    first, second = before.result(30).admission, after.result(30).admission
    assert first.position is not None
    assert second.position == first.position + 1
    assert "topic" not in host.types(core)
    assert core.read(verify).agrees


@pytest.mark.contract("JRN-04")
async def test_an_error_reaches_a_caller_in_a_loop(core: Core) -> None:
    with pytest.raises(ValueError, match="no"):
        await core.committer.submit_async(Does(raises(ValueError("no"))))
    with pytest.raises(Stop):
        await core.committer.submit_async(Does(raises(Stop())))
    with pytest.raises(RuntimeError):
        await core.committer.submit_async(Does(raises(StopIteration())))


@pytest.mark.contract("JRN-04")
def test_a_command_that_raises_in_its_fold_leaves_nothing(core: Core, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an event, nor a row of a projection that was folded before, nor a state that is kept in memory."""
    host.admit(core, "e1")
    real = Queues.fold

    def fold(self: Queues, row: Any, recorded: Any) -> Any:
        if recorded.originator_version == 1 and broken:
            raise ArithmeticError
        return real(self, row, recorded)

    monkeypatch.setattr(Queues, "fold", fold)
    broken = True
    with one_group(core):
        failing = core.committer.submit(host.message("e2", "c2"))
        neighbour = core.committer.submit(Does(lambda unit: unit.head.position))
    with pytest.raises(ArithmeticError):
        failing.result(30)
    assert 3 == neighbour.result(30)
    broken = False
    answer = host.admit(core, "e2", "c2").admission
    assert (4, False) == (answer.position, answer.duplicate)
    assert core.read(verify).agrees


@pytest.mark.contract("JRN-04")
def test_a_group_that_clashes_is_taken_one_by_one(core: Core, host: Host) -> None:
    """Only the guilty one fails."""
    host.run(core, RecordForeign([("theirs", 1, "topic", b"")]))

    def clash(unit: Unit) -> None:
        unit.write_event("theirs", 1, "topic", 0, Header(), b"", None)

    with one_group(core):
        before = core.committer.submit(host.message("e1"))
        guilty = core.committer.submit(Does(clash))
        after = core.committer.submit(host.message("e2"))
    with pytest.raises(JournalUnavailable):
        guilty.result(30)
    assert ["accepted"] * 2 == [future.result(30).admission.status for future in (before, after)]
    assert core.read(verify).agrees


def test_a_callback_that_raises_ends_nothing(core: Core, host: Host) -> None:
    """A future's callbacks run on the writer's thread."""

    def callback(future: concurrent.futures.Future[Any]) -> None:
        raise Stop

    with one_group(core):
        core.committer.submit(host.message("e1")).add_done_callback(callback)
        neighbour = core.committer.submit(host.message("e2"))
    assert "accepted" == neighbour.result(30).admission.status
    assert "accepted" == host.admit(core, "e3").admission.status


def test_giving_back_what_cannot_be_given_back_ends_nothing(core: Core, host: Host) -> None:
    @dataclass
    class Odd:
        def run(self, unit: Unit) -> None:
            pass

        def give_back(self, answer: None) -> None:
            raise Stop

    async def leave() -> None:
        core.committer.submit_async(Odd())

    with one_group(core):
        asyncio.run(leave())
    assert "accepted" == host.admit(core, "e1").admission.status


# A store that fails.


class Failing:
    """A connection whose COMMIT fails, or whose answer to it is lost."""

    def __init__(self, connection: sqlite3.Connection, *, landed: bool) -> None:
        self._connection = connection
        self._landed = landed
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT" and self.armed:
            self.armed = False
            if self._landed:
                self._connection.execute(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *values)


@pytest.mark.sqlite_only("the connection whose COMMIT fails is SQLite's; tests/postgres cuts the wire instead")
@pytest.mark.contract("ADM-07")
@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_is_lost_is_looked_for(core: Core, host: Host, landed: bool) -> None:
    """What landed is answered as such; what did not is unavailable, all of it is undone, and the next commit is good."""
    host.admit(core, "e1")
    before = host.position(core)
    failing = Failing(sqlite_engine(core)._writer, landed=landed)
    sqlite_engine(core)._writer = failing  # type: ignore[assignment]
    with one_group(core):
        futures = [core.committer.submit(host.message(f"e{number}")) for number in (2, 3)]
        arm = core.committer.submit(Does(lambda unit: setattr(failing, "armed", True)))
    if landed:
        assert [before + 1, before + 2] == [future.result(30).admission.position for future in futures]
    else:
        for future in (*futures, arm):
            with pytest.raises(JournalUnavailable, match="nothing of it is there"):
                future.result(30)
        assert before == host.position(core)
    repeated = [host.admit(core, f"e{number}").admission for number in (2, 3)]
    assert [landed, landed] == [answer.duplicate for answer in repeated]
    assert core.read(verify).agrees


@pytest.mark.sqlite_only("a pragma makes the disk of one journal full")
@pytest.mark.contract("ADM-07")
def test_a_full_disk_is_unavailable_and_a_good_commit_follows(core: Core, host: Host) -> None:
    """The file may not grow (`max_page_count`), then it may again."""
    host.admit(core, "e1")
    before = host.position(core)
    count = sqlite_engine(core)._writer.execute("PRAGMA page_count").fetchone()[0]
    sqlite_engine(core)._writer.execute(f"PRAGMA max_page_count = {count}")
    with one_group(core):
        futures = [core.committer.submit(host.message(f"f{number}", text="x" * 30_000)) for number in range(3)]
    for future in futures:
        with pytest.raises(JournalUnavailable, match="the disk is full"):
            future.result(30)
    assert before == host.position(core)

    sqlite_engine(core)._writer.execute("PRAGMA max_page_count = 1000000")
    answer = host.admit(core, "f0").admission
    assert (before + 1, False) == (answer.position, answer.duplicate)
    assert core.read(verify).agrees


@pytest.mark.sqlite_only("files may not grow in that process")
@pytest.mark.contract("ADM-07")
def test_a_commit_that_fails_at_the_disk_leaves_nothing(host: Host, processes: Processes) -> None:
    """The kernel refuses the WAL its next pages (`RLIMIT_FSIZE`) while COMMIT writes them; then it allows them again."""
    said = processes.run(
        """
        import resource
        core = Core(sys.argv[1], limits=LIMITS)
        run(core, message("e1"))
        size = os.stat(sys.argv[1] + "-wal").st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            run(core, message("e2"))
        except JournalUnavailable as error:
            say("unavailable")
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        answer = run(core, message("e2")).admission
        say(answer.status, answer.duplicate, answer.position)
        core.close()
        """,
        host.path,
    )
    assert ["unavailable", "accepted False 4"] == said.splitlines()
    assert host.open().read(verify).agrees


def test_a_closed_journal_finishes_what_is_queued_and_takes_nothing_more(core: Core, host: Host) -> None:
    with one_group(core):
        futures = [core.committer.submit(host.message(f"e{number}")) for number in range(5)]
        closing = threading.Thread(target=core.close)
        closing.start()
    closing.join(30)
    assert ["accepted"] * 5 == [future.result(30).admission.status for future in futures]
    with pytest.raises(Closed):
        core.committer.submit(host.message("late"))
    with pytest.raises(Closed):
        core.read(lambda store: None)
    with pytest.raises(Closed):
        asyncio.run(core.read_async(lambda store: None))
    core.close()


@pytest.mark.sqlite_only("its writers queue for locks on files")
@pytest.mark.contract("LIM-01")
@pytest.mark.parametrize("lock", ["the queue of writers", "SQLite's own"])
def test_limits_that_come_later_say_how_long_a_command_waits(host: Host, lock: str) -> None:
    """A runtime's limits become those of the opening, which was made to wait five minutes."""
    core, other = host.open(limits=Limits(busy_wait="300s")), host.open()
    host.admit(core, "e1")
    core.use_limits(Limits(busy_wait="50ms"))
    with closing(sqlite3.connect(host.path, isolation_level=None)) as tool:
        if lock == "SQLite's own":
            tool.execute("BEGIN IMMEDIATE")
        else:
            assert sqlite_engine(other)._beside.queue.acquire(1_000_000)
        with pytest.raises(JournalUnavailable):
            host.run(core, host.message("e2"))
    sqlite_engine(other)._beside.queue.release()

    assert "accepted" == host.admit(core, "e2").admission.status
