"""
What a projection is: a name, a version, a row, and a pure fold of one event into the row of one key.

The same fold runs in the append, in `verify`, in a rebuild and in memory. It reads no clock and does no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from counterfoil.domain.event import Event, Recorded

Key: TypeAlias = tuple[Any, ...]
Row = TypeVar("Row", bound=NamedTuple)


class Projection(ABC, Generic[Row]):
    """
    Fold events into rows.

    The row is a `NamedTuple` of int, str, bytes or None; its fields are the table's columns, the first `KEY_COLUMNS` of them the
    primary key. A change of rows or fold is a new version, with a table of its own.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int]
    ROW: ClassVar[type[NamedTuple]]
    KEY_COLUMNS: ClassVar[int] = 1
    INDEXES: ClassVar[tuple[tuple[str, ...], ...]] = ()
    EVENTS: ClassVar[tuple[type[Event], ...]]
    """The types that it folds; others leave it as it is."""
    POSITIONS: ClassVar[tuple[str, ...]] = ()
    """The columns that hold positions, which an append may move that was decided ahead."""
    TIMES: ClassVar[tuple[str, ...]] = ()
    """The columns that hold times of events, which it may move too."""
    AGGREGATED: ClassVar[bool] = False
    """Whether a row gathers what many conversations do: where appends run side by side it is folded after them from events."""
    BEGIN: ClassVar[tuple[type[Event], ...]] = ()
    """Of these, the types whose row cannot have been there before, so that nobody looks for it."""

    @abstractmethod
    def key(self, recorded: Recorded) -> Key | None:
        """Return the key of the row that an event changes, None when it changes none."""

    @abstractmethod
    def fold(self, row: Row | None, recorded: Recorded) -> Row | None:
        """Return the row after an event; None removes it."""

    @property
    def table(self) -> str:
        return f"cf_{self.NAME}_v{self.VERSION}"
