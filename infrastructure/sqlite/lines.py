"""The lines of hosts' locks: who waits for which key, and until when a key is held back. Rows beside the history, not events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from counterfoil.domain.hold import Terms

from ..lines import Lines
from ..places import Place
from ..statements import statements

_LOCKS: Final = statements("sqlite/locks.sql")


class SQLiteLines(Lines):
    """Lines through one connection, inside a transaction that the caller holds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def remember_key(self, lease_id: str, key: str) -> None:
        self._connection.execute(_LOCKS.remember_key, (lease_id, key))

    def forget_keys(self, key: str) -> None:
        self._connection.execute(_LOCKS.forget_keys, (key,))

    def forget_keys_of_scope(self, scope_id: bytes) -> None:
        self._connection.execute(_LOCKS.forget_keys_of_scope, (scope_id,))

    def enter(self, lease_id: str, opening_id: int, token: bytes, terms: Terms, asked_at: int) -> None:
        if not self.has_place(lease_id, token):
            self._connection.execute(_LOCKS.enter, (lease_id, opening_id, token, *terms, asked_at))

    def leave(self, lease_id: str, token: bytes) -> None:
        self._connection.execute(_LOCKS.leave, (lease_id, token))

    def leave_with_opening(self, opening_id: int) -> None:
        self._connection.execute(_LOCKS.leave_with_opening, (opening_id,))

    def anybody(self) -> bool:
        return self._connection.execute(_LOCKS.anybody).fetchone() is not None

    def is_full(self, lease_id: str, most: int) -> bool:
        """Tell whether so many wait for a key; they are counted only where there may be as many."""
        for statement in (_LOCKS.length, _LOCKS.count):
            if self._connection.execute(statement, (lease_id,)).fetchone()[0] < most:
                return False
        return True

    def has_place(self, lease_id: str, token: bytes) -> bool:
        return self._connection.execute(_LOCKS.has_place, (lease_id, token)).fetchone() is not None

    def first(self, lease_id: str, own: int, is_live: Callable[[int], bool], now: int) -> Place | None:
        found = None
        ended: list[bytes] = []
        asleep: set[int] = set()
        for row in self._connection.execute(_LOCKS.line, (lease_id, own)):
            place = Place(*row)
            if not is_live(place.opening_id):
                ended.append(place.token)
            elif place.opening_id == own or (place.opening_id not in asleep and place.may_take(now)):
                found = place
                break
            else:
                asleep.add(place.opening_id)
        for token in ended:
            self.leave(lease_id, token)
        for opening_id in asleep:
            self._connection.execute(_LOCKS.step_over, (lease_id, opening_id))
        return found

    def awake(self, lease_id: str, opening_id: int) -> None:
        self._connection.execute(_LOCKS.awake, (lease_id, opening_id))

    def leave_of_ended(self, is_live: Callable[[int], bool]) -> None:
        for (opening_id,) in self._connection.execute(_LOCKS.openings_in_line).fetchall():
            if not is_live(opening_id):
                self.leave_with_opening(opening_id)

    def offer(self, lease_id: str, token: bytes, until: int) -> None:
        self._connection.execute(_LOCKS.offer, (until, lease_id, token))

    def hold_back(self, lease_id: str, clock: str, until: int) -> None:
        self._connection.execute(_LOCKS.hold_back, (lease_id, clock, until))

    def held_back(self, lease_id: str, clock: str) -> int:
        row = self._connection.execute(_LOCKS.held_back, (lease_id,)).fetchone()
        return int(row[1]) if row is not None and row[0] == clock else 0

    def let_go(self, lease_id: str) -> None:
        self._connection.execute(_LOCKS.let_go, (lease_id,))
