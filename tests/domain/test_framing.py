"""Framing, the chain and commitments: what docs/format.md says, computed with hashlib and struct alone."""

import ast
import hashlib
import re
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counterfoil.domain.decision import Payload
from counterfoil.domain.event import Committed, Header
from counterfoil.domain.framing import EVENT_TAG, GENESIS, chain_digest, commitment, frame, keyed, leaf_digest

Value = str | bytes | int | None

WORDS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.none() | WORDS | st.binary() | st.integers(-(2**63), 2**63 - 1)
KINDS = st.sampled_from([str, bytes, int])


def framed(*values: Value) -> bytes:
    """Frame as section 1 of the document says."""
    out = b""
    for value in values:
        match value:
            case None:
                out += b"\xff" * 4
            case int():
                out += b"\x00\x00\x00\x08" + struct.pack(">q", value)
            case str():
                out += struct.pack(">I", len(value.encode("utf-8"))) + value.encode("utf-8")
            case bytes():
                out += struct.pack(">I", len(value)) + value
    return out


def unframed(data: bytes) -> list[bytes | None]:
    """Take a frame apart again, which shows that nothing in it is ambiguous."""
    values: list[bytes | None] = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        if length == 0xFFFFFFFF:
            values.append(None)
            data = data[4:]
        else:
            assert len(data) >= 4 + length
            values.append(data[4 : 4 + length])
            data = data[4 + length :]
    return values


def as_bytes(value: Value) -> bytes | None:
    match value:
        case int():
            return struct.pack(">q", value)
        case str():
            return value.encode()
    return value


@pytest.mark.contract("JRN-13")
def test_frames_of_the_document(document: str) -> None:
    """Each vector of section 1 is what the rules give, and what the library gives."""
    vectors = re.findall(r"`frame\(([^`]*)\)` is `([0-9a-f ]+)`", document)

    assert 2 == len(vectors)
    for arguments, expected in vectors:
        values = ast.literal_eval(f"({arguments},)")
        assert expected.replace(" ", "") == framed(*values).hex() == frame(*values).hex()


@given(st.lists(VALUES))
@example([""])
@example([None])
@example([0])
def test_a_frame_can_be_taken_apart(values: list[Value]) -> None:
    """The values come back from the bytes, so two tuples of the same kinds never meet."""
    assert framed(*values) == frame(*values)
    assert [as_bytes(value) for value in values] == unframed(frame(*values))


@pytest.mark.contract("IDN-03")
@given(st.data(), st.lists(KINDS, min_size=1, max_size=5))
def test_framing_is_injective(data: st.DataObject, kinds: list[type]) -> None:
    """Two different tuples of the same kinds give different bytes, whatever separators they hold."""
    of_kind = {str: WORDS, bytes: st.binary(), int: st.integers(-(2**63), 2**63 - 1)}
    tuples = st.tuples(*(st.none() | of_kind[kind] for kind in kinds))
    one, other = data.draw(tuples), data.draw(tuples)

    assert (one == other) is (frame(*one) == frame(*other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a", ""), ("a",)),
        (("a", None), ("a", "")),
        (("", "a"), ("a", "")),
        ((None, None), (None,)),
        (("a-b", "c"), ("a", "b-c")),
        (("\xff\xff\xff\xff",), (None,)),
    ],
)
@pytest.mark.contract("IDN-03")
def test_what_usually_collides_does_not(one: tuple[Value, ...], other: tuple[Value, ...]) -> None:
    """Shifted borders, empty parts and absent ones are all told apart."""
    assert frame(*one) != frame(*other)


def test_whole_numbers_have_64_bits() -> None:
    """A number that does not fit is an error and never another number."""
    assert framed(-1, 2**63 - 1) == frame(-1, 2**63 - 1)
    with pytest.raises(struct.error):
        frame(2**63)


@pytest.mark.contract("JRN-13", "JRN-14")
def test_the_vectors_of_the_chain(document: str) -> None:
    """Leaves and digests of section 3 follow from its words, by hand and by the library; the recorder's event is the second."""
    section = document.split("\n## 3. ")[1].split("\n## ")[0]
    places = re.findall(r"at position (\d), recorded at ([\d,]+),", section)
    (ours,) = re.findall(r"of originator `(op-[0-9a-f]{32})` version 1", section)
    ((theirs, topic, state),) = re.findall(
        r"for originator `([0-9a-f-]{36})` version 1 with\s+the topic `([^`]+)` and the two bytes `([0-9a-f ]+)`", section
    )
    header = (1, "person", b"\x11" * 16, "tg", b"\x22" * 16, None, b"\x33" * 16, None, b"\x44" * 16, None)
    events: list[tuple[Value, ...]] = [
        (ours, 1, "operation.admitted", 1, *header, b"{}"),
        (theirs, 1, topic, 0, *Header(), bytes.fromhex(state)),
    ]
    leaves = re.findall(r"\| leaf \| `([0-9a-f]{64})` \|", section)
    digests = re.findall(r"\| digest \| `([0-9a-f]{64})` \|", section)
    previous = GENESIS

    assert bytes(32) == GENESIS
    assert [1, 2] == [int(position) for position, _ in places]
    for columns, (position, recorded_at), leaf, digest in zip(events, places, leaves, digests, strict=True):
        place = int(position), int(recorded_at.replace(",", ""))
        by_hand = hashlib.sha256(framed("counterfoil.event.1", *columns)).digest()
        chained = hashlib.sha256(previous + struct.pack(">QQ", *place) + by_hand).digest()

        assert leaf == by_hand.hex() == leaf_digest(*columns).hex()
        assert digest == chained.hex() == chain_digest(previous, *place, by_hand).hex()
        previous = chained


@pytest.mark.contract("JRN-13")
def test_the_leaf_covers_the_columns_in_the_order_of_the_document(document: str) -> None:
    """The names in the formula are the columns around the header, and the header's own, in their order."""
    (formula,) = re.findall(r"leaf   = SHA-256\(frame\(([^)]*)\)\)", document)
    named = [part.strip() for part in formula.split(",")]

    expected = [
        f'"{EVENT_TAG}"',
        "originator_id",
        "originator_version",
        "type",
        "type_version",
        *Header._fields,
    ]
    assert [*expected, "state"] == named


@pytest.mark.contract("JRN-13")
@pytest.mark.parametrize("column", range(15))
def test_every_column_moves_the_leaf(column: int) -> None:
    """No column can be changed, or taken away, without another digest."""
    columns: list[Value] = ["op-1", 1, "t", 1, 1, "person", b"s", "tg", b"c", b"t", b"a", 1, b"e", 1, b"{}"]
    before = leaf_digest(*columns)
    value = columns[column]
    changed = list(columns)
    changed[column] = value + 1 if isinstance(value, int) else None

    assert before != leaf_digest(*changed)


@pytest.mark.contract("JRN-13")
def test_every_part_of_the_place_moves_the_digest() -> None:
    """Position, time and the digest before are covered beside the leaf."""
    digests = {
        chain_digest(GENESIS, 1, 1, GENESIS),
        chain_digest(GENESIS, 2, 1, GENESIS),
        chain_digest(GENESIS, 1, 2, GENESIS),
        chain_digest(b"\x01" * 32, 1, 1, GENESIS),
        chain_digest(GENESIS, 1, 1, b"\x01" * 32),
    }

    assert 5 == len(digests)


@pytest.mark.contract("JRN-07")
@given(st.binary(min_size=32, max_size=32), st.binary())
def test_a_commitment_is_over_salt_and_bytes(salt: bytes, body: bytes) -> None:
    """SHA-256 over the 32 bytes of salt and the text, as lower-case hex."""
    assert hashlib.sha256(salt + body).hexdigest() == commitment(salt, body)


@pytest.mark.contract("JRN-07")
def test_the_vector_of_a_commitment(document: str) -> None:
    """Section 5, by hand and by the library; and what an event holds of such a text."""
    ((salted, text, expected),) = re.findall(
        r"the salt `([0-9a-f]{2}(?: [0-9a-f]{2})+) … 1f` and the text `([^`]+)` give `([0-9a-f]{64})`", document
    )
    salt = bytes(range(32))
    body = text.encode()

    assert salt.startswith(bytes.fromhex(salted))
    assert expected == hashlib.sha256(salt + body).hexdigest() == commitment(salt, body)
    assert Committed(length=5, commitment=expected) == Payload(salt, body).committed


@given(st.binary(max_size=100), st.lists(VALUES, max_size=4))
def test_keyed_is_half_of_an_hmac_over_the_frame(key: bytes, values: list[Value]) -> None:
    """HMAC-SHA256 by its definition, cut to 16 bytes."""
    padded = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + framed(*values)).digest()

    assert hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).digest()[:16] == keyed(key, *values)
