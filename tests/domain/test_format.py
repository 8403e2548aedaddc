"""The document and the registered types say the same, and no type changes without being seen."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

import counterfoil.domain
from counterfoil.domain.event import REGISTRY, Event, Header, encode
from counterfoil.domain.ids import CLASS_WORD

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

for module in pkgutil.iter_modules(counterfoil.domain.__path__):  # a type is registered by its module
    import_module(f"counterfoil.domain.{module.name}")

TYPES = REGISTRY.types()
PREFIXES = {"opn-", "op-", "rt-", "lk-", "sc-"}


def section(document: str, number: int) -> str:
    """One section of the document, without its heading."""
    return document.split(f"\n## {number}. ")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of a table, heads and rules left out."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [row for row in cells if row and row[0].startswith("`")]


def fields_in(cell: str) -> set[str]:
    """The fields that a cell of section 6 lists: what is in brackets or after a colon explains them."""
    named: set[str] = set()
    for clause in re.sub(r"\([^()]*\)", "", cell).split(";"):
        for part in clause.split(":")[0].split(","):
            found = re.match(r"\s*`(\w+)`", part)
            if found:
                named.add(found[1])
    return named


def bare(schema: Any) -> Any:
    """A schema without what is only words."""
    if isinstance(schema, dict):
        return {
            key: bare(value) for key, value in schema.items() if not (key in ("title", "description") and isinstance(value, str))
        }
    return [bare(each) for each in schema] if isinstance(schema, list) else schema


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize("cls", TYPES.values(), ids=lambda cls: f"{cls.TYPE}.{cls.VERSION}")
def test_schema(cls: type[Event], snapshot: SnapshotAssertion) -> None:
    """
    The stored shape of each type.

    A snapshot that was released is never updated: a changed shape is a new version with an upcaster and a
    snapshot of its own.
    """
    assert bare(cls.model_json_schema(mode="serialization")) == snapshot(extension_class=JSONSnapshotExtension)


@pytest.mark.contract("JRN-08")
def test_the_document_lists_the_registered_types(document: str) -> None:
    """Section 6 has each of them once, and no other."""
    listed = [row[0].strip("`") for row in rows(section(document, 6))]

    assert sorted(TYPES) == sorted(listed)


@pytest.mark.contract("JRN-08")
@pytest.mark.parametrize("event_type", TYPES)
def test_the_document_lists_the_fields_of_a_type(event_type: str, document: str) -> None:
    """By exactly their names."""
    (row,) = (row for row in rows(section(document, 6)) if row[0] == f"`{event_type}`")

    assert set(TYPES[event_type].model_fields) == fields_in(row[2])
    assert row[1].strip("`") in PREFIXES


@pytest.mark.contract("JRN-13")
def test_the_document_lists_the_columns_of_the_header(document: str) -> None:
    """Section 2 has them in the order in which they are hashed."""
    columns = [row[0].strip("`") for row in rows(section(document, 2))]

    assert [*Header._fields, "state", "digest"] == columns[6:]
    assert [
        "position",
        "recorded_at",
        "originator_id",
        "originator_version",
        "type",
        "type_version",
    ] == columns[:6]


@pytest.mark.contract("JRN-07")
@pytest.mark.parametrize("event_type", TYPES)
def test_no_state_has_room_for_free_text(event_type: str) -> None:
    """A text field is an enumeration, a class word, a hex digest, or one of the ids and names listed here."""
    ids = {"route", "principal", "session_id", "subject", "fence"}
    words_of_the_host = {"alias", "revision", "lock", "leaf"}
    ours = {"release"}
    schema = TYPES[event_type].model_json_schema(mode="serialization")
    for holder in (schema, *schema.get("$defs", {}).values()):
        for name, field in holder.get("properties", {}).items():
            for choice in field.get("anyOf", [field]):
                if choice.get("type") == "string" and not choice.keys() & {"enum", "const", "pattern"}:
                    assert name in ids | words_of_the_host | ours, f"{event_type}.{name}"


@pytest.mark.contract("JRN-07")
@pytest.mark.parametrize("event_type", TYPES)
def test_reasons_are_class_words(event_type: str) -> None:
    """Reason, code and action never hold more than a word."""
    properties = TYPES[event_type].model_json_schema()["properties"] if TYPES[event_type].model_fields else {}
    for name in {"reason", "code", "action"} & set(properties):
        patterns = [choice.get("pattern") for choice in properties[name].get("anyOf", [properties[name]])]
        assert CLASS_WORD in patterns


def test_the_document_says_which_class_words_there_are(document: str) -> None:
    """The pattern is the same in both."""
    assert f"`{CLASS_WORD.strip('^$')}`" in section(document, 6)


@pytest.mark.parametrize("event_type", [name for name, cls in TYPES.items() if not cls.model_fields])
def test_a_type_without_fields_is_an_empty_object(event_type: str) -> None:
    """Not an empty text."""
    cls: type[Event] = TYPES[event_type]

    assert b"{}" == encode(cls())
