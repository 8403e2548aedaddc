"""
The lines of hosts' locks, as the group sees them that is being decided: the rows that are there, and what the group does to them.

Nothing is written before the append. What is done stands in the `actions` of the group, and undone with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from counterfoil.domain.hold import Terms

from ..changes import Changes
from ..lines import Lines
from ..places import Place
from ..statements import Names

if TYPE_CHECKING:
    from .store import PostgresStore

LOCKS: Final = Names("locks")
PAGE: Final = 64
"""Places that are read at once: nearly always the first is the one."""
_LATER: Final = 2**63 - 1
"""The place of those who have none yet: behind everybody's."""


class PostgresLines(Lines):
    """Lines through one connection, and one group after the other."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._actions: list[tuple[str, tuple[Any, ...]]] = []
        self._pages: dict[str, list[Place]] = {}

    def begin(self, changes: Changes) -> None:
        """Begin a group: what it does is added to its changes, and nothing is known from before."""
        self._actions = changes.actions
        self._pages.clear()

    def _did(self, *names: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
        return ((name, values) for name, values in self._actions if name in names)

    # Keys.

    def remember_key(self, lease_id: str, key: str) -> None:
        self._actions.append(("remember_key", (lease_id, key)))

    def forget_keys(self, key: str) -> None:
        self._actions.append(("forget_keys", (key,)))

    def forget_keys_of_scope(self, scope_id: bytes) -> None:
        self._actions.append(("forget_keys_of_scope", (scope_id,)))

    # Places.

    def enter(self, lease_id: str, opening_id: int, token: bytes, terms: Terms, asked_at: int) -> None:
        if not self.has_place(lease_id, token):
            self._actions.append(("enter", (lease_id, opening_id, token, *terms, asked_at)))

    def leave(self, lease_id: str, token: bytes) -> None:
        self._actions.append(("leave", (lease_id, token)))

    def leave_with_opening(self, opening_id: int) -> None:
        self._actions.append(("leave_with_opening", (opening_id,)))

    def leave_of_ended(self, is_live: Callable[[int], bool]) -> None:
        for (opening_id,) in list(self._store.rows(LOCKS.openings_in_line)):
            if not is_live(opening_id):
                self.leave_with_opening(opening_id)

    def anybody(self) -> bool:
        return any(True for _ in self._did("enter")) or self._store.one(LOCKS.anybody) is not None

    def is_full(self, lease_id: str, most: int) -> bool:
        row = self._store.one(LOCKS.count, (lease_id,))
        entered = sum(values[0] == lease_id for _, values in self._did("enter"))
        left = sum(values[0] == lease_id for _, values in self._did("leave"))
        gone = [values[0] for _, values in self._did("leave_with_opening")]
        if gone:
            ended = self._store.one(LOCKS.count_of_openings, {"lease_id": lease_id, "openings": gone})
            left += 0 if ended is None else int(ended[0])
        waiting = 0 if row is None else int(row[0])
        return bool(waiting + entered - left >= most)

    def has_place(self, lease_id: str, token: bytes) -> bool:
        for name, values in reversed(self._actions):
            if name == "enter" and (values[0], values[2]) == (lease_id, token):
                return True
            if name == "leave" and values == (lease_id, token):
                return False
        return self._store.one(LOCKS.has_place, (lease_id, token)) is not None

    def first(self, lease_id: str, own: int, is_live: Callable[[int], bool], now: int) -> Place | None:
        found = None
        ended: list[bytes] = []
        asleep: set[int] = set()
        for place in self._line(lease_id):
            if place.offered_until == 0 and place.opening_id != own:
                continue
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
            self._actions.append(("step_over", (lease_id, opening_id)))
        return found

    def awake(self, lease_id: str, opening_id: int) -> None:
        stepped_over = (place.offered_until == 0 and place.opening_id == opening_id for place in self._first_page(lease_id))
        if any(stepped_over):
            self._actions.append(("awake", (lease_id, opening_id)))

    def offer(self, lease_id: str, token: bytes, until: int) -> None:
        self._actions.append(("offer", (lease_id, token, until)))

    def _line(self, lease_id: str) -> Iterator[Place]:
        """Yield the places of a key in order, as the group leaves them."""
        done = [
            (name, values)
            for name, values in self._did("leave", "leave_with_opening", "step_over", "awake", "offer")
            if name == "leave_with_opening" or values[0] == lease_id
        ]
        for place in self._stored(lease_id):
            changed = _after(place, done)
            if changed is not None:
                yield changed
        for number, (name, values) in enumerate(self._actions):
            if name == "enter" and values[0] == lease_id:
                _, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at = values
                place = Place(_LATER, lease_id, opening_id, token, lock, ttl, max_hold, lock_delay, asked_at, None)
                changed = _after(place, [each for each in self._actions[number + 1 :] if each in done])
                if changed is not None:
                    yield changed

    def _first_page(self, lease_id: str) -> list[Place]:
        if lease_id not in self._pages:
            self._pages[lease_id] = self._page(lease_id, 0)
        return self._pages[lease_id]

    def _stored(self, lease_id: str) -> Iterator[Place]:
        page = self._first_page(lease_id)
        while page:
            yield from page
            page = self._page(lease_id, page[-1].place) if len(page) == PAGE else []

    def _page(self, lease_id: str, after: int) -> list[Place]:
        return [Place(*row) for row in self._store.rows(LOCKS.line, (lease_id, after, PAGE))]

    # Keys that are held back.

    def hold_back(self, lease_id: str, clock: str, until: int) -> None:
        self._actions.append(("hold_back", (lease_id, clock, until)))

    def held_back(self, lease_id: str, clock: str) -> int:
        for name, values in reversed(self._actions):
            if name == "hold_back" and values[0] == lease_id:
                return int(values[2]) if values[1] == clock else 0
            if name == "let_go" and values[0] == lease_id:
                return 0
        row = self._store.one(LOCKS.held_back, (lease_id,))
        return int(row[1]) if row is not None and row[0] == clock else 0

    def let_go(self, lease_id: str) -> None:
        self._actions.append(("let_go", (lease_id,)))


def _after(place: Place, done: list[tuple[str, tuple[Any, ...]]]) -> Place | None:
    """Return a place after what was done to its line since, None when it was given up."""
    for name, values in done:
        match name:
            case "leave" if values[1] == place.token:
                return None
            case "leave_with_opening" if values[0] == place.opening_id:
                return None
            case "step_over" if values[1] == place.opening_id:
                place = place._replace(offered_until=0)
            case "awake" if values[1] == place.opening_id and place.offered_until == 0:
                place = place._replace(offered_until=None)
            case "offer" if values[1] == place.token:
                place = place._replace(offered_until=values[2])
    return place
