"""What a group writes beside the rows that are cached, in order."""

from __future__ import annotations

from typing import Any


class Changes:
    """What a group writes beside rows that are cached, in order."""

    __slots__ = ("actions", "erased", "events", "external_ids", "payloads", "scopes", "subjects")

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.payloads: list[tuple[int, bytes, bytes]] = []
        self.erased: list[tuple[int]] = []
        self.external_ids: list[tuple[int, str]] = []
        self.scopes: list[tuple[Any, ...]] = []
        self.subjects: list[tuple[Any, ...]] = []
        self.actions: list[tuple[str, tuple[Any, ...]]] = []
        """Statements of `append.sql` by name with their values, for what is rare."""

    def marks(self) -> tuple[int, ...]:
        return tuple(len(getattr(self, name)) for name in self.__slots__)

    def cut(self, marks: tuple[int, ...]) -> None:
        for name, length in zip(self.__slots__, marks, strict=True):
            del getattr(self, name)[length:]

    @property
    def empty(self) -> bool:
        return not any(self.marks())
