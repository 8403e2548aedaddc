"""
One summary for each chat at a time, by workers of which one stalls: it is stopped past its ttl, another takes the chat over and
writes, and what the first wants to write when it wakes is refused. It is the tutorial of the README, with real processes.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import counterfoil
from tests.rows import rows, spelled

if TYPE_CHECKING:
    from tests.front.conftest import Processes

PATIENCE: Final = 60.0
"""Seconds after which a test fails that waits for what should have come within a few."""

ELSEWHERE: Final = """
    import sqlite3

    def keep_elsewhere(path, summary, lease):
        with sqlite3.connect(path) as database:
            changed = database.execute(
                "UPDATE chats SET summary = ?, summary_fence = ? WHERE id = 'chat-1' AND summary_fence < ?",
                (summary, lease.fence_text, lease.fence_text),
            ).rowcount
        database.close()
        print("elsewhere", changed, flush=True)
"""

ASYNC: Final = (
    ELSEWHERE
    + """
    import asyncio, sys, counterfoil

    async def main(url, elsewhere, ttl, statement):
        async with counterfoil.open_async(url) as journal:
            lock = journal.lock("summaries", ttl=ttl)
            try:
                async with lock.try_hold("chat-1") as lease:
                    if lease is None:
                        return print("somebody else writes it", flush=True)
                    print("holding", flush=True)
                    summary = await asyncio.to_thread(sys.stdin.readline)

                    async def save(tx):
                        await tx.execute(statement, (summary.strip(),))

                    await journal.transact(save, guard=lease)
                    print("written", flush=True)
            except counterfoil.LeaseLost as error:
                print("lost", error.reason, flush=True)
                summary = "late"
            keep_elsewhere(elsewhere, summary.strip(), lease)

    asyncio.run(main(*sys.argv[1:]))
"""
)

SYNC: Final = (
    ELSEWHERE
    + """
    import sys, counterfoil

    def main(url, elsewhere, ttl, statement):
        with counterfoil.open(url) as journal:
            lock = journal.lock("summaries", ttl=ttl)
            try:
                with lock.try_hold("chat-1") as lease:
                    if lease is None:
                        return print("somebody else writes it", flush=True)
                    print("holding", flush=True)
                    summary = sys.stdin.readline()

                    def save(tx):
                        tx.execute(statement, (summary.strip(),))

                    try:
                        journal.transact(save, guard=lease)
                    except counterfoil.LeaseLost:
                        print("refused", flush=True)
                        raise
                    print("written", flush=True)
            except counterfoil.LeaseLost as error:
                print("lost", error.reason, flush=True)
            keep_elsewhere(elsewhere, summary.strip(), lease)

    main(*sys.argv[1:])
"""
)

COLOURS = pytest.mark.parametrize(
    ("worker", "late"),
    [(ASYNC, ["lost ttl", "elsewhere 0"]), (SYNC, ["refused", "lost ttl", "elsewhere 0"])],
    ids=["async", "sync"],
)


class Chats:
    """A journal with a table of the host's, and a database elsewhere."""

    def __init__(self, url: str, folder: Path, processes: Processes) -> None:
        self.journal, self.elsewhere = url, str(folder / "elsewhere.sqlite")
        self._processes = processes
        with counterfoil.open(self.journal) as journal:
            journal.transact(make_chats)
        with closing(sqlite3.connect(self.elsewhere)) as database, database:
            database.execute("CREATE TABLE chats (id TEXT PRIMARY KEY, summary TEXT, summary_fence TEXT NOT NULL DEFAULT '')")
            database.execute("INSERT INTO chats (id) VALUES ('chat-1')")

    def start(self, worker: str, ttl: str = "1h") -> subprocess.Popen[str]:
        statement = spelled(self.journal, "UPDATE chats SET summary = ? WHERE id = 'chat-1'")
        return self._processes.start(worker, self.journal, self.elsewhere, ttl, statement)

    def finish(self, worker: subprocess.Popen[str], model_says: str) -> list[str]:
        """Let a worker have its model's answer, and return what it says until it ends."""
        assert worker.stdin is not None
        worker.stdin.write(f"{model_says}\n")
        worker.stdin.flush()
        return self._processes.finish(worker).splitlines()

    def freeze(self, worker: subprocess.Popen[str]) -> None:
        """Stop a process, and not inside a commit, where it would stop every writer (LCK-16)."""
        give_up = time.monotonic() + PATIENCE
        while True:
            worker.send_signal(signal.SIGSTOP)
            try:
                with counterfoil.open(self.journal, limits=counterfoil.Limits(busy_wait="1s")) as journal:
                    journal.transact(lambda tx: tx.execute("SELECT 1"))
                return
            except counterfoil.JournalUnavailable:
                worker.send_signal(signal.SIGCONT)
                assert time.monotonic() < give_up
                time.sleep(0.05)  # let it go on to the end of its commit

    def takes_over(self, worker: str) -> subprocess.Popen[str]:
        """Start workers until one gets the chat."""
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            process = self.start(worker)
            if "holding" == said(process):
                return process
            self._processes.finish(process)
        raise AssertionError("nobody got the chat, whose holder is frozen")

    @property
    def summaries(self) -> tuple[str, str]:
        """What stands in the journal's database, and elsewhere."""
        ((here,),), ((elsewhere,),) = (rows(each, "SELECT summary FROM chats") for each in (self.journal, self.elsewhere))
        return here, elsewhere

    @property
    def history(self) -> list[str]:
        with counterfoil.open(self.journal, readonly=True) as journal:
            events = journal.lock("summaries").history("chat-1").rows
        return [event.happened + (f" {event.reason}" if event.reason else "") for event in events]


def make_chats(tx: counterfoil.Tx) -> None:
    tx.execute("CREATE TABLE chats (id TEXT PRIMARY KEY, summary TEXT)")
    tx.execute("INSERT INTO chats (id) VALUES ('chat-1')")


def said(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


@pytest.fixture
def chats(journal_url: str, tmp_path: Path, processes: Processes) -> Chats:
    return Chats(journal_url, tmp_path, processes)


@pytest.mark.contract("LCK-02", "LCK-05", "LCK-06", "LCK-12")
@COLOURS
def test_a_worker_that_comes_back_late_writes_nothing(chats: Chats, worker: str, late: list[str]) -> None:
    """Neither under its guard, nor elsewhere, where its fence is compared; what the other wrote stands."""
    stalled = chats.start(worker, "3s")
    assert "holding" == said(stalled)
    chats.freeze(stalled)
    other = chats.takes_over(worker)
    assert ["written", "elsewhere 1"] == chats.finish(other, "of the other")
    stalled.send_signal(signal.SIGCONT)

    assert late == chats.finish(stalled, "late")
    assert ("of the other", "of the other") == chats.summaries
    assert ["granted", "expired ttl", "granted", "released"] == chats.history


@pytest.mark.contract("LCK-01", "LCK-04")
@COLOURS
def test_one_worker_at_a_time_writes_a_summary(chats: Chats, worker: str, late: list[str]) -> None:
    """A second one does not wait for a model that takes longer than its ttl; the lease is renewed meanwhile."""
    first = chats.start(worker, "3s")
    assert "holding" == said(first)
    time.sleep(3.5)  # longer than the ttl: the holder is alive and renews
    assert "somebody else writes it" == said(chats.start(worker))

    assert ["written", "elsewhere 1"] == chats.finish(first, "of the first")
    assert ("of the first", "of the first") == chats.summaries
    assert ["granted", "released"] == chats.history


@pytest.mark.contract("LCK-08")
@COLOURS
def test_a_worker_that_is_killed_leaves_its_chat_at_once(chats: Chats, worker: str, late: list[str]) -> None:
    """The next one gets the chat, and need not wait for a ttl."""
    killed = chats.start(worker)
    assert "holding" == said(killed)
    killed.kill()
    killed.wait()
    other = chats.takes_over(worker)

    assert ["written", "elsewhere 1"] == chats.finish(other, "of the other")
    assert ["granted", "expired opening_ended", "granted", "released"] == chats.history
