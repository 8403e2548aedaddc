"""Check the chain of a journal in an SQLite file, from docs/format.md alone: the standard library and nothing of counterfoil."""

import sqlite3
import struct
import sys
from hashlib import sha256
from pathlib import Path

COLUMNS = (
    "originator_id, originator_version, type, type_version, opening_id, actor_kind, scope_id, connection, conversation, thread, "
    "actor, operation, correlation, causation, state"
)


def frame(*values: str | bytes | int | None) -> bytes:
    """Section 1: what is hashed is framed."""
    framed = b""
    for value in values:
        if value is None:
            framed += b"\xff\xff\xff\xff"
        elif isinstance(value, int):
            framed += struct.pack(">Iq", 8, value)
        else:
            data = value.encode() if isinstance(value, str) else value
            framed += struct.pack(">I", len(data)) + data
    return framed


def verify(path: Path) -> str | None:
    """
    Sections 2 and 3: the chain, from before the first event to the head; return what does not agree, or None.

    Positions are passed over only before the first event of an opening, or of a recorder without one.
    """
    connection = sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)
    try:
        connection.execute("BEGIN")
        previous, last, time = bytes(32), 0, 0
        for position, recorded_at, digest, *leaf in connection.execute(
            f"SELECT position, recorded_at, digest, {COLUMNS} FROM cf_event ORDER BY position"
        ):
            _, _, event_type, type_version, opening_id, *_ = leaf
            may_follow_a_gap = opening_id is None if type_version == 0 else event_type == "opening.started"
            if not (position == last + 1 or (position > last and may_follow_a_gap)) or recorded_at <= time:
                return f"position {position} does not follow position {last}"
            place = struct.pack(">qq", position, recorded_at)
            if sha256(previous + place + sha256(frame("counterfoil.event.1", *leaf)).digest()).digest() != digest:
                return f"position {position} does not agree"
            previous, last, time = digest, position, recorded_at
        head = connection.execute("SELECT format, position, digest FROM cf_head").fetchone()
        return None if head == (1, last, previous) else "the head does not agree"
    finally:
        connection.close()


if __name__ == "__main__":
    found = verify(Path(sys.argv[1]))
    print(found or "the chain agrees")
    sys.exit(3 if found else 0)
