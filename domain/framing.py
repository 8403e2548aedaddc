"""Bytes that are hashed: framing, the chain of digests, commitments. The rules stand in docs/format.md."""

from __future__ import annotations

import hmac
from hashlib import sha256
from struct import Struct
from typing import Final, TypeAlias

_LENGTH: Final = Struct(">I").pack
_INTEGER: Final = Struct(">Iq").pack
_PLACE: Final = Struct(">QQ").pack
_ABSENT: Final = b"\xff\xff\xff\xff"
_FEW: Final = 512
_SHORT: Final = tuple(_LENGTH(length) for length in range(_FEW))  # nearly all values are this short

EVENT_TAG: Final = "counterfoil.event.1"

GENESIS: Final = bytes(32)
"""The digest before the first event."""

Framed: TypeAlias = str | bytes | int | None


def frame(*values: Framed) -> bytes:
    """Join values so that no two different tuples give the same bytes."""
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_ABSENT)
            continue
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, int):
            parts.append(_INTEGER(8, value))
            continue
        length = len(value)
        parts.append(_SHORT[length] if length < _FEW else _LENGTH(length))
        parts.append(value)
    return b"".join(parts)


def keyed(key: bytes, *values: Framed) -> bytes:
    """Return the first 16 bytes of HMAC-SHA256 over the framed values."""
    return hmac.digest(key, frame(*values), "sha256")[:16]


def leaf_digest(*columns: Framed) -> bytes:
    """Return the digest of one event without its place: the columns from originator to state, in the order of docs/format.md."""
    return sha256(frame(EVENT_TAG, *columns)).digest()


def chain_digest(previous: bytes, position: int, recorded_at: int, leaf: bytes) -> bytes:
    """Return the digest of the event at `position`, which follows the one with the digest `previous`."""
    return sha256(previous + _PLACE(position, recorded_at) + leaf).digest()


def commitment(salt: bytes, body: bytes) -> str:
    """Return the commitment to a payload: SHA-256 over its salt and its bytes, as hex."""
    return sha256(salt + body).hexdigest()
