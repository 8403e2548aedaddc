"""What a group writes beside the rows that are cached, in order."""

from __future__ import annotations

from typing import Any

from counterfoil.domain.event import Recorded


class Changes:
    """What a group writes beside rows that are cached, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.decoded: list[Recorded] = []
        """The same events as they were decided, where the append may move them."""
        self.payloads: list[tuple[int, bytes, bytes]] = []
        self.erased: list[tuple[int]] = []
        self.external_ids: list[tuple[int, str]] = []
        self.scopes: list[tuple[Any, ...]] = []
        self.subjects: list[tuple[Any, ...]] = []
        self.actions: list[tuple[str, tuple[Any, ...]]] = []
        """Statements of `append.sql` by name with their values, for what is rare."""
        self.rings: list[tuple[int, str]] = []
        """After the commit: which openings are to look at which key, because it has come free or was taken from them."""
        self._all: tuple[list[Any], ...] = (
            self.rings,
            self.events,
            self.decoded,
            self.payloads,
            self.erased,
            self.external_ids,
            self.scopes,
            self.subjects,
            self.actions,
        )

    def marks(self) -> tuple[int, ...]:
        """Return how much there is now."""
        return tuple([len(rows) for rows in self._all])

    def cut(self, marks: tuple[int, ...]) -> None:
        """Drop what came after the marks."""
        for rows, length in zip(self._all, marks, strict=True):
            del rows[length:]

    @property
    def empty(self) -> bool:
        return not any(self.marks())
