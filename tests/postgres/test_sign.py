"""
The sign of life of an opening on PostgreSQL, and what it hears: with processes that are killed, frozen and survived by their
children, and with connections that are cut, stall, and come back.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing

import orjson
import psycopg
import pytest

from counterfoil.domain.errors import Closed, JournalRefused, JournalUnavailable, NotAJournal
from counterfoil.infrastructure.postgres import sign as signs
from counterfoil.infrastructure.postgres.connecting import connect
from counterfoil.infrastructure.postgres.naming import Address, parse
from counterfoil.infrastructure.postgres.sign import ALL, Sign, channel, live_openings, lock_class
from tests.beside import running, said
from tests.postgres_server import Postgres, Server
from tests.proxy import Proxy

BUSY_US = 5_000_000
PATIENCE = 60


class Opening:
    """An opening of this process, whose losses are collected."""

    def __init__(self, address: Address) -> None:
        self.lost: list[int] = []
        self.is_lost = threading.Event()
        self.sign = Sign(address, busy_us=BUSY_US, on_lost=self._lose)

    def _lose(self, opening_id: int) -> None:
        self.lost.append(opening_id)
        self.is_lost.set()


class Journal:
    """A schema with openings."""

    def __init__(self, postgres: Postgres, schema: str, stack: ExitStack) -> None:
        self.postgres = postgres
        self.schema = schema
        self._stack = stack
        postgres.execute(f"CREATE SCHEMA {schema}")
        self.oid = int(postgres.execute("SELECT oid::bigint FROM pg_namespace WHERE nspname = %s", (schema,))[0][0])

    def opening(self, opening_id: int, *, proxy: Proxy | None = None) -> Opening:
        """Begin an opening; it ends with the test."""
        opening = Opening(parse(self.url(opening_id) if proxy is None else proxy.url(self.schema)))
        self._stack.callback(opening.sign.close)
        opening.sign.begin(opening_id)
        return opening

    def url(self, opening_id: int) -> str:
        return f"{self.postgres.url(self.schema)}&application_name={self.schema}-{opening_id}"

    def cut(self, opening_id: int) -> None:
        """End the session of an opening."""
        assert self.postgres.terminate_backends(f"{self.schema}-{opening_id}")

    def live(self, *opening_ids: int) -> set[int]:
        """Which of them others see alive."""
        with closing(connect(parse(self.postgres.url(self.schema)), purpose="reader", busy_us=BUSY_US)) as reader:
            return live_openings(reader, self.oid, opening_ids)

    def until_dead(self, opening_id: int) -> None:
        end = time.monotonic() + PATIENCE
        while self.live(opening_id):
            assert time.monotonic() < end
            time.sleep(0.01)

    def ring(self, *rings: tuple[int, str]) -> None:
        self.notify({"rings": rings})

    def notify(self, payload: object) -> None:
        text = payload if isinstance(payload, str) else orjson.dumps(payload).decode()
        self.postgres.execute("SELECT pg_notify(%s, %s)", (channel(self.oid), text))

    def beside(self, program: str, opening_id: int = 5) -> AbstractContextManager[subprocess.Popen[str]]:
        """Run a program in which an opening lives."""
        return running(PRELUDE + program, self.url(opening_id), opening_id)


@pytest.fixture
def journal(postgres: Postgres, schema: str) -> Iterator[Journal]:
    """A schema of this test's own."""
    with ExitStack() as stack:
        yield Journal(postgres, schema, stack)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign that asks its server again and again, and waits long for the answer."""
    monkeypatch.setattr(signs, "SILENT_S", 0.05)
    monkeypatch.setattr(signs, "ANSWER_S", 20.0)


def hear(sign: Sign) -> list[bytes]:
    """What is heard next; an interruption alone, as by what has begun, is none."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        heard = sign.hear(PATIENCE)
        if heard:
            return heard
    raise AssertionError("nothing was heard")


def until_lost(opening: Opening) -> None:
    """Hear, as the thread of an opening does, until it has lost its connection."""
    end = time.monotonic() + PATIENCE
    while not opening.is_lost.is_set():
        assert time.monotonic() < end
        opening.sign.hear(1.0)


PRELUDE = """
import multiprocessing, os, signal, subprocess, sys, threading, time, warnings
from counterfoil.domain.errors import ForkedError
from counterfoil.infrastructure.postgres.naming import parse
from counterfoil.infrastructure.postgres.sign import Sign
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
own = Sign(parse(sys.argv[1]), busy_us=5_000_000, on_lost=lambda opening_id: say(f"lost {opening_id}"))
own.begin(int(sys.argv[2]))
own.hear(0)
def say(word):
    sys.stdout.write(f"{word}\\n")
    sys.stdout.flush()
"""
LIVES = "say('lives'); sys.stdin.read()"


# Life.


@pytest.mark.contract("LCK-08")
def test_killed_process_is_dead_at_once(journal: Journal) -> None:
    with journal.beside(LIVES, 5) as process, journal.beside(LIVES, 6) as other:
        assert ("lives", "lives") == (said(process), said(other))
        assert {5, 6} == journal.live(4, 5, 6, 7)

        process.kill()
        journal.until_dead(5)

        assert {6} == journal.live(5, 6)


def test_frozen_process_lives(journal: Journal) -> None:
    """It may go on: its kernel answers for it."""
    with journal.beside(LIVES) as process:
        assert "lives" == said(process)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

        assert {5} == journal.live(5)


def test_opening_ends_when_it_is_closed(journal: Journal) -> None:
    opening, other = journal.opening(5), journal.opening(6)
    assert (5, {5, 6}) == (opening.sign.opening_id, journal.live(5, 6))

    opening.sign.close()
    opening.sign.close()
    journal.until_dead(5)

    assert ({6}, None, []) == (journal.live(5, 6), opening.sign.opening_id, opening.lost)
    assert 6 == other.sign.opening_id
    with pytest.raises(Closed):
        opening.sign.begin(7)
    with pytest.raises(Closed):
        opening.sign.hear(0)


def test_next_opening_of_a_sign_ends_the_one_before(journal: Journal) -> None:
    """Nothing is lost by it, and the same object hears for it."""
    opening = journal.opening(5)

    opening.sign.begin(6)
    journal.until_dead(5)
    journal.ring((5, "lk-5"), (6, "lk-6"))

    assert [b"lk-6"] == hear(opening.sign)
    assert (6, []) == (opening.sign.opening_id, opening.lost)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_journals_do_not_see_each_others_openings(journal: Journal, mode: str) -> None:
    """Nor locks of hosts, nor those who wait for the end of an opening, shared, for a moment."""
    function = "pg_advisory_lock" if mode == "exclusive" else "pg_advisory_lock_shared"
    with journal.postgres.connect() as host:
        host.execute(f"SELECT {function}(%s, 5)".encode(), (lock_class(journal.oid) + 1,))
        host.execute(f"SELECT {function}(%s::bigint)".encode(), ((journal.oid << 32) + 6,))
        if mode == "shared":
            host.execute(f"SELECT {function}(%s, 7)".encode(), (lock_class(journal.oid),))

        assert set() == journal.live(5, 6, 7)
        assert set() == journal.live()


@pytest.mark.parametrize(("oid", "first"), [(1, 1), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 - 1, -1)])
def test_oid_of_a_schema_is_half_a_lock(postgres: Postgres, oid: int, first: int) -> None:
    """PostgreSQL shows as an oid what a lock takes as a signed number."""
    assert first == lock_class(oid)
    with postgres.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(%s, 2147483647)", (first,))

        assert {2**31 - 1} == live_openings(holder, oid, [1, 2**31 - 1])  # type: ignore[arg-type]


def test_opening_that_lives_already_is_refused(journal: Journal) -> None:
    """A number is given once: the journal is another one than before."""
    one, other = journal.opening(5), Opening(parse(journal.url(6)))
    with closing(other.sign):
        with pytest.raises(JournalRefused, match="opening 5 lives already"):
            other.sign.begin(5)

        assert (5, None) == (one.sign.opening_id, other.sign.opening_id)
        other.sign.begin(6)


def test_who_waited_for_an_end_keeps_nobody_from_beginning(journal: Journal) -> None:
    opening = Opening(parse(journal.url(5)))
    with closing(opening.sign), journal.postgres.connect() as waiter:
        waiter.execute("SELECT pg_advisory_lock_shared(%s, 5)", (lock_class(journal.oid),))
        thread = threading.Thread(target=opening.sign.begin, args=(5,))
        thread.start()
        waiter.execute("SELECT pg_sleep(0.05)")
        waiter.execute("SELECT pg_advisory_unlock_all()")
        thread.join(PATIENCE)

        assert 5 == opening.sign.opening_id


def test_absent_schema_is_no_journal(postgres: Postgres, schema: str) -> None:
    with closing(Opening(parse(postgres.url(schema))).sign) as sign:
        with pytest.raises(NotAJournal, match="there is no such schema"):
            sign.begin(1)


def test_standby_tells_that_all_live(standby: Server) -> None:
    """It sees no locks of its primary; nobody is declared dead by one who cannot know."""
    with closing(connect(parse(standby.url("counterfoil")), purpose="reader", busy_us=BUSY_US)) as reader:
        assert {1, 2} == live_openings(reader, 1, [1, 2])


# Rings.


def test_rings_for_an_opening_are_heard_by_it_alone(journal: Journal) -> None:
    one, other = journal.opening(5), journal.opening(6)

    journal.ring((5, "lk-a"), (6, "lk-b"), (5, "lk-c"))

    assert [b"lk-a", b"lk-c"] == hear(one.sign)
    assert [b"lk-b"] == hear(other.sign)


def test_too_much_to_ring_for_is_heard_by_all(journal: Journal) -> None:
    one, other = journal.opening(5), journal.opening(6)

    journal.notify({"rings": "all"})

    assert [ALL] == hear(one.sign)
    assert [ALL] == hear(other.sign)


def test_longest_payload_is_heard(journal: Journal) -> None:
    opening = journal.opening(5)
    keys = [f"lk-{number:032x}" for number in range(180)]

    journal.ring(*((5, key) for key in keys))

    assert [key.encode() for key in keys] == hear(opening.sign)


def test_ten_thousand_rings_are_heard(journal: Journal) -> None:
    """Nothing is lost between the server and who hears, even if that does so late."""
    opening = journal.opening(5)
    journal.postgres.execute(
        'SELECT pg_notify(%s, format(\'{"rings": [[5, "lk-%%s"]]}\', n)) FROM generate_series(1, 10000) AS n',
        (channel(journal.oid),),
    )
    heard: list[bytes] = []
    while len(heard) < 10_000:
        heard += hear(opening.sign)

    assert [f"lk-{number}".encode() for number in range(1, 10_001)] == heard


@pytest.mark.parametrize(
    "payload",
    ["", "no JSON", "{}", "7", "[]", '{"rings": 7}', '{"rings": [[5]]}', '{"rings": [[5, 7]]}', '{"rings": [[5, "a", 1]]}'],
)
def test_what_is_no_ring_is_not_heard(journal: Journal, payload: str) -> None:
    """Anybody may notify; it costs nothing that is rung afterwards."""
    opening = journal.opening(5)

    journal.notify(payload)
    journal.ring((5, "lk-a"))

    assert [b"lk-a"] == hear(opening.sign)


def test_hearing_ends_in_time_or_when_interrupted(journal: Journal) -> None:
    opening = journal.opening(5)
    opening.sign.hear(0)  # that it has begun is an interruption

    assert [] == opening.sign.hear(0)
    assert [] == opening.sign.hear(-1.0)
    assert [] == opening.sign.hear(0.01)

    opening.sign.interrupt()

    assert [] == opening.sign.hear(None)

    heard: list[list[bytes]] = []
    thread = threading.Thread(target=lambda: heard.append(opening.sign.hear(None)))
    thread.start()
    opening.sign.interrupt()
    thread.join(PATIENCE)

    assert [[]] == heard


def test_hearing_begins_before_the_opening(journal: Journal) -> None:
    """The thread that hears need not know when there is a connection."""
    opening = Opening(parse(journal.url(5)))
    heard: list[list[bytes]] = []
    with closing(opening.sign):
        thread = threading.Thread(target=lambda: heard.append(hear(opening.sign)))
        thread.start()
        opening.sign.begin(5)
        journal.ring((5, "lk-a"))
        thread.join(PATIENCE)

    assert [[b"lk-a"]] == heard


def test_closing_ends_hearing(journal: Journal) -> None:
    opening = journal.opening(5)
    heard: list[list[bytes]] = []
    entered = threading.Event()

    def hear_until_closed() -> None:
        opening.sign.hear(0)
        entered.set()
        heard.append(opening.sign.hear(None))

    thread = threading.Thread(target=hear_until_closed)
    thread.start()
    entered.wait(PATIENCE)
    opening.sign.close()
    thread.join(PATIENCE)

    assert [[]] == heard
    assert not thread.is_alive()
    assert [] == opening.lost


# Loss.


@pytest.mark.contract("LCK-08")
def test_session_that_was_ended_is_told(journal: Journal) -> None:
    """At once, once, and with the opening that it was; others are dead and alive as before."""
    opening, other = journal.opening(5), journal.opening(6)

    journal.cut(5)
    until_lost(opening)

    assert ([5], None) == (opening.lost, opening.sign.opening_id)
    assert {6} == journal.live(5, 6)
    assert ([], []) == (opening.sign.hear(0.01), other.sign.hear(0.01))
    assert ([5], []) == (opening.lost, other.lost)


@pytest.mark.contract("LCK-08")
def test_another_opening_begins_after_a_loss(journal: Journal) -> None:
    """With the same object, for which the same thread goes on hearing."""
    opening = journal.opening(5)
    for number in (6, 7):
        journal.cut(5)  # under the name that its address has
        until_lost(opening)
        opening.is_lost.clear()

        opening.sign.begin(number)
        journal.ring((number - 1, "lk-before"), (number, "lk-now"))

        assert [b"lk-now"] == hear(opening.sign)
        assert {number} == journal.live(5, 6, 7)
    assert [5, 6] == opening.lost


@pytest.mark.contract("LCK-08")
def test_restart_of_the_server_is_told(own_postgres: Server, schema: str) -> None:
    """While it is away nothing begins, and afterwards another opening does."""
    with ExitStack() as stack:
        journal = Journal(own_postgres, f"{schema}_own", stack)
        opening = journal.opening(5)

        own_postgres.stop(immediate=True)
        try:
            until_lost(opening)
            with pytest.raises(JournalUnavailable):
                opening.sign.begin(6)
        finally:
            own_postgres.start()
        opening.sign.begin(6)

        assert ({6}, [5]) == (journal.live(5, 6), opening.lost)
        own_postgres.drop(journal.schema)


@pytest.mark.contract("LCK-08")
def test_connection_that_is_cut_on_its_way_is_told(journal: Journal, proxy: Proxy) -> None:
    opening = journal.opening(5, proxy=proxy)

    proxy.drop()
    until_lost(opening)

    journal.until_dead(5)
    assert [5] == opening.lost


@pytest.mark.contract("LCK-08")
def test_connection_that_stalls_is_told(journal: Journal, proxy: Proxy, hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that it is cut: it is asked for a word, and gives none."""
    opening = journal.opening(5, proxy=proxy)
    opening.sign.hear(0.2)
    monkeypatch.setattr(signs, "ANSWER_S", 0.2)

    proxy.stall()
    until_lost(opening)
    proxy.resume()

    assert ([5], None) == (opening.lost, opening.sign.opening_id)
    journal.until_dead(5)


def test_client_knows_before_the_server_gives_its_leases_on() -> None:
    """Each goes by what it has heard of the other, which is the same but for the way."""
    assert signs.SILENT_S + signs.ANSWER_S < 10


def test_connection_that_comes_back_in_time_is_not_lost(journal: Journal, proxy: Proxy, hasty: None) -> None:
    """What was asked is answered late, and rings come through."""
    opening = journal.opening(5, proxy=proxy)
    proxy.stall()
    opening.sign.hear(0.3)
    opening.sign.hear(0.3)
    journal.ring((5, "lk-a"))
    proxy.resume()

    assert [b"lk-a"] == hear(opening.sign)
    assert ([], 5) == (opening.lost, opening.sign.opening_id)


def test_silence_of_a_healthy_server_is_no_loss(journal: Journal, hasty: None) -> None:
    """It is asked for a word each time, and nobody is woken by the answer."""
    opening = journal.opening(5)
    opening.sign.hear(0)
    started = time.monotonic()

    assert [] == opening.sign.hear(0.5)
    assert 0.5 <= time.monotonic() - started
    asked = journal.postgres.execute(
        "SELECT query, state_change > backend_start + interval '0.2 s' FROM pg_stat_activity WHERE application_name = %s",
        (f"{journal.schema}-5",),
    )
    assert [("", True)] == asked
    journal.ring((5, "lk-a"))
    assert [b"lk-a"] == hear(opening.sign)
    assert [] == opening.lost


def test_answer_that_lies_there_is_found_however_late(
    journal: Journal, proxy: Proxy, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was frozen for longer than it waits looks before it takes its server for lost."""
    opening = journal.opening(5, proxy=proxy)
    opening.sign.hear(0)
    proxy.stall()
    opening.sign.hear(0.3)  # asks, and gets no answer
    line = opening.sign._line
    assert line is not None
    proxy.resume()
    assert select.select([line.number], [], [], PATIENCE)[0]
    monkeypatch.setattr(signs, "ANSWER_S", 0.0)
    assert line.is_overdue(time.monotonic())

    assert [] == opening.sign.hear(0)
    assert ([], 5) == (opening.lost, opening.sign.opening_id)


def test_what_is_told_may_begin_the_next_and_may_fail(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """It is called by the thread that hears, outside of any lock; what it raises is named by its class."""
    told: list[int] = []

    def lose(opening_id: int) -> None:
        told.append(opening_id)
        sign.begin(opening_id + 1)
        raise ValueError("s3cret")

    sign = Sign(parse(journal.url(5)), busy_us=BUSY_US, on_lost=lose)
    with closing(sign):
        sign.begin(5)
        journal.cut(5)
        while not told:
            sign.hear(1.0)

        assert ({6}, [5], 6) == (journal.live(5, 6), told, sign.opening_id)
    assert ["telling of the loss of an opening raised ValueError"] == [
        each.message for each in caplog.records if each.levelname == "ERROR"
    ]
    assert "s3cret" not in caplog.text


def test_what_is_told_may_close_the_sign(journal: Journal) -> None:
    told: list[int] = []

    def lose(opening_id: int) -> None:
        told.append(opening_id)
        sign.close()

    sign = Sign(parse(journal.url(5)), busy_us=BUSY_US, on_lost=lose)
    sign.begin(5)
    journal.cut(5)
    while not told:
        assert [] == sign.hear(1.0)

    assert [5] == told
    with pytest.raises(Closed):
        sign.hear(0)


def test_begins_and_losses_beside_a_thread_that_hears(journal: Journal) -> None:
    """As a writer thread begins what the thread of the opening hears for, again and again."""
    opening = Opening(parse(journal.url(1)))
    heard: list[bytes] = []

    def listen() -> None:
        try:
            while True:
                heard.extend(opening.sign.hear(None))
        except Closed:
            return

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        for number in range(1, 21):
            opening.sign.begin(number)
            journal.ring((number, f"lk-{number}"))
            end = time.monotonic() + PATIENCE
            while f"lk-{number}".encode() not in heard:
                assert time.monotonic() < end
                time.sleep(0.001)
            if number % 2:
                opening.is_lost.clear()
                journal.cut(1)
                assert opening.is_lost.wait(PATIENCE)
    finally:
        opening.sign.close()
        thread.join(PATIENCE)

    assert list(range(1, 21, 2)) == opening.lost
    assert not thread.is_alive()


# Forks.

CHILDREN = {
    "fork": "if os.fork() == 0: signal.pause()",
    "multiprocessing fork": "multiprocessing.get_context('fork').Process(target=signal.pause).start()",
    "multiprocessing spawn": "multiprocessing.get_context('spawn').Process(target=time.sleep, args=(600,)).start()",
    "program": "subprocess.Popen((sys.executable, '-c', 'import signal; signal.pause()'), close_fds=False)",
}


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
@pytest.mark.contract("JRN-15", "LCK-08")
def test_child_that_lives_on_keeps_nothing(journal: Journal, child: str) -> None:
    with journal.beside(f"{child}\n{LIVES}") as process:
        assert "lives" == said(process)
        assert {5} == journal.live(5)

        process.kill()
        process.wait()
        journal.until_dead(5)

        os.killpg(process.pid, 0)  # the child is there still


FORK = """
thread = threading.Thread(target=lambda: [say(key.decode()) for _ in range(20) for key in own.hear(10)], daemon=True)
thread.start()
told, tell = os.pipe()
if os.fork() == 0:
    for call in (lambda: own.hear(0), lambda: own.begin(6)):
        try:
            call()
        except ForkedError:
            os.write(tell, b"refused ")
    own.interrupt()
    own.close()
    os.close(tell)
    del own
    signal.pause()
os.close(tell)
with open(told) as child_says:
    say(child_says.read())
sys.stdin.read()
"""


@pytest.mark.contract("JRN-15")
def test_forked_child_is_refused_and_the_parent_hears_on(journal: Journal) -> None:
    """Even if the fork comes while another thread hears."""
    with journal.beside(FORK) as process:
        assert "refused refused" == said(process)

        journal.ring((5, "lk-a"))

        assert "lk-a" == said(process)
        assert {5} == journal.live(5)


def test_process_that_may_open_nothing_more_is_told_so(journal: Journal) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(JournalRefused, match="may open nothing more"):
            Opening(parse(journal.url(5)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_let_go_of_ends(journal: Journal) -> None:
    """A host that forgets to close its journal keeps no key for ever."""
    opening = Opening(parse(journal.url(5)))
    opening.sign.begin(5)
    assert {5} == journal.live(5)

    del opening
    gc.collect()

    journal.until_dead(5)


def test_reading_life_fails_as_the_driver_does(journal: Journal) -> None:
    """Who asks has words of its own for it."""
    with closing(connect(parse(journal.url(9)), purpose="reader", busy_us=BUSY_US)) as reader:
        journal.cut(9)
        with pytest.raises(psycopg.OperationalError):
            live_openings(reader, journal.oid, [5])
