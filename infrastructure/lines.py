"""The lines of hosts' locks: who waits for which key, and until when a key is held back. Rows beside the history, not events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from counterfoil.domain.hold import Terms

from .places import Place


class Lines(Protocol):
    """
    What a unit reads and does of lines. What is done is seen at once, by whoever reads in the same transaction.

    A place is named by its key and by the token of the asking. Instants are nanoseconds of the clock that the openings share.
    """

    def remember_key(self, lease_id: str, key: str) -> None:
        """Keep what key an id stands for."""

    def forget_keys(self, key: str) -> None:
        """Keep no longer that this key, whatever the lock, was ever asked for."""

    def forget_keys_of_scope(self, scope_id: bytes) -> None:
        """Keep no longer that keys were asked for which are ids of people, chats or threads of a scope."""

    def enter(self, lease_id: str, opening_id: int, token: bytes, terms: Terms, asked_at: int) -> None:
        """Take the last place, unless the asking has one."""

    def leave(self, lease_id: str, token: bytes) -> None:
        """Give up a place."""

    def leave_with_opening(self, opening_id: int) -> None:
        """Give up the places of an opening that has ended."""

    def leave_of_ended(self, is_live: Callable[[int], bool]) -> None:
        """Give up the places of all openings that have ended."""

    def anybody(self) -> bool:
        """Tell whether anybody waits for anything."""

    def is_full(self, lease_id: str, most: int) -> bool:
        """Tell whether so many wait for a key."""

    def has_place(self, lease_id: str, token: bytes) -> bool:
        """Tell whether an asking has a place."""

    def first(self, lease_id: str, own: int, is_live: Callable[[int], bool], now: int) -> Place | None:
        """
        Return the first place of a living opening that is awake, as `own`, which asks, must be.

        Places of ended openings are given up on the way. An opening that let an offer pass is asleep: it is stepped over with all
        of its places, which it keeps, until it looks at the key again. So a frozen process keeps nobody from a key that is free
        for longer than one offer.
        """

    def awake(self, lease_id: str, opening_id: int) -> None:
        """An opening looks at a key: its places are stepped over no longer."""

    def offer(self, lease_id: str, token: bytes, until: int) -> None:
        """Say until when the first in line has the free key for itself."""

    def hold_back(self, lease_id: str, clock: str, until: int) -> None:
        """Give the key to nobody before then, by the clock that is named."""

    def held_back(self, lease_id: str, clock: str) -> int:
        """Return until when a key is held back by this clock; 0 when it is not."""

    def let_go(self, lease_id: str) -> None:
        """The key is held back no longer."""
