"""Pages of a list: how many rows one holds, and the cursor that leads to the next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from counterfoil.domain.errors import InvalidValue
from counterfoil.domain.limits import COUNTS, Limits

R = TypeVar("R")

LARGEST: Final = 2**63 - 1
"""The largest position that an engine can store."""
_CURSOR: Final = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Rows, and the cursor with which the rows after them are asked for; None when there are none."""

    rows: tuple[R, ...]
    next: str | None = None

    def __repr__(self) -> str:
        return f"Page({len(self.rows)} rows, next={self.next!r})"


def page_limit(limit: int | None, limits: Limits) -> int:
    """Return how many rows a page holds; raises `InvalidValue` outside the range."""
    if limit is None:
        return limits.max_journal_page
    least, most = COUNTS["max_journal_page"]
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidValue(f"limit must be a whole number from {least} to {most}, not {type(limit).__name__}")
    if not least <= limit <= most:
        raise InvalidValue(f"limit must be from {least} to {most}, not {limit}")
    return limit


def cursor_position(cursor: str | None) -> int | None:
    """Return the position that a cursor stands for; raises `InvalidValue` for what no page has given."""
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        raise InvalidValue(f"after must be a cursor, the `next` of a page, not {type(cursor).__name__}")
    if _CURSOR.fullmatch(cursor) is None or int(cursor) > LARGEST:
        raise InvalidValue(f"after must be a cursor, the `next` of a page: a whole number from 0 to {LARGEST}")
    return int(cursor)
