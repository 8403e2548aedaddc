"""Hosts that have tables of their own in the database of a journal, and transactions that join the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

import counterfoil
from counterfoil.infrastructure.postgres.naming import quoted
from tests.postgres_server import Postgres

PERSON = counterfoil.Identity(tenant="acme", user="ann", principal="ann", verified=True)
GRANT = counterfoil.Grant(identity=PERSON, aliases=["helper"])
ROOM = counterfoil.Limits(max_pending_per_process=10_000, max_pending_per_binding=32, max_routes=10_000)
STALE = r"counterfoil: the decision is stale; roll back and do it again"


def inbound(event_id: str, conversation: str = "c", text: str = "grüezi ✓ \U0001f375") -> counterfoil.Inbound:
    return counterfoil.Inbound(connection="tg", conversation=conversation, actor="ann", event_id=event_id, text=text)


def message(event_id: str, conversation: str = "c", text: str = "grüezi ✓ \U0001f375") -> counterfoil.Admit:
    return counterfoil.Admit(inbound(event_id, conversation, text), GRANT)


class Shop:
    """A journal, in whatever colour, and a table `orders` of the host's beside it."""

    def __init__(self, postgres: Postgres, schema: str, journal: Any = None) -> None:
        self.postgres, self.schema = postgres, schema
        self.journal: counterfoil.Journal = journal
        self.url = postgres.url(schema)
        self.orders = f"{quoted(schema)}.orders"
        postgres.execute(f"CREATE TABLE {self.orders} (item text PRIMARY KEY)")

    @contextmanager
    def connect(self, *, autocommit: bool = False, **options: Any) -> Iterator[psycopg.Connection[Any]]:
        """Connect as a host does; what is not committed is rolled back."""
        with self.postgres.connect(autocommit=autocommit, **options) as connection:
            yield connection
            if not connection.closed:
                connection.rollback()

    def order(self, connection: psycopg.Connection[Any], item: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {self.orders} VALUES ('{item}')".encode())

    @property
    def items(self) -> list[str]:
        """What was ordered."""
        return [item for (item,) in self.postgres.execute(f"SELECT item FROM {self.orders} ORDER BY item")]

    @property
    def events(self) -> list[str]:
        """The platform's ids of what was admitted, in order."""
        return [
            event_id
            for (event_id,) in self.postgres.execute(
                f"SELECT external_id FROM {quoted(self.schema)}.cf_external_id ORDER BY position"
            )
        ]

    @property
    def types(self) -> list[str]:
        """The types of all events, in order."""
        return [kind for (kind,) in self.postgres.execute(f"SELECT type FROM {quoted(self.schema)}.cf_event ORDER BY position")]

    @property
    def staged(self) -> int:
        ((count,),) = self.postgres.execute(f"SELECT count(*) FROM {quoted(self.schema)}.cf_staged")
        return int(count)
