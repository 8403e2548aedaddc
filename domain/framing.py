"""Bytes that are hashed: framing, the chain of digests, commitments. The rules stand in docs/format.md."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from hashlib import _Hash

_LENGTH: Final = Struct(">I").pack
_INTEGER: Final = Struct(">Iq").pack
_PLACE: Final = Struct(">QQ").pack
_ABSENT: Final = b"\xff\xff\xff\xff"
_FEW: Final = 512
_SHORT: Final = tuple(_LENGTH(length) for length in range(_FEW))  # nearly all values are this short

_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))

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
    keyed_inner, keyed_outer = _halves(key)
    inner, outer = keyed_inner.copy(), keyed_outer.copy()
    inner.update(frame(*values))
    outer.update(inner.digest())
    return outer.digest()[:16]


@lru_cache(maxsize=1_024)
def _halves(key: bytes) -> tuple[_Hash, _Hash]:
    """
    Return the two hashes of HMAC (RFC 2104) with the key in them.

    A key is used for thousands of ids, and `hmac.digest` would hash it again each time, which is half of its cost.
    """
    if len(key) > _BLOCK:
        key = sha256(key).digest()
    padded = key.ljust(_BLOCK, b"\0")
    return sha256(padded.translate(_INNER)), sha256(padded.translate(_OUTER))


def leaf_digest(*columns: Framed) -> bytes:
    """Return the digest of one event without its place: the columns from originator to state, in the order of docs/format.md."""
    return sha256(frame(EVENT_TAG, *columns)).digest()


def chain_digest(previous: bytes, position: int, recorded_at: int, leaf: bytes) -> bytes:
    """Return the digest of the event at `position`, which follows the one with the digest `previous`."""
    return sha256(previous + _PLACE(position, recorded_at) + leaf).digest()


def commitment(salt: bytes, body: bytes) -> str:
    """Return the commitment to a payload: SHA-256 over its salt and its bytes, as hex."""
    return sha256(salt + body).hexdigest()
