"""The registry: types by stable name and version, older states made new on reading."""

from typing import Any

import pytest
from pydantic import ValidationError

from counterfoil.domain.event import REGISTRY, Event, Registry, UnknownEvent, encode


class ParcelSent(Event):
    """The current shape, third of its type."""

    TYPE = "parcel.sent"
    VERSION = 3
    weight_g: int
    carrier: str


def from_1(state: dict[str, Any]) -> dict[str, Any]:
    return {"weight_kg": state["weight"]}


def from_2(state: dict[str, Any]) -> dict[str, Any]:
    return {"weight_g": state["weight_kg"] * 1_000, "carrier": "post"}


@pytest.fixture
def registry() -> Registry:
    """One type in its third version, with the way up from both older ones."""
    made = Registry()
    made.register(ParcelSent)
    made.upcast("parcel.sent", 1, from_1)
    made.upcast("parcel.sent", 2, from_2)
    return made


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize(
    ("version", "state"),
    [
        (1, b'{"weight": 2}'),
        (2, b'{"weight_kg": 2}'),
        (3, b'{"weight_g": 2000, "carrier": "post"}'),
    ],
)
def test_every_version_is_read_as_the_current_one(registry: Registry, version: int, state: bytes) -> None:
    """Each upcaster makes the next version; the current one needs none."""
    assert ParcelSent(weight_g=2_000, carrier="post") == registry.decode("parcel.sent", version, state)


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize("version", [4, 99, -1])
def test_a_version_that_is_not_known_is_refused(registry: Registry, version: int) -> None:
    """A newer one, even when its state would fit, is never guessed at."""
    with pytest.raises(UnknownEvent, match=rf"^version {version} of event type parcel\.sent is not known"):
        registry.decode("parcel.sent", version, b'{"weight_g": 1, "carrier": "post"}')


@pytest.mark.contract("JRN-08")
def test_a_gap_in_the_way_up_is_refused() -> None:
    """A version whose upcaster is missing is not passed over."""
    registry = Registry()
    registry.register(ParcelSent)
    registry.upcast("parcel.sent", 1, from_1)

    for version in (1, 2):
        with pytest.raises(UnknownEvent, match=f"^version {version} "):
            registry.decode("parcel.sent", version, b'{"weight": 2, "weight_kg": 2}')


@pytest.mark.contract("JRN-08")
def test_a_type_that_is_not_registered_is_refused(registry: Registry) -> None:
    """A name that looks like a module's is not looked up there."""
    for unknown in ("parcel.lost", "counterfoil.domain.operation:OperationAdmitted", "operation.admitted"):
        with pytest.raises(UnknownEvent, match=f"^event type {unknown} is not known to this release$"):
            registry.decode(unknown, 1, b"{}")


@pytest.mark.contract("JRN-14")
@pytest.mark.parametrize("event_type", ["parcel.sent", "some.module:Thing"])
def test_version_0_is_not_ours(registry: Registry, event_type: str) -> None:
    """What came in below the openings is carried without being looked at."""
    assert registry.decode(event_type, 0, b"\x80 no JSON") is None


@pytest.mark.contract("JRN-08")
def test_a_type_is_registered_once(registry: Registry) -> None:
    """Two classes of one name would make the name mean two things."""
    with pytest.raises(ValueError, match=r"parcel\.sent is registered already"):
        registry.register(ParcelSent)


@pytest.mark.parametrize("state", [b'{"weight_g": 1}', b'{"weight_g": 1, "carrier": "x", "y": 2}', b"[]", b"{"])
def test_a_state_that_does_not_fit_is_an_error_without_its_content(registry: Registry, state: bytes) -> None:
    """Missing and unknown fields are not passed over."""
    with pytest.raises(ValidationError) as caught:
        registry.decode("parcel.sent", 3, state)

    assert "weight_g=" not in str(caught.value)
    assert "input_value" not in str(caught.value)


def test_an_event_is_never_altered() -> None:
    """Not by a slip of the code either."""
    event = ParcelSent(weight_g=1, carrier="post")

    with pytest.raises(ValidationError, match="frozen"):
        event.weight_g = 2  # type: ignore[misc]


def test_absent_fields_are_left_out() -> None:
    """The stored state has only what there is."""

    class Noted(Event):
        TYPE = "parcel.noted"
        note: str | None = None
        count: int = 0

    assert b'{"count":0}' == encode(Noted())
    assert b'{"note":"\xc3\xa9","count":1}' == encode(Noted(note="é", count=1))


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize("event_type", REGISTRY.types())
def test_names_are_stable_and_have_no_module_in_them(event_type: str) -> None:
    """`aggregate.happened`, from version 1."""
    cls = REGISTRY.types()[event_type]

    assert event_type == cls.TYPE
    assert cls.VERSION >= 1
    assert all(part.replace("_", "").isalpha() and part.islower() for part in event_type.split("."))
    assert 2 == len(event_type.split("."))
