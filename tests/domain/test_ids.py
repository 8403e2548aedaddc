"""Ids: what may be one, and how those of aggregates and the pseudonyms of people are made."""

import hashlib
import hmac
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from counterfoil.domain.ids import (
    Id,
    OptionalId,
    ScopeKey,
    SubjectKind,
    lock_id,
    opening_originator,
    scope_originator,
)

ID: TypeAdapter[str] = TypeAdapter(Id)
OPTIONAL: TypeAdapter[str | None] = TypeAdapter(OptionalId)
KEY = bytes(range(32))
SCOPE = ScopeKey(b"\x11" * 16, KEY)
CHAT, PERSON = SCOPE.pseudonym("conversation", "tg", "-100"), SCOPE.pseudonym("actor", "tg", "7")
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def half(key: bytes, *values: str | bytes | int | None) -> bytes:
    """HMAC(key, …)[:16] of section 4, with the frame of section 1 written out."""
    framed = b""
    for value in values:
        if value is None:
            framed += b"\xff" * 4
            continue
        number = struct.pack(">q", value) if isinstance(value, int) else value
        data = number.encode() if isinstance(number, str) else number
        framed += struct.pack(">I", len(data)) + data
    return hmac.new(key, framed, hashlib.sha256).digest()[:16]


@pytest.mark.contract("JRN-18")
@pytest.mark.parametrize("value", ["a", "-100", " ", "a-b/c:d|e", "é" * 128, "x" * 256, "😀" * 64, "\x01", "\ufffe"])
def test_text_of_1_to_256_bytes_is_an_id(value: str) -> None:
    """Anything that every engine stores alike is taken as it is."""
    assert value == ID.validate_python(value) == OPTIONAL.validate_python(value)


@pytest.mark.contract("JRN-18")
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "must not be empty"),
        ("a\0b", "must not hold NUL"),
        ("\ud800", "must not hold a lone surrogate"),
        ("\ud83d\ude00", "must not hold a lone surrogate"),
        ("x" * 257, "must be at most 256 bytes, not 257"),
        ("é" * 129, "must be at most 256 bytes, not 258"),
        (7, "must be text, not int; write str(…)"),
        (True, "must be text, not bool"),
        (b"a", "must be text, not bytes"),
        (1.5, "must be text, not float"),
    ],
)
@pytest.mark.parametrize("adapter", [ID, OPTIONAL], ids=["id", "optional"])
def test_other_values_are_refused_with_the_rule(adapter: TypeAdapter[str], value: object, complaint: str) -> None:
    """The refusal tells the rule."""
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(value)

    assert [complaint] == [error["msg"] for error in caught.value.errors()]


def test_absent_is_no_id_but_may_be_left_out() -> None:
    """None stands only where an id is optional."""
    assert OPTIONAL.validate_python(None) is None
    with pytest.raises(ValidationError, match="must be text, not NoneType"):
        ID.validate_python(None)


@pytest.mark.contract("IDN-06", "ADM-02")
def test_the_vectors_of_the_document(document: str) -> None:
    """The pseudonyms and the operation id of section 4 follow from its words, by hand and by the library."""
    ((chat, of_chat, chat_hex),) = re.findall(
        r"the conversation `([^`]+)` on the connection `([^`]+)` is `([0-9a-f]{32})`", document
    )
    ((number, connection, event_hex),) = re.findall(r"of the event `([^`]+)` on `([^`]+)`\s+`([0-9a-f]{32})`", document)
    ((both_on, operation_id),) = re.findall(r"of both on `([^`]+)`, occurrence 0, is `(op-[0-9a-f]{32})`", document)
    conversation = half(KEY, "conversation", of_chat, chat)
    event = half(KEY, "event", connection, number)

    assert chat_hex == conversation.hex() == SCOPE.pseudonym("conversation", of_chat, chat).hex()
    assert event_hex == event.hex() == SCOPE.platform_event(connection, number).hex()
    assert operation_id == "op-" + half(KEY, "operation", both_on, conversation, event, 0).hex()
    assert operation_id == SCOPE.operation(both_on, conversation, event, 0)


def test_every_id_follows_the_table_of_the_document() -> None:
    """Section 4 by hand, for the ids that have no vector."""
    topic = SCOPE.pseudonym("thread", "tg", "3")
    route = SCOPE.route("tg", CHAT, topic, PERSON, "agent")

    assert half(KEY, "thread", "tg", "3") == topic
    assert half(KEY, "actor", "tg", "7") == PERSON
    assert half(KEY, "principal", None, "p") == SCOPE.pseudonym("principal", None, "p")
    assert "rt-" + half(KEY, "route", "tg", CHAT, topic, PERSON, "agent").hex() == route
    assert "rt-" + half(KEY, "route", "tg", CHAT, None, PERSON, "agent").hex() == SCOPE.route("tg", CHAT, None, PERSON, "agent")
    assert "ses-" + half(KEY, "session", route, 2).hex() == SCOPE.session(route, 2)
    assert "lk-" + half(KEY, "lock", "counterfoil.route", route).hex() == lock_id(KEY, "counterfoil.route", route)
    assert "opn-" + half(KEY, "opening", 3).hex() == opening_originator(KEY, 3)
    assert "sc-" + "11" * 16 == scope_originator(SCOPE.scope_id)


@pytest.mark.contract("IDN-03")
@given(
    st.tuples(WORDS, WORDS, st.none() | WORDS, WORDS, WORDS),
    st.tuples(WORDS, WORDS, st.none() | WORDS, WORDS, WORDS),
)
def test_two_routes_never_meet(one: tuple[str, str, str | None, str, str], other: tuple[str, str, str | None, str, str]) -> None:
    """A route's id is the same only for the same connection, conversation, thread, actor and alias."""

    def route(connection: str, conversation: str, thread: str | None, actor: str, alias: str) -> str:
        topic = None if thread is None else SCOPE.pseudonym("thread", connection, thread)
        chat = SCOPE.pseudonym("conversation", connection, conversation)
        person = SCOPE.pseudonym("actor", connection, actor)
        return SCOPE.route(connection, chat, topic, person, alias)

    assert (one == other) is (route(*one) == route(*other))


@pytest.mark.contract("IDN-03")
@given(st.tuples(WORDS, WORDS), st.tuples(WORDS, WORDS))
def test_two_keys_of_locks_never_meet(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Name and key of a lock cannot be shifted into each other."""
    assert (one == other) is (lock_id(KEY, *one) == lock_id(KEY, *other))


@pytest.mark.contract("ADM-02")
def test_an_operation_differs_by_each_of_its_parts() -> None:
    """Scope, connection, conversation, event and occurrence each make another operation."""
    event = SCOPE.platform_event("tg", "7")
    ids = {
        SCOPE.operation("tg", CHAT, event, 0),
        SCOPE.operation("wa", CHAT, event, 0),
        SCOPE.operation("tg", PERSON, event, 0),
        SCOPE.operation("tg", CHAT, SCOPE.platform_event("tg", "8"), 0),
        SCOPE.operation("tg", CHAT, SCOPE.platform_event("wa", "7"), 0),
        SCOPE.operation("tg", CHAT, event, 1),
        ScopeKey(SCOPE.scope_id, bytes(32)).operation("tg", CHAT, event, 0),
    }

    assert 7 == len(ids)


@pytest.mark.contract("IDN-06")
def test_one_value_has_another_pseudonym_in_each_role_connection_and_scope() -> None:
    """That a chat and a person have the same number cannot be told, nor that two platforms or two scopes share one."""
    kinds: tuple[SubjectKind, ...] = ("conversation", "thread", "actor", "principal")
    other = ScopeKey(b"\x12" * 16, KEY[::-1])
    connections = ("tg", "wa", None)
    made = {scope.pseudonym(kind, on, "7") for scope in (SCOPE, other) for kind in kinds for on in connections}

    assert 24 == len(made)
    assert {16} == {len(pseudonym) for pseudonym in made}
