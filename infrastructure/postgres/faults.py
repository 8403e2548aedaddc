"""
What psycopg raises, in the journal's words.

The driver's error is never chained: its text may quote values, statements and whom it connected as.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import psycopg

from counterfoil.domain.errors import CounterfoilError, JournalDamaged, JournalRefused, JournalUnavailable, NotAJournal

_Raised = Callable[[str], CounterfoilError]

_LOST: Final = "the connection to the server was lost, or it cannot be reached; try again"
_RESTARTS: Final = "the server is starting up or shutting down; try again"
_FULL: Final = "the server takes no more connections; raise max_connections, or close some, and try again"
_COLLIDED: Final = "collided with another transaction; try again"
_ABSENT: Final = "is not a journal, or one that somebody is just making: the schema or its tables are not there"
_OTHER: Final = "does not have the tables and functions that this release needs; look with `counterfoil schema check`"
_STRANGER: Final = "the server does not let this user in; check the user, its password and pg_hba.conf"

_BY_STATE: Final[dict[str, tuple[_Raised, str]]] = {
    "3D000": (JournalRefused, "there is no such database; create it first"),
    "25006": (JournalUnavailable, "the server takes no changes now: it is a standby, or set to read-only; try again"),
    "25P03": (JournalUnavailable, "the transaction was idle for too long, and the server has ended it; try again"),
    "25P04": (JournalUnavailable, "the transaction took too long, and the server has ended it; try again"),
    "26000": (JournalUnavailable, "the session was reset by somebody else, such as a connection pooler; connect without one"),
    "3F000": (NotAJournal, _ABSENT),
    "40001": (JournalUnavailable, _COLLIDED),
    "40P01": (JournalUnavailable, _COLLIDED),
    "42501": (
        JournalRefused,
        "the role may not do this: a reader changes nothing, and looks up no ids of people, platforms and locks; connect as one "
        "that has what the journal's writer has",
    ),
    "42703": (JournalRefused, _OTHER),
    "42804": (JournalRefused, _OTHER),
    "42883": (JournalRefused, _OTHER),
    "42P01": (NotAJournal, _ABSENT),
    "53100": (JournalUnavailable, "the server's disk is full; make room and try again"),
    "53200": (JournalUnavailable, "the server has no memory left; try again"),
    "53300": (JournalUnavailable, _FULL),
    "55P03": (JournalUnavailable, "another connection holds the journal; try again"),
    "57014": (JournalUnavailable, "the server took too long, and the statement was cancelled; try again"),
    "57P01": (JournalUnavailable, "the connection was ended by an administrator, or the server is shutting down; try again"),
    "57P02": (JournalUnavailable, _RESTARTS),
    "57P03": (JournalUnavailable, _RESTARTS),
    "57P04": (JournalRefused, "the database was dropped"),
    "58030": (JournalUnavailable, "the server's disk fails to read or write; look at the server's log"),
    "XX001": (JournalDamaged, "is damaged: PostgreSQL finds a table or an index corrupted; restore a backup"),
    "XX002": (JournalDamaged, "is damaged: PostgreSQL finds a table or an index corrupted; restore a backup"),
}
_BY_CLASS: Final[dict[str, tuple[_Raised, str]]] = {
    "08": (JournalUnavailable, _LOST),
    "28": (JournalRefused, _STRANGER),
    "40": (JournalUnavailable, _COLLIDED),
    "53": (JournalUnavailable, "the server has too little of something; look at its log"),
}

_NAMES: Final = re.compile('"[^"]*"')
"""What the server quotes: names that might read like its own words."""

# While connecting, libpq gives no SQLSTATE, only the server's words. Those of a server that does not speak English are not
# understood, and get the general sentence.
_BY_WORDS: Final = tuple(
    (re.compile(words), found)
    for words, found in (
        (r"starting up|shutting down|not yet accepting|not accepting|in recovery mode", _BY_STATE["57P03"]),
        (r"too many (clients|connections)|connection slots are reserved", _BY_STATE["53300"]),
        (r"database \"\" does not exist", _BY_STATE["3D000"]),
        (r"authentication failed|no password supplied|no pg_hba.conf entry|pg_hba.conf rejects|is not permitted to log in"
         r"|role \"\" does not exist|permission denied for database", (JournalRefused, _STRANGER)),
        (r"SSL|certificate", (JournalRefused, "no encrypted connection comes about as the URL asks for it; check sslmode")),
        (r"[Ii]nvalid .*value|could not match", (JournalRefused, "libpq refuses the value of a parameter of the URL")),
    )
)  # fmt: skip


class Silence(psycopg.OperationalError):
    """The server has not answered for as long as a connection waits for it, which is closed then."""


def fault(error: psycopg.Error, name: str) -> CounterfoilError:
    """Return what to raise for an error of the driver's; `name` is how the journal is named."""
    raised, words = _meaning(error)
    return raised(f"{name}: {words}")


def _meaning(error: psycopg.Error) -> tuple[_Raised, str]:
    if isinstance(error, Silence | psycopg.errors.ConnectionTimeout):
        return JournalUnavailable, "the server does not answer; try again"
    state = error.sqlstate
    if state is not None:
        found = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
        return found or (JournalUnavailable, f"PostgreSQL could not do it (SQLSTATE {state})")
    if error.pgconn is not None:  # it is from an attempt to connect
        text = _NAMES.sub('""', str(error))
        return next((found for words, found in _BY_WORDS if words.search(text)), (JournalUnavailable, _LOST))
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return JournalUnavailable, _LOST
    return JournalUnavailable, f"psycopg could not do it ({type(error).__name__})"
