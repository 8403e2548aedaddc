"""How a group is taken: in which transactions, and each command for itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from counterfoil.domain.errors import CounterfoilError

from ..commands.guarding import check_lease
from ..committer import Request
from ..unit import Unit


class BodyRaised(Exception):
    """What a host's body raised goes to its caller as it is, also when it is an error of SQLite: its statements are its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class TransactionEnded(Exception):
    """
    The transaction of the whole group cannot be kept, because of one command: its neighbours are taken again, each alone.

    Either a host's statement has ended it, or a guard of a body has ended while others of the group did their part.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error


def is_alone(request: Request[Any]) -> bool:
    """Tell whether a command has a transaction to itself: what it erases must not reach what comes after it."""
    return bool(getattr(request.command, "ALONE", False))


def parts(group: list[Request[Any]]) -> Iterator[list[Request[Any]]]:
    """Yield the transactions that a group is taken in, in order; nearly always one."""
    part: list[Request[Any]] = []
    for request in group:
        if not is_alone(request):
            part.append(request)
            continue
        if part:
            yield part
        yield [request]
        part = []
    if part:
        yield part


def run_one(unit: Unit, request: Request[Any]) -> None:
    """Run one command of a group; what it raises is its own."""
    try:
        request.result = request.command.run(unit)
        request.error = None
        unit.keep()
    except (sqlite3.Error, TransactionEnded):
        raise
    except BodyRaised as raised:
        unit.drop()
        request.error = raised.error
    except BaseException as error:
        unit.drop()
        request.error = error


def check_guards(unit: Unit, group: list[Request[Any]]) -> None:
    """
    Check, right before a group is written, what its bodies are guarded by: those after a body may have taken their time.

    Raises `TransactionEnded` where a guard has ended.
    """
    for request in group:
        for lease in getattr(request.command, "guards", ()):
            try:
                check_lease(unit, lease)
            except CounterfoilError as error:
                raise TransactionEnded(error) from None
