"""A cache whose changes are kept only when what they belong to is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CACHE_ENTRIES: Final = 20_000
"""What one cache holds at most; past it the older half goes."""


class Layered(Generic[K, V]):
    """
    Values by key in three layers: of the command that runs, of its group, and committed.

    `keep` and `drop` end a command, `commit` and `rollback` a group. A value that is absent is None, and is cached as such.
    """

    def __init__(self, load: Callable[[K], V | None], changed: list[Layered[Any, Any]]) -> None:
        """Load what is not cached with `load`; when a command changes the first value, enter into `changed`."""
        self._load = load
        self._list = changed
        self._committed: dict[K, V | None] = {}
        self._group: dict[K, V | None] = {}
        self._command: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        if key in self._command:
            return self._command[key]
        if key in self._group:
            return self._group[key]
        if key in self._committed:
            return self._committed[key]
        value = self._committed[key] = self._load(key)
        return value

    def put(self, key: K, value: V | None) -> None:
        if not self._command:
            self._list.append(self)
        self._command[key] = value

    def touched(self, key: K) -> bool:
        """Tell whether the group has changed the value."""
        return key in self._command or key in self._group

    def touched_keys(self) -> set[K]:
        """Return the keys that the group has changed."""
        return self._command.keys() | self._group.keys()

    def pending_values(self) -> list[V]:
        """Return the values that the group has put, in the order of their keys' first change."""
        merged = {**self._group, **self._command}
        return [value for value in merged.values() if value is not None]

    def changed(self) -> Iterator[tuple[K, V | None]]:
        """Yield what the kept commands of the group left, by key."""
        yield from self._group.items()

    def keep(self) -> None:
        self._group.update(self._command)
        self._command.clear()

    def drop(self) -> None:
        self._command.clear()

    def commit(self) -> None:
        self._committed.update(self._group)
        self._group.clear()
        if len(self._committed) > CACHE_ENTRIES:
            for key in list(self._committed)[: CACHE_ENTRIES // 2]:
                del self._committed[key]

    def rollback(self) -> None:
        self._command.clear()
        self._group.clear()

    def forget(self) -> None:
        """Drop everything: somebody else has written."""
        self.rollback()
        self._committed.clear()
