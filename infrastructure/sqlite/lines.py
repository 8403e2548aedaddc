"""The lines of hosts' locks: who waits for which key, and until when a key is held back. Rows beside the history, not events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from counterfoil.domain.hold import Terms

from ..places import Place
from ..statements import statements

LOCKS: Final = statements("sqlite/locks.sql")


class SQLiteLines:
    """Read and write lines through one connection, inside a transaction that the caller holds: what is written is seen."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def remember_key(self, lease_id: str, key: str) -> None:
        """Keep what key an id stands for."""
        self._connection.execute(LOCKS.remember_key, (lease_id, key))

    def forget_keys(self, key: str) -> None:
        """Keep no longer that this key, whatever the lock, was ever asked for."""
        self._connection.execute(LOCKS.forget_keys, (key,))

    def forget_keys_of_scope(self, scope_id: bytes) -> None:
        """Keep no longer that keys were asked for which are ids of people, chats or threads of a scope."""
        self._connection.execute(LOCKS.forget_keys_of_scope, (scope_id,))

    def enter(self, lease_id: str, opening_id: int, token: bytes, terms: Terms, asked_at: int) -> None:
        """Take the last place, unless the asking has one."""
        if self.place_of(lease_id, token) is None:
            self._connection.execute(LOCKS.enter, (lease_id, opening_id, token, *terms, asked_at))

    def leave(self, place: int) -> None:
        self._connection.execute(LOCKS.leave, (place,))

    def leave_with_opening(self, opening_id: int) -> None:
        self._connection.execute(LOCKS.leave_with_opening, (opening_id,))

    def anybody(self) -> bool:
        """Tell whether anybody waits for anything."""
        return self._connection.execute(LOCKS.anybody).fetchone() is not None

    def is_full(self, lease_id: str, most: int) -> bool:
        """Tell whether so many wait for a key; they are counted only where there may be as many."""
        for statement in (LOCKS.length, LOCKS.count):
            if self._connection.execute(statement, (lease_id,)).fetchone()[0] < most:
                return False
        return True

    def place_of(self, lease_id: str, token: bytes) -> int | None:
        row = self._connection.execute(LOCKS.place_of, (lease_id, token)).fetchone()
        return None if row is None else int(row[0])

    def first(self, lease_id: str, own: int, is_live: Callable[[int], bool], boot_now: int) -> Place | None:
        """
        Return the first place of a living opening that is awake, as `own`, which asks, must be.

        Places of ended openings are given up on the way. An opening that let an offer pass is asleep: it is stepped over with all
        of its places, which it keeps, until it looks at the key again. So a frozen process keeps nobody from a key that is free
        for longer than one offer.
        """
        found = None
        ended: list[int] = []
        asleep: set[int] = set()
        for row in self._connection.execute(LOCKS.line, (lease_id, own)):
            place = Place(*row)
            if not is_live(place.opening_id):
                ended.append(place.place)
            elif place.opening_id == own or (place.opening_id not in asleep and place.may_take(boot_now)):
                found = place
                break
            else:
                asleep.add(place.opening_id)
        for number in ended:
            self.leave(number)
        for opening_id in asleep:
            self._connection.execute(LOCKS.step_over, (lease_id, opening_id))
        return found

    def awake(self, lease_id: str, opening_id: int) -> None:
        """An opening looks at a key: its places are stepped over no longer."""
        self._connection.execute(LOCKS.awake, (lease_id, opening_id))

    def leave_of_ended(self, is_live: Callable[[int], bool]) -> None:
        """Give up the places of all openings that have ended."""
        for (opening_id,) in self._connection.execute(LOCKS.openings_in_line).fetchall():
            if not is_live(opening_id):
                self.leave_with_opening(opening_id)

    def offer(self, place: int, until: int) -> None:
        """Say until when, in nanoseconds of the boot clock, the first in line has the free key for itself."""
        self._connection.execute(LOCKS.offer, (until, place))

    def hold_back(self, lease_id: str, boot_id: str, until: int) -> None:
        self._connection.execute(LOCKS.hold_back, (lease_id, boot_id, until))

    def held_back(self, lease_id: str, boot_id: str) -> int:
        """Return until when a key is held back, in nanoseconds of the boot clock; 0 when it is not."""
        row = self._connection.execute(LOCKS.held_back, (lease_id,)).fetchone()
        return int(row[1]) if row is not None and row[0] == boot_id else 0

    def let_go(self, lease_id: str) -> None:
        self._connection.execute(LOCKS.let_go, (lease_id,))
