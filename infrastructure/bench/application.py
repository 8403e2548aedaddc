"""A plain application of the `eventsourcing` library: one aggregate, its default JSON, its recorder of SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from . import workload
from .results import Sample


class Message(Aggregate):
    """The fields of an admission."""

    @event("Admitted")
    def __init__(
        self,
        *,
        connection: str,
        conversation: str,
        actor: str,
        event_id: str,
        text: str,
        tenant: str,
        principal: str,
        alias: str,
        revision: str,
    ) -> None:
        self.connection = connection
        self.conversation = conversation
        self.actor = actor
        self.event_id = event_id
        self.text = text
        self.tenant = tenant
        self.principal = principal
        self.alias = alias
        self.revision = revision


def create_and_save(env: Mapping[str, str], *, threads: int, count: int) -> Sample:
    """Measure the rate at which threads create and save aggregates in an application that is configured so."""
    application = Application[UUID](env=env)
    todo = iter([workload.saved_fields(number) for number in range(count)])

    def caller() -> None:
        for fields in todo:
            application.save(Message(**fields))

    with ThreadPoolExecutor(threads) as pool:
        began = perf_counter()
        for done in [pool.submit(caller) for _ in range(threads)]:
            done.result()
        took = perf_counter() - began
    application.close()
    return {"rate": count / took}
