"""Texts for a role that may not read them: the database gives them one by one, when it is on record that they were shown."""

from __future__ import annotations

from ..statements import statements
from .connecting import connect
from .naming import Address

TEXTS = statements("postgres/texts.sql")


def show_texts(address: Address, busy_us: int, positions: list[int]) -> dict[int, bytes]:
    """
    Return the texts at some positions. What psycopg raises passes.

    A first call records that they are shown, and commits; the second one is given them.
    """
    with connect(address, purpose="writer", busy_us=busy_us) as connection:
        rows = connection.execute(TEXTS.ask, (positions,), binary=True).fetchall()
        if any(text is None for _, text in rows):
            rows = connection.execute(TEXTS.ask, (positions,), binary=True).fetchall()
    return {position: text for position, text in rows if text is not None}
