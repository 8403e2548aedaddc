"""Ids: what text may be one, and how the ids of aggregates and the pseudonyms of people are derived."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from .errors import InvalidValue
from .framing import keyed

ID_BYTES: Final = 256
"""The longest id, in bytes of UTF-8 (the constant of the system that this continues)."""

ROUTE_LOCK: Final = "counterfoil.route"
"""The name of the lock that a route is run under; hosts' names have no dot."""

SubjectKind: TypeAlias = Literal["conversation", "thread", "actor", "principal"]


def _text(value: Any) -> str:
    """Accept text that every engine stores and orders alike; say what else it was, never quote it."""
    if not isinstance(value, str):
        cure = "; write str(…)" if isinstance(value, int) and not isinstance(value, bool) else ""
        raise PydanticCustomError("id_type", "must be text, not {kind}{cure}", {"kind": type(value).__name__, "cure": cure})
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        raise PydanticCustomError("id_surrogate", "must not hold a lone surrogate") from None
    if "\0" in value:
        raise PydanticCustomError("id_nul", "must not hold NUL")
    if length > ID_BYTES:
        raise PydanticCustomError("id_length", "must be at most {most} bytes, not {length}", {"most": ID_BYTES, "length": length})
    return value


def _present(value: Any) -> str:
    text = _text(value)
    if not text:
        raise PydanticCustomError("id_empty", "must not be empty")
    return text


Id: TypeAlias = Annotated[str, BeforeValidator(_present)]
"""Text of 1 to 256 bytes, without NUL and lone surrogates."""

OptionalId: TypeAlias = Annotated[str | None, BeforeValidator(lambda value: None if value is None else _present(value))]


def checked_id(value: Any, *, name: str) -> str:
    """Return an id that is no field of a model; raises `InvalidValue` that names it."""
    try:
        return _present(value)
    except PydanticCustomError as error:
        raise InvalidValue(f"{name} {error.message()}") from None


_OURS: Final = re.compile(r"(op|rt|lk|opn|sc)-[0-9a-f]{32}")


def is_our_originator(value: str) -> bool:
    """Tell whether an originator id has the form of the journal's own aggregates, which take no events of others."""
    return _OURS.fullmatch(value) is not None


_OPERATION: Final = re.compile(r"op-[0-9a-f]{32}")


def is_operation_id(value: str) -> bool:
    """Tell whether a text has the form of an operation's id; nothing else is looked up as one."""
    return _OPERATION.fullmatch(value) is not None


CLASS_WORD: Final = r"^[a-z0-9_]{1,64}$"
ClassWord: TypeAlias = Annotated[str, Field(pattern=CLASS_WORD)]
"""A reason in an event: a word of a small vocabulary, never free text."""


def checked_word(value: Any, *, name: str, cure: str = "") -> str:
    """Return a class word that is no field of a model; raises `InvalidValue` that names it."""
    if not isinstance(value, str) or re.fullmatch(CLASS_WORD.strip("^$"), value) is None:
        raise InvalidValue(f"{name} must be a word of 1 to 64 of a-z, 0-9 and _{cure}")
    return value


class ScopeKey(NamedTuple):
    """The opaque id of a scope and the key under which its pseudonyms are made."""

    scope_id: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"ScopeKey({self.scope_id.hex()})"

    def pseudonym(self, kind: SubjectKind, connection: str | None, value: str) -> bytes:
        """
        Return what stands for an id in events. Ids of a platform are its connection's; a principal is the host's, and has none.
        """
        return keyed(self.key, kind, connection, value)

    def platform_event(self, connection: str, event_id: str) -> bytes:
        """Return what stands for a platform's event id; it is the correlation of all that follows from it."""
        return keyed(self.key, "event", connection, event_id)

    def operation(self, connection: str, conversation: bytes, event: bytes, occurrence: int) -> str:
        return "op-" + keyed(self.key, "operation", connection, conversation, event, occurrence).hex()

    def route(self, connection: str, conversation: bytes, thread: bytes | None, actor: bytes, alias: str) -> str:
        return "rt-" + keyed(self.key, "route", connection, conversation, thread, actor, alias).hex()

    def session(self, route: str, generation: int) -> str:
        return "ses-" + keyed(self.key, "session", route, generation).hex()


@lru_cache(maxsize=4_096)
def lock_id(journal_key: bytes, name: str, key: str) -> str:
    """Return the originator id of one key of a lock. The same few are asked for again and again."""
    return "lk-" + keyed(journal_key, "lock", name, key).hex()


def opening_originator(journal_key: bytes, opening_id: int) -> str:
    return "opn-" + keyed(journal_key, "opening", opening_id).hex()


def scope_originator(scope_id: bytes) -> str:
    return "sc-" + scope_id.hex()
