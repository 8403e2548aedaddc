"""One line of JSON becomes a model, or a reason that quotes nothing of it."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

REASONS: Final = 5
"""Faults of one line that are told."""

BOM: Final = b"\xef\xbb\xbf"


class Malformed(Exception):
    """The line is not what it should be; the message says why."""


def parse(line: bytes, model: type[M]) -> M:
    """Return the model; raises `Malformed`."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Malformed("is not UTF-8") from None
    if not text.strip():
        raise Malformed("is empty; write one JSON object a line")
    if text.startswith("\ufeff"):
        raise Malformed("begins with a byte order mark, which may only stand before the first line")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise Malformed(f"is not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise Malformed("is not JSON that can be read: it is nested too deeply") from None
    except ValueError:
        raise Malformed("is not JSON: it holds a number that JSON does not have, or that is too long") from None
    if not isinstance(value, dict):
        raise Malformed(f"must be a JSON object, not {_KINDS.get(type(value), 'something else')}")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Malformed(reasons(error, model)) from None


_KINDS: Final = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


_OURS: Final = {
    "missing": "is missing",
    "frozen_set_type": "must be a list",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "string_type": "must be text",
    "dict_type": "must be an object",
    "string_pattern_mismatch": "must be 32 hex digits",
}
"""What pydantic says of types of Python is said of JSON."""
_HERE: Final = {"; write str(…)": "; write it in quotes", "datetime.now(UTC)": "2026-01-05T09:00:00Z"}


def _refuse(_constant: str) -> NoReturn:
    raise ValueError


def reasons(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what is wrong, field by field; values and names that came from outside are not quoted."""
    found = []
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        place: tuple[Any, ...] = fault["loc"]
        field = next((str(part) for part in place[:1] if part in model.model_fields), None)
        if fault["type"] == "extra_forbidden":
            reason = f"there is a field that is not known; the fields are {', '.join(model.model_fields)}"
        else:
            message = _OURS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
            for ours, here in _HERE.items():
                message = message.replace(ours, here)
            reason = message[:1].lower() + message[1:]
            reason = reason if field is None else f"{field} {reason}"
        if reason not in found:
            found.append(reason)
    more = f"; and {len(found) - REASONS} more" if len(found) > REASONS else ""
    return "; ".join(found[:REASONS]) + more
