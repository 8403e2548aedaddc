"""A cache whose changes are kept only when what they belong to is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CACHE_ENTRIES: Final = 10_000
"""What one cache holds at most; past it the older half goes."""

_UNCHANGED: Final = object()

Undo: TypeAlias = list[tuple[dict[Any, Any], Any, Any]]
"""What the running command changed: the layer, the key, and what the layer had there."""


class Layered(Generic[K, V]):
    """
    Values by key: what the group changed lies above what was committed. A value that is absent is None, and is cached as such.

    Each change is noted in `undo`, which is common to all caches: emptied, it is kept for the group; undone by `undo_all`, it
    never was. `commit` and `rollback` end a group.
    """

    def __init__(self, load: Callable[[K], V | None], undo: Undo) -> None:
        """Load what is not cached with `load`."""
        self._load = load
        self._undo = undo
        self._committed: dict[K, V | None] = {}
        self._group: dict[K, V | None] = {}
        self._absent: set[K] = set()
        """What was looked for and is not there."""
        self._latest: tuple[K, ...] = ()
        """What the group that was committed last had put."""
        self.puts = 0
        """How often anything was put."""

    def get(self, key: K) -> V | None:
        if key in self._group:
            return self._group[key]
        if key in self._committed:
            return self._committed[key]
        value = self._committed[key] = self._load(key)
        if value is None:
            self._absent.add(key)
        return value

    @property
    def committed(self) -> Mapping[K, V | None]:
        """What is cached of what was committed."""
        return self._committed

    def put(self, key: K, value: V | None) -> None:
        group = self._group
        self.puts += 1
        self._undo.append((group, key, group.get(key, _UNCHANGED)))
        group[key] = value

    def changed(self) -> Iterator[tuple[K, V | None]]:
        """Yield what the group changed, by key, in the order of the first change."""
        yield from self._group.items()

    def change(self, changed: Callable[[V], V]) -> None:
        """Change the values that the group put."""
        for key, value in self._group.items():
            if value is not None:
                self._group[key] = changed(value)

    def change_latest(self, changed: Callable[[V], V]) -> None:
        """Change the values that the group put which was committed last, and those that this one put."""
        self.change(changed)
        for key in self._latest:
            value = self._committed.get(key)
            if value is not None:
                self._committed[key] = changed(value)

    def evict_latest(self) -> None:
        """Drop what the group put which was committed last: it does not stand."""
        for key in self._latest:
            self._committed.pop(key, None)

    def rekey(self, key_of: Callable[[V], K]) -> None:
        """Find by their own keys the values that the group put."""
        self._group = {key if value is None else key_of(value): value for key, value in self._group.items()}

    def fill(self, key: K, value: V | None) -> None:
        """Take in what was committed under a key, as it was loaded."""
        self._committed[key] = value
        if value is None:
            self._absent.add(key)

    def forget_absent(self) -> None:
        """Drop what is known to be absent: somebody else may have put it."""
        for key in self._absent:
            if self._committed.get(key, _UNCHANGED) is None:
                del self._committed[key]
        self._absent.clear()

    def evict(self, key: K) -> None:
        """Drop what was committed under a key: somebody else has written it."""
        self._committed.pop(key, None)

    def commit(self) -> None:
        self._latest = tuple(self._group)
        self._committed.update(self._group)
        self._group.clear()
        if len(self._committed) > CACHE_ENTRIES:
            for key in list(self._committed)[: CACHE_ENTRIES // 2]:
                del self._committed[key]
            self._absent.intersection_update(self._committed)

    def rollback(self) -> None:
        self._group.clear()

    def forget_committed(self) -> None:
        """Drop what was committed: somebody else has written."""
        self._committed.clear()
        self._absent.clear()

    def forget(self) -> None:
        """Drop everything: somebody else has written."""
        self._group.clear()
        self._committed.clear()
        self._absent.clear()


def undo_all(undo: Undo, floor: int = 0) -> None:
    """Undo what the running command changed, the newest first, down to the first `floor` changes."""
    while len(undo) > floor:
        layer, key, before = undo.pop()
        if before is _UNCHANGED:
            del layer[key]
        else:
            layer[key] = before
