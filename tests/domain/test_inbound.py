"""Inbound events: a message as a channel received it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterfoil.domain.inbound import Inbound


def inbound(**values: Any) -> Inbound:
    base = {"connection": "tg", "conversation": "-100", "actor": "7", "event_id": "1", "text": "hello"}
    return Inbound(**(base | values))


def test_what_may_be_left_out_is_absent() -> None:
    """Thread, time of receipt and claims."""
    assert (None, None, None) == (inbound().thread, inbound().received_at, inbound().claims)


@pytest.mark.contract("JRN-18")
@given(st.text(st.characters(), min_size=1))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    """NUL and lone surrogates included; what is valid is plain UTF-8."""
    body = inbound(text=text).body

    assert text == body.decode("utf-8", "surrogatepass")
    if not any("\ud800" <= each <= "\udfff" for each in text):
        assert text.encode() == body


@pytest.mark.contract("JRN-18")
@pytest.mark.parametrize("field", ["connection", "conversation", "actor", "event_id", "thread"])
@pytest.mark.parametrize("value", ["", "a\0b", "\udfff", "x" * 257, 7])
def test_ids_follow_the_rules_of_ids(field: str, value: object) -> None:
    """Each of them, the optional thread too."""
    with pytest.raises(ValidationError) as caught:
        inbound(**{field: value})

    assert [(field,)] == [error["loc"] for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"text": ""}, "must not be empty"),
        ({"text": b"hello"}, "must be text, not bytes"),
        ({"text": None}, "must be text, not NoneType"),
        ({"received_at": datetime(2026, 3, 1)}, "must have a time zone"),  # noqa: DTZ001
        ({"claims": ["tenant"]}, "dictionary"),
        ({"tenant": "acme"}, "Extra"),
    ],
)
def test_what_is_malformed_is_refused(values: dict[str, Any], complaint: str) -> None:
    """The refusal tells the rule; an inbound event cannot bring a tenant."""
    with pytest.raises(ValidationError, match=complaint):
        inbound(**values)


def test_claims_are_carried_as_they_came() -> None:
    """They are for `authorize`, and untrusted."""
    instant = datetime(2026, 3, 1, tzinfo=UTC)

    assert ({"tenant": "evil"}, instant) == (
        inbound(claims={"tenant": "evil"}).claims,
        inbound(received_at=instant).received_at,
    )


@pytest.mark.contract("DIA-01")
def test_neither_repr_nor_refusal_shows_the_message() -> None:
    """No text and no id lands in a log by way of an object or an error."""
    shown = [repr(inbound(text="secret")), str(inbound(actor="secret", claims={"secret": 1}))]
    for wrong in (
        {"actor": "secret\0"},
        {"text": {"secret": 1}},
        {"received_at": "secret"},
        {"claims": "secret"},
    ):
        with pytest.raises(ValidationError) as caught:
            inbound(**wrong)
        shown.append(str(caught.value))

    assert not [text for text in shown if "secret" in text]
