"""Holders and waiters in processes that are killed, frozen and forked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import counterfoil
from counterfoil import JournalUnavailable
from counterfoil.domain.hold import checked_terms
from counterfoil.domain.ids import lock_id
from counterfoil.infrastructure.commands.holds import Granted, Hold
from tests.conftest import FreshURL
from tests.engines import Engine
from tests.locks.conftest import PATIENCE, Children, events, free, in_thread, wait_until
from tests.rows import rows

HOLDER = """
journal = counterfoil.open(sys.argv[1])
lock = journal.lock("jobs", ttl=sys.argv[2])
with lock.hold("k") as lease:
    say(lease.fence)
    hear()
say("let go")
"""
"""Hold a key until a line comes."""

WAITER = """
journal = counterfoil.open(sys.argv[1])
lock = journal.lock("jobs", ttl=sys.argv[2])
with lock.hold("k", wait="10m") as lease:
    say(lease.fence)
    hear()
"""

ASYNC_WAITER = """
async def main():
    async with counterfoil.open_async(sys.argv[1]) as journal:
        async with journal.lock("jobs").hold("k", wait="10m") as lease:
            say(lease.fence)
            hear()
asyncio.run(main())
"""


@pytest.fixture
def lock(journal_url: str) -> Iterator[counterfoil.Lock]:
    with counterfoil.open(journal_url) as journal:
        yield journal.lock("jobs")


ROUNDS = 6
"""How often a key changes hands."""


def in_line(lock: counterfoil.Lock, count: int) -> None:
    wait_until(lambda: count == len(lock.waiters()))


# Rung.


@pytest.mark.contract("LCK-04")
def test_who_waits_in_another_process_is_rung(journal_url: str, children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by itself within the hour, so each of these changes of hands is heard of."""
    for module in ("listening", "waiting"):
        monkeypatch.setattr(f"counterfoil.infrastructure.{module}.LOOK_NS", 3_600 * 10**9)
    other = children(
        """
        from counterfoil.infrastructure import listening, waiting
        listening.LOOK_NS = waiting.LOOK_NS = 3_600 * 10**9
        with counterfoil.open(sys.argv[1]) as journal:
            lock = journal.lock("jobs", ttl="1h")
            for _ in range(int(sys.argv[2])):
                with lock.hold("k", wait="10m"):
                    say("has it")
                    while len(lock.waiters()) < 1:
                        time.sleep(0.005)
        """,
        journal_url,
        ROUNDS,
    )
    assert other.hear() == "has it"
    with counterfoil.open(journal_url) as journal:
        lock = journal.lock("jobs", ttl="1h")
        for number in range(1, ROUNDS + 1):
            with lock.hold("k", wait=timedelta(seconds=PATIENCE)) as lease:
                assert lease.fence
                if number < ROUNDS:
                    in_line(lock, 1)
            if number < ROUNDS:
                assert other.hear() == "has it"
    other.ended()


# Killed.


@pytest.mark.contract("LCK-15")
def test_an_opening_that_begins_gives_up_the_places_of_ended_ones(journal_url: str, children: Children) -> None:
    """Of every key, also of those that nobody asks for any more."""

    def places() -> int:
        return int(rows(journal_url, "SELECT count(*) FROM cf_waiter")[0][0])

    with counterfoil.open(journal_url) as journal, journal.lock("jobs").hold("k"):
        dead, alive = children(WAITER, journal_url, "1h"), children(WAITER, journal_url, "1h")
        in_line(journal.lock("jobs"), 2)
        dead.kill()
        assert places() == 2
        with counterfoil.open(journal_url) as begins, begins.lock("others").hold("another"):
            assert places() == 1
    assert alive.hear()


@pytest.mark.contract("LCK-08")
def test_a_key_is_free_as_soon_as_its_holder_is_killed(lock: counterfoil.Lock, children: Children, journal_url: str) -> None:
    """Whatever the ttl; the next fence is larger."""
    holder = children(HOLDER, journal_url, "1h")
    fence = int(holder.hear())
    assert not free(lock, "k")
    holder.kill()
    with lock.try_hold("k") as lease:
        assert lease is not None
        assert lease.fence > fence

    assert ["granted", "expired opening_ended", "granted", "released"] == events(lock, "k")


@pytest.mark.contract("LCK-04", "LCK-08")
@pytest.mark.parametrize("waiter", [WAITER, ASYNC_WAITER], ids=["thread", "asyncio"])
def test_who_waits_has_the_key_as_soon_as_its_holder_is_killed(
    lock: counterfoil.Lock, children: Children, journal_url: str, waiter: str
) -> None:
    """It hears of the death itself: nothing is committed that would wake it."""
    holder = children(HOLDER, journal_url, "1h")
    fence = int(holder.hear())
    waits = children(waiter, journal_url, "30s")
    in_line(lock, 1)
    killed = time.monotonic()
    holder.kill()
    assert int(waits.hear()) > fence
    print(f"\n{1_000 * (time.monotonic() - killed):.1f} ms after the kill")


@pytest.mark.contract("LCK-08")
def test_a_death_is_seen_though_nobody_can_be_watched(
    lock: counterfoil.Lock, children: Children, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process has no descriptor left."""
    monkeypatch.setattr(lock._core.engine, "watch_death", lambda opening_id, tell: lambda: None)
    holder = children(HOLDER, journal_url, "1h")
    holder.hear()
    answer = in_thread(lambda: lock.hold("k", wait="1m").__enter__().fence)
    in_line(lock, 1)
    holder.kill()
    assert answer()


@pytest.mark.contract("LCK-15")
def test_a_waiter_that_is_killed_is_stepped_over(lock: counterfoil.Lock, children: Children, journal_url: str) -> None:
    with lock.hold("k"):
        dead, alive = children(WAITER, journal_url, "1h"), None
        in_line(lock, 1)
        alive = children(WAITER, journal_url, "1h")
        in_line(lock, 2)
        dead.kill()
        assert [1] == [waiter.place for waiter in lock.waiters()]
    assert alive.hear()
    assert [] == lock.waiters()


@pytest.mark.contract("LCK-08", "JRN-15")
def test_a_holder_that_has_forked_and_is_killed_holds_nothing(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """The child lives on, with a copy of all that its parent had."""
    holder = children(
        """
        journal = counterfoil.open(sys.argv[1])
        with journal.lock("jobs", ttl="1h").hold("k") as lease:
            if os.fork() == 0:
                for touch in (lease.check, lease.extend, lease.release, journal.lock):
                    try:
                        touch(*("jobs",) * (touch == journal.lock))
                        say("not refused")
                    except ForkedError:
                        pass
                say("child")
                signal.pause()
            signal.pause()
        """,
        journal_url,
    )
    assert holder.hear() == "child"
    assert not free(lock, "k")
    holder.kill()
    assert free(lock, "k")


@pytest.mark.contract("LCK-08")
def test_a_program_that_outlives_the_holder_holds_nothing(lock: counterfoil.Lock, children: Children, journal_url: str) -> None:
    """Started with all descriptors."""
    holder = children(
        """
        with counterfoil.open(sys.argv[1]) as journal, journal.lock("jobs", ttl="1h").hold("k"):
            program = "import time; print('started', flush=True); time.sleep(600)"
            started = subprocess.Popen((sys.executable, "-c", program), close_fds=False)
            signal.pause()
        """,
        journal_url,
    )
    assert holder.hear() == "started"
    assert not free(lock, "k")
    holder.kill()
    assert free(lock, "k")


# Frozen.


@pytest.mark.contract("LCK-05", "LCK-06", "LCK-08", "LCK-10")
def test_a_frozen_holder_has_the_key_until_its_ttl_and_learns_when_it_wakes(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """Its late release touches nobody."""
    holder = children(
        """
        with counterfoil.open(sys.argv[1]) as journal:
            try:
                with journal.lock("jobs", ttl="3s").hold("k") as lease:
                    say("holds")
                    hear()
            except LeaseLost as lost:
                say(lost.reason, lease.release())
        """,
        journal_url,
    )
    assert holder.hear() == "holds"
    holder.freeze()
    assert not free(lock, "k")
    with lock.hold("k", wait="1m") as lease:
        assert ["granted", "expired ttl", "granted"] == events(lock, "k")
        holder.wake()
        holder.say()
        assert holder.hear() == "ttl False"
        lease.check()
        assert not in_thread(lambda: free(lock, "k"))()


@pytest.mark.contract("LCK-06")
def test_a_frozen_holder_in_an_event_loop_is_cancelled_when_it_wakes(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    holder = children(
        """
        async def main():
            async with counterfoil.open_async(sys.argv[1]) as journal:
                try:
                    async with journal.lock("jobs", ttl="1s").hold("k"):
                        say("holds")
                        await asyncio.sleep(600)
                except LeaseLost as lost:
                    say(lost.reason)
        asyncio.run(main())
        """,
        journal_url,
    )
    assert holder.hear() == "holds"
    holder.freeze()
    with lock.hold("k", wait="1m"):
        holder.wake()
        assert holder.hear() == "ttl"
    holder.ended()


@pytest.mark.contract("LCK-04", "LCK-15")
def test_a_frozen_waiter_is_stepped_over_and_served_when_it_wakes(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """It costs those behind it no more than its own ttl, once."""
    with lock.hold("k"):
        frozen = children(WAITER, journal_url, "1s")
        in_line(lock, 1)
        following = [children(WAITER, journal_url, "30s")]
        in_line(lock, 2)
        frozen.freeze()
    assert following[0].hear()
    following.append(children(WAITER, journal_url, "30s"))
    in_line(lock, 2)
    following[0].say()
    assert following[1].hear()
    frozen.wake()
    in_line(lock, 1)
    following[1].say()
    assert frozen.hear()


@pytest.mark.contract("LCK-04", "LCK-15")
def test_a_frozen_waiter_keeps_nobody_from_a_key_that_is_free(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """After its offer has passed the key is had by whoever asks, in line or not; and once awake it has its turn."""
    with lock.hold("k"):
        frozen = children(WAITER, journal_url, "3s")
        in_line(lock, 1)
        frozen.freeze()
    assert not free(lock, "k")
    wait_until(lambda: free(lock, "k"))
    for _ in range(3):
        assert free(lock, "k")
        with lock.hold("k", wait="0s"):
            pass
    with lock.hold("k"):
        frozen.wake()
        # It looks at the key when it wakes, and is offered it like anybody from then on.
        wait_until(lambda: [(None,)] == rows(journal_url, "SELECT offered_until FROM cf_waiter"))
    assert frozen.hear()


@pytest.mark.sqlite_only("on PostgreSQL no process is inside a commit of the server's, and a frozen one stops nobody")
@pytest.mark.contract("LCK-16")
def test_a_process_that_is_frozen_in_a_commit_keeps_all_from_asking(children: Children, journal_url: str) -> None:
    """They are told so after `busy_wait`, and leave nothing behind; when it goes on, everything does."""
    with counterfoil.open(journal_url, limits=counterfoil.Limits(busy_wait="100ms")) as journal:
        lock = journal.lock("jobs")
        with lock.hold("mine"):
            frozen = children(
                """
                with counterfoil.open(sys.argv[1]) as journal:
                    class Freeze:
                        def run(self, unit):
                            unit.start_opening()
                            say("frozen")
                            os.kill(os.getpid(), signal.SIGSTOP)
                            hear()  # the signal may reach another thread first
                    journal.core.committer.submit(Freeze()).result()
                    say("went on")
                """,
                journal_url,
            )
            assert frozen.hear() == "frozen"
            for ask in (lambda: lock.try_hold("k"), lambda: lock.hold("k", wait="1h"), lambda: lock.hold("mine", wait="1h")):
                with pytest.raises(JournalUnavailable):
                    in_thread(ask().__enter__)()
        # The release was not taken either, and the block ended all the same.
        assert ["mine"] == [holder.key for holder in lock.holders()]
        frozen.wake()
        frozen.say()
        assert frozen.hear() == "went on"
        frozen.ended()
        wait_until(lambda: not lock.holders() and not lock.waiters())
        assert free(lock, "k")
        assert free(lock, "mine")
        assert ["granted", "released"] * 2 == events(lock, "mine")
        assert journal.verify().agrees


@pytest.mark.contract("LCK-16")
def test_a_process_that_is_frozen_outside_of_a_commit_keeps_nobody(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    frozen = children(HOLDER, journal_url, "1h")
    frozen.hear()
    frozen.freeze()
    for _ in range(20):
        assert free(lock, "other")
    assert not free(lock, "k")
    frozen.wake()
    frozen.say()
    assert frozen.hear() == "let go"
    assert free(lock, "k")


# Files beside the journal.


@pytest.mark.sqlite_only("PostgreSQL has no files beside the journal")
@pytest.mark.contract("LCK-08")
def test_whatever_opens_and_closes_the_side_files_ends_no_lease(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """In the holder's own process, where a classic lock would be gone; without bells all goes on, a little later."""
    other = children(
        """
        with counterfoil.open(sys.argv[1]) as journal:
            lock = journal.lock("jobs", ttl="1h")
            with lock.hold("k"), lock.hold("first"):
                taker = threading.Thread(target=lambda: Context().run(lock.hold("first", wait="10m").__enter__))
                taker.start()
                while not lock.waiters():
                    time.sleep(0.01)
                touched = 0
                for file in Path(sys.argv[1]).parent.iterdir():
                    if file.name.endswith(("-live", "-append", "-epoch", "-head")):
                        file.read_bytes()
                        with file.open("r+b"):
                            touched += 1
                    elif "-bell-" in file.name:
                        file.unlink()
                        touched += 1
                say(touched)
                hear()
        """,
        journal_url,
    )
    assert int(other.hear()) >= 4
    assert not free(lock, "k")
    answer = in_thread(lambda: lock.hold("k", wait="1m").__enter__().fence)
    in_line(lock, 2)
    other.say()
    assert answer()


# Forks.


@pytest.mark.contract("JRN-15", "LCK-01", "LCK-08")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_opens_the_journal_for_itself(
    children: Children, journal_url: str, tmp_path: Path, method: str
) -> None:
    """It contends like anybody, waits for its parent, and what it inherits of the parent's lease is refused."""
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing, os, sys, warnings
import counterfoil
warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)

def child(path, method, pipe):
    inherited = globals().get("lease")
    if method == "fork":
        for touch in (inherited.check, inherited.release, inherited.extend):
            try:
                touch()
                pipe.send("not refused")
            except counterfoil.ForkedError:
                pass
    with counterfoil.open(path) as own:
        lock = own.lock("jobs")
        with lock.try_hold("k") as refused:
            pipe.send(refused is None)
        pipe.send("asks")
        with lock.hold("k", wait="1m") as mine:
            pipe.send(mine.fence)

def main():
    global lease
    path, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with counterfoil.open(path) as journal:
        lock = journal.lock("jobs")
        with lock.hold("k") as lease:
            here, there = context.Pipe()
            process = context.Process(target=child, args=(path, method, there))
            process.start()
            print(here.recv(), here.recv(), flush=True)
            while not lock.waiters():
                pass
        print(here.recv() > lease.fence, flush=True)
        process.join(30)
        with lock.try_hold("k") as again:
            print(again is not None, process.exitcode, flush=True)

if __name__ == "__main__":
    main()
"""
    )
    child = children(
        f"import runpy; sys.argv[1:] = {[journal_url, method]!r}; runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    assert ["True asks", "True", "True 0"] == [child.hear() for _ in range(3)]


@pytest.mark.contract("JRN-15")
def test_a_child_that_leaves_its_parents_block_is_refused_and_changes_nothing(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    """In both colours; it does not wait for a lock that a thread of the parent had."""
    holder = children(
        """
        journal = counterfoil.open(sys.argv[1])
        def work():
            with journal.lock("jobs", ttl="1h").hold("k"):
                with journal.core.waiting.listener.threads._guard, journal.core.waiting._guard:
                    child = os.fork()
                if child:
                    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                    hear()
        try:
            work()
        except ForkedError:
            os._exit(7)
        """,
        journal_url,
    )
    assert holder.hear() == "7"
    assert not free(lock, "k")
    holder.say()
    holder.ended()
    assert ["granted", "released"] == events(lock, "k")[:2]


# Many.


@pytest.mark.contract("LCK-01", "LCK-04")
def test_fifty_waiters_in_five_processes_come_in_the_order_in_which_they_asked(
    lock: counterfoil.Lock, children: Children, journal_url: str
) -> None:
    waits = """
    async def main():
        async with counterfoil.open_async(sys.argv[1]) as journal:
            lock = journal.lock("jobs")
            async def wait(name):
                async with lock.hold("k", wait="10m") as lease:
                    say(name, lease.fence)
            tasks = []
            say("ready")
            while name := await asyncio.to_thread(hear):
                tasks.append(asyncio.create_task(wait(name)))
            await asyncio.gather(*tasks)
    asyncio.run(main())
    """
    started = [children(waits, journal_url) for _ in range(5)]
    assert ["ready"] * 5 == [child.hear() for child in started]
    with lock.hold("k"):
        for number in range(50):
            started[number * 7 % 5].say(str(number))
            in_line(lock, number + 1)
        for child in started:
            child.say("")
    said = [child.hear().split() for child in started for _ in range(10)]
    for child in started:
        child.ended()

    fences = {int(name): int(fence) for name, fence in said}
    assert list(range(50)) == sorted(fences, key=lambda name: fences[name])
    assert ["granted", "released"] * 51 == [event.happened for event in lock.history("k", limit=200).rows]


@pytest.mark.contract("LCK-01", "LCK-02", "LCK-05")
def test_of_two_that_take_an_expired_key_one_gets_it(
    lock: counterfoil.Lock, children: Children, journal_url: str, engine: Engine
) -> None:
    """A thousand times on SQLite, two processes at once; each fence is larger than all before."""
    core, rounds = lock._core, 1_000 if engine == "sqlite" else 250
    terms = checked_terms("jobs", "1h", "1ms", None)
    granted = [
        core.committer.submit(Hold(terms, lock_id(core.engine.journal_key, "jobs", str(key)), str(key), b"%16d" % key, False))
        for key in range(rounds)
    ]
    first = []
    for future in granted:
        answer = future.result()
        assert isinstance(answer, Granted)
        first.append(answer.fence)
    takes = """
    with counterfoil.open(sys.argv[1]) as journal:
        lock = journal.lock("jobs")
        kept = []
        say("ready")
        while key := hear():
            holding = lock.try_hold(key)
            lease = holding.__enter__()
            kept.append(holding)
            say(0 if lease is None else lease.fence)
        os._exit(0)  # with all of them held
    """
    takers = [children(takes, journal_url) for _ in range(2)]
    assert ["ready"] * 2 == [taker.hear() for taker in takers]
    fences = []
    for key in range(rounds):
        for taker in takers:
            taker.say(str(key))
        one, other = (int(taker.hear()) for taker in takers)
        assert (one == 0) != (other == 0)
        fences.append(one or other)

    assert sorted(set(first + fences)) == first + fences
    assert ["granted", "expired max_hold", "granted"] == events(lock, 0)
    for taker in takers:
        taker.say("")
        taker.ended()


# More than one journal in a process.


@pytest.mark.contract("LCK-01", "LCK-04", "LCK-08")
def test_two_openings_of_one_journal_are_two_holders(lock: counterfoil.Lock, journal_url: str) -> None:
    """One waits for the other, hears of its release, and of its end."""
    other = counterfoil.open(journal_url)
    theirs = other.lock("jobs", ttl="1h")
    held = theirs.hold("k")
    in_thread(held.__enter__)()
    assert not free(lock, "k")
    answer = in_thread(lambda: lock.hold("k", wait="1m").__enter__())
    in_line(lock, 1)
    in_thread(lambda: held.__exit__(None, None, None))()
    lease = answer()
    lease.release()
    with theirs.hold("k", wait="1m"):
        pass
    in_thread(theirs.hold("l").__enter__)()
    last = in_thread(lambda: lock.hold("l", wait="1m").__enter__().fence)
    in_line(lock, 1)
    other.close()
    assert last() > lease.fence


@pytest.mark.contract("LCK-01")
def test_two_journals_have_nothing_to_do_with_each_other(lock: counterfoil.Lock, fresh_url: FreshURL) -> None:
    """The same lock and key in both, held by one thread at once."""
    with counterfoil.open(fresh_url()) as other, lock.hold("k") as one, other.lock("jobs").hold("k") as two:
        one.check()
        two.check()
        assert one.lease_id != two.lease_id
        assert timedelta(0) < two.remaining
    assert ["granted", "released"] == events(lock, "k")
