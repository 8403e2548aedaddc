"""Whoever follows the positions, by pages or by a subscription, sees every event, whoever appends and however late it commits."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

import counterfoil
from counterfoil.infrastructure.recorder import JournalRecorder
from tests.postgres.hosts import GRANT, ROOM, inbound, message
from tests.postgres_server import Postgres

EACH = 250


def admit(url: str, writer: int) -> None:
    """Admit one message after the other, each by itself."""
    with counterfoil.open(url, limits=ROOM) as journal:
        for number in range(EACH):
            assert "accepted" == journal.admit(inbound(f"{writer}-{number}", f"{writer}-{number}"), GRANT).status


def admit_late(postgres: Postgres, url: str, writer: int) -> None:
    """Admit messages in transactions of a host's, several open at a time, committed in any order."""
    chance = Random(writer)
    with counterfoil.open(url, limits=ROOM) as journal:
        for first in range(0, EACH, 5):
            connections = [postgres.connect(autocommit=False) for _ in range(5)]
            for number, connection in enumerate(connections, first):
                with journal.within(connection) as tx:
                    tx.append(message(f"{writer}-{number}", f"{writer}-{number}"))
            time.sleep(chance.uniform(0, 0.01))
            chance.shuffle(connections)
            for connection in connections:
                connection.commit()
                connection.close()


@pytest.mark.contract("JRN-01")
def test_followers_see_every_event_in_order(postgres: Postgres, schema: str) -> None:
    url = postgres.url(schema)
    with counterfoil.open(url) as journal, ThreadPoolExecutor(8) as pool:
        recorder, end = JournalRecorder(journal.core), [0]

        def subscribe() -> list[int]:
            seen: list[int] = []
            with recorder.subscribe(gt=0) as subscription:
                while not end[0] or seen[-1] < end[0]:
                    seen.append(next(subscription).id)
            return seen

        def turn_pages() -> list[int]:
            seen = [0]
            while not end[0] or seen[-1] < end[0]:
                seen += [each.id for each in recorder.select_notifications(seen[-1] + 1, 7)]
            return seen[1:]

        following = [pool.submit(subscribe), pool.submit(turn_pages)]
        writers = [pool.submit(admit, url, writer) for writer in range(3)]
        writers += [pool.submit(admit_late, postgres, url, writer) for writer in (3, 4)]
        for writer in writers:
            writer.result(120)
        end[0] = recorder.max_notification_id() or 0
        journal.admit(inbound("last", "last"), GRANT)  # for whoever had seen the end before it was called that

        assert end[0] > 5 * EACH
        for follower in following:
            assert list(range(1, end[0] + 1)) == follower.result(60)[: end[0]]
