"""Whether anybody has appended to a journal."""

from __future__ import annotations

import psycopg

from ..engine import Outside
from ..statements import Names
from .faults import fault
from .reader_pool import ReaderPool

CALLS = Names("calls")


class Elsewhere(Outside):
    """Ask again and again whether the head has moved; what is no event, such as a place in line, is rung for."""

    def __init__(self, readers: ReaderPool, name: str) -> None:
        self._readers = readers
        self._name = name
        self._position = -1

    def changed(self) -> bool:
        try:
            with self._readers.lent() as store:
                position = store.head().position
        except psycopg.Error as error:
            raise fault(error, self._name) from None
        before, self._position = self._position, position
        return position != before

    def close(self) -> None:
        """Nothing is kept."""
