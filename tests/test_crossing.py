"""Forked children that open a journal of their own on a file that their parent has open. Each program runs in a process apart."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import counterfoil
from counterfoil.infrastructure.sqlite import crossing
from counterfoil.infrastructure.sqlite.verifying import verify_file

pytestmark = pytest.mark.sqlite_only("it is about descriptors of files that a fork carries over")

PATIENCE = 60.0
"""Seconds after which a program fails that should have ended long ago."""

PRELUDE = """
import gc, multiprocessing, os, signal, sys, threading, time, warnings
import counterfoil
from counterfoil.infrastructure.sqlite import crossing
warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
path = sys.argv[1]

def say(*words):
    print(*words, flush=True)

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def put(journal, word):
    journal.transact(lambda tx: tx.execute("INSERT INTO words VALUES (?)", (word,)))

def refused(path):
    try:
        counterfoil.open(path)
    except counterfoil.ForkedError:
        return True
    return False

def opened():
    journal = counterfoil.open(path)
    journal.transact(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS words (word TEXT)"))
    return journal

class Told:
    "What one process waits for and another tells."
    def __init__(self):
        self.out, self.into = os.pipe()
    def tell(self):
        os.write(self.into, b".")
    def wait(self):
        os.read(self.out, 1)
"""

Run = Callable[..., list[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def run(path: Path) -> Run:
    """Run a program on the journal to its end, and return the lines that it and its children said."""

    def run(body: str, *arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(path), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "" == done.stderr
        return done.stdout.splitlines()

    return run


def words(path: Path) -> list[str]:
    """What stands in the table of the programs, in order; the journal agrees with its history."""
    assert verify_file(path).agrees
    with counterfoil.open(path) as journal:
        rows = journal.transact(lambda tx: tx.execute("SELECT word FROM words ORDER BY word").rows)
    return [word for (word,) in rows]


@pytest.mark.contract("JRN-15", "JRN-03", "JRN-09")
@pytest.mark.parametrize("end", ["closes", "is killed"])
def test_what_a_child_commits_outlives_its_parent(run: Run, path: Path, end: str) -> None:
    """Whoever closes the file then is not the last one, and leaves the log to the child; the child itself is killed at last."""
    said = run(
        """
        begun, over = Told(), Told()
        parent = os.fork()
        if parent == 0:
            journal = opened()
            with journal.lock("jobs").hold("k"):
                pass
            if os.fork() == 0:
                own = counterfoil.open(path)
                put(own, "before")
                begun.tell()
                over.wait()
                for number in range(3):
                    put(own, f"after {number}")
                say(os.path.exists(path + "-wal"))
                os.kill(os.getpid(), signal.SIGKILL)
            begun.wait()
            if sys.argv[2] == "closes":
                journal.close()
            os.kill(os.getpid(), signal.SIGKILL)
        ended(parent)
        counterfoil.open(path).close()
        over.tell()
        """,
        end,
    )
    assert ["True"] == said
    assert ["after 0", "after 1", "after 2", "before"] == words(path)


@pytest.mark.contract("JRN-15", "LCK-01", "JRN-09")
@pytest.mark.parametrize("end", ["closes", "is killed"])
def test_a_key_that_a_child_holds_has_one_holder_when_its_parent_ends(run: Run, end: str) -> None:
    said = run(
        """
        holds, over = Told(), Told()
        parent = os.fork()
        if parent == 0:
            journal = opened()
            child = os.fork()
            if child == 0:
                own = counterfoil.open(path)
                with own.lock("jobs", ttl="1h").hold("k") as lease:
                    put(own, "first")
                    holds.tell()
                    over.wait()
                    own.transact(lambda tx: tx.execute("INSERT INTO words VALUES ('second')"), guard=lease)
                say("held")
                os._exit(0)
            holds.wait()
            if sys.argv[2] == "closes":
                journal.close()
            os.kill(os.getpid(), signal.SIGKILL)
        ended(parent)
        with counterfoil.open(path) as other, other.lock("jobs").try_hold("k") as second:
            say("free" if second else "taken")
        with counterfoil.open(path) as other:
            over.tell()
            with other.lock("jobs").hold("k", wait="1m"):
                pass
            say(*(event.happened for event in other.lock("jobs").history("k").rows))
            say(*(row[0] for row in other.transact(lambda tx: tx.execute("SELECT word FROM words").rows)))
        """,
        end,
    )
    assert {"taken", "held", "granted released granted released", "first second"} == set(said)


@pytest.mark.contract("JRN-15")
def test_a_fork_waits_for_a_call_that_is_under_way(run: Run, path: Path) -> None:
    """So that the child can open the journal; in the parent, calls that come meanwhile wait for the fork."""
    said = run(
        """
        journal = opened()
        inside = threading.Event()
        def body(tx):
            inside.set()
            time.sleep(0.3)
            tx.execute("INSERT INTO words VALUES ('parent')")
        thread = threading.Thread(target=journal.transact, args=(body,))
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            with counterfoil.open(path) as own:
                put(own, "child")
            os._exit(3)
        thread.join()
        put(journal, "parent again")
        say(ended(child))
        """
    )
    assert ["3"] == said
    assert ["child", "parent", "parent again"] == words(path)


@pytest.mark.contract("JRN-15", "JRN-03")
def test_a_child_of_a_fork_in_the_middle_of_a_long_call_is_refused_the_file(run: Run, path: Path) -> None:
    """At once and for good, and so are its children; other journals it can open. Its end undoes nothing of the parent's."""
    said = run(
        """
        crossing.FORK_SECONDS = 0.2
        journal = opened()
        inside, forked = threading.Event(), threading.Event()
        def body(tx):
            for number in range(300):
                tx.execute("INSERT INTO words VALUES (?)", (f"{number:03} " + "x" * 4_000,))
            inside.set()
            forked.wait()
        thread = threading.Thread(target=journal.transact, args=(body,))
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            say(refused(path), refused(path))
            counterfoil.open(path + "-other").close()
            grandchild = os.fork()
            if grandchild == 0:
                say(refused(path))
                os._exit(0)
            ended(grandchild)
            del journal, body, thread
            gc.collect()
            sys.exit(3)  # Python ends as it always does
        say(ended(child))
        forked.set()
        thread.join()
        put(journal, "still")
        child = os.fork()  # nothing is under way any more
        if child == 0:
            put(counterfoil.open(path), "tail")
            os._exit(0)
        say(ended(child))
        """
    )
    assert ["True True", "True", "3", "0"] == said
    found = words(path)
    assert 302 == len(found)
    assert ["still", "tail"] == found[-2:]


@pytest.mark.contract("JRN-15")
def test_a_body_that_forks_goes_on_in_the_parent_alone(run: Run, path: Path) -> None:
    said = run(
        """
        journal = opened()
        def body(tx):
            tx.execute("INSERT INTO words VALUES ('before')")
            child = os.fork()
            if child == 0:
                try:
                    tx.execute("INSERT INTO words VALUES ('child')")
                except counterfoil.ForkedError:
                    say("no statement", refused(path))
                os._exit(4)
            say(ended(child))
            tx.execute("INSERT INTO words VALUES ('parent')")
        journal.transact(body)
        put(journal, "still")
        """
    )
    assert ["no statement True", "4"] == said
    assert ["before", "parent", "still"] == words(path)


@pytest.mark.contract("JRN-15")
@pytest.mark.parametrize("place", ["file", ":memory:"])
def test_a_child_that_leaves_a_snapshot_of_its_parents_touches_nothing(run: Run, place: str) -> None:
    """Nor does it wait for the pool, which another thread had; the parent reads on in its snapshot."""
    said = run(
        """
        journal = opened() if sys.argv[2] == "file" else counterfoil.open(":memory:")
        core = journal.core
        child = None
        with core.engine.reading() as store:
            store.head()
            pool = core.engine._readers
            locked, done = threading.Event(), threading.Event()
            def have():
                if pool is None:
                    locked.set()
                else:
                    with pool._guard:
                        locked.set()
                        done.wait()
            thread = threading.Thread(target=have)
            thread.start()
            locked.wait()
            child = os.fork()
            if child:
                say(ended(child))
                done.set()
                thread.join()
                store.head()
        if child == 0:
            try:
                journal.position()
            except counterfoil.ForkedError:
                say(sys.argv[2] == ":memory:" or refused(path))
                counterfoil.open(":memory:").close()
                sys.exit(5)
        say(journal.position() >= 0)
        """,
        place,
    )
    assert ["True", "5", "True"] == said


@pytest.mark.contract("JRN-15", "JRN-09", "LCK-01", "JRN-03")
def test_children_of_a_busy_parent_work_on_the_file_like_anybody(run: Run, path: Path) -> None:
    """Eight threads admit, read and hold keys while it forks, in a thread too; what a child has committed is there afterwards."""
    said = run(
        """
        person = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
        grant = counterfoil.Grant(identity=person, aliases=["helper"])
        def admit(journal, event):
            inbound = counterfoil.Inbound(connection="tg", conversation="c", actor="ann", event_id=event, text="hello")
            journal.transact(lambda tx: tx.append(counterfoil.Admit(inbound, grant)))

        def work(name, stop):
            number = 0
            while not stop.is_set():
                number += 1
                if name % 4 == 0:
                    admit(journal, f"{name}-{number}")
                elif name % 4 == 1:
                    journal.position()
                else:
                    with journal.lock("jobs").hold(name % 4, wait="1m"):
                        pass

        def child(name):
            try:
                journal.position()
            except counterfoil.ForkedError:
                pass
            own = counterfoil.open(path)
            with own.lock("jobs").hold("shared", wait="1m") as lease:
                own.transact(lambda tx: tx.execute("INSERT INTO words VALUES (?)", (name,)), guard=lease)
            with own.lock("jobs").hold(3, wait="1m"):
                admit(own, name)
            own.position()
            os.kill(os.getpid(), signal.SIGKILL)  # what it has committed needs no end

        journal = opened()
        stop = threading.Event()
        threads = [threading.Thread(target=work, args=(name, stop)) for name in range(8)]
        for thread in threads:
            thread.start()
        context = multiprocessing.get_context("fork")
        processes = []
        def start(first):
            for number in range(first, first + 5):
                processes.append(context.Process(target=child, args=(f"child {number}",)))
                processes[-1].start()
        forker = threading.Thread(target=start, args=(5,))
        forker.start()
        start(0)
        forker.join()
        for process in processes:
            process.join(30)
        stop.set()
        for thread in threads:
            thread.join()
        say(*(process.exitcode for process in processes))
        journal.close()
        """
    )
    assert [" ".join(["-9"] * 10)] == said
    assert [f"child {number}" for number in range(10)] == words(path)


@pytest.mark.contract("JRN-15")
def test_no_child_waits_for_a_mutex_that_a_thread_of_its_parent_had(run: Run) -> None:
    """SQLite has some of its own, for journals in memory too."""
    said = run(
        """
        busy = counterfoil.open(":memory:")
        stop = threading.Event()
        def churn(key):
            while not stop.is_set():
                with busy.lock("jobs").hold(key):
                    pass
                counterfoil.open(":memory:").close()
        threads = [threading.Thread(target=churn, args=(key,)) for key in range(6)]
        for thread in threads:
            thread.start()
        codes = set()
        for _ in range(60):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                own = counterfoil.open(":memory:")
                with own.lock("jobs").hold("k"):
                    own.position()
                os._exit(0)
            codes.add(ended(child))
        stop.set()
        for thread in threads:
            thread.join()
        say(codes)
        """
    )
    assert ["{0}"] == said


@pytest.mark.contract("JRN-15", "JRN-03")
def test_each_generation_opens_for_itself(run: Run, path: Path) -> None:
    """Those before it end one after the other, the eldest first."""
    run(
        """
        journal = opened()
        put(journal, "generation 0")
        over = [Told() for _ in range(4)]
        last = Told()
        for generation in range(1, 4):
            child = os.fork()
            if child:
                over[generation].wait()
                journal.close()
                if generation == 1:
                    last.wait()
                os._exit(0)
            journal = counterfoil.open(path)
            put(journal, f"generation {generation}")
            over[generation].tell()
            time.sleep(0.2)
            put(journal, f"generation {generation} again")
        counterfoil.open(path).close()
        put(journal, "at last")
        last.tell()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    generations = [f"generation {number}{again}" for number in range(4) for again in ("", " again") if number or not again]
    assert ["at last", *generations] == words(path)


def test_a_fork_that_fails_leaves_the_gate_open(run: Run) -> None:
    said = run(
        """
        import resource
        journal = counterfoil.open(":memory:")
        journal.transact(lambda tx: tx.execute("CREATE TABLE words (word TEXT)"))
        if os.geteuid() == 0:
            os.setuid(65534)  # root may have as many processes as it likes
        resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
        try:
            os.fork()
        except OSError as error:
            say(type(error).__name__)
        signal.alarm(5)
        put(journal, "goes on")
        say(journal.transact(lambda tx: tx.execute("SELECT word FROM words").rows)[0][0])
        """
    )
    assert ["BlockingIOError", "goes on"] == said


# The gate.


def test_while_a_thread_forks_no_other_goes_in() -> None:
    gate, began, went_in = crossing.Gate(), threading.Event(), threading.Event()

    def go_in() -> None:
        began.set()
        with gate.inside():
            went_in.set()

    thread = threading.Thread(target=go_in)
    gate.before()
    with gate.inside():  # the thread that forks may: others hook into forks too
        thread.start()
        began.wait(PATIENCE)
        assert not went_in.wait(0.2)
    gate.after_in_parent()
    assert went_in.wait(PATIENCE)
    thread.join()


def test_a_thread_that_is_inside_may_go_in_again_while_another_waits_to_fork() -> None:
    gate, inside, again = crossing.Gate(), threading.Event(), threading.Event()

    def stay() -> None:
        with gate.inside():
            inside.set()
            while not gate.forking:
                pass
            with gate.inside():
                again.set()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait(PATIENCE)
    gate.before()
    assert again.is_set()
    assert not gate.threads
    gate.after_in_parent()
    thread.join()


def test_a_stay_ends_with_the_generator_that_is_never_finished() -> None:
    """Also when another thread collects it."""
    gate = crossing.Gate()

    def read() -> Iterator[int]:
        with gate.inside():
            yield 1

    reading = [read()]
    next(reading[0])
    assert [1] == list(gate.threads.values())
    thread = threading.Thread(target=reading.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert not gate.threads
