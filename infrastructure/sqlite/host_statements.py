"""
The host's own SQL on the writer's connection, inside the transaction of a group.

What a group appends is decided first and written at its end, so a host's statement never stands beside rows of ours that are
half written, and it sees the host's tables alone. SQLite's authorizer holds it to them. It is installed once, because
installing it makes SQLite compile every statement anew, and looks only while a statement of the host's runs.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from counterfoil.domain.errors import InvalidValue

from ..tx import Parameters, Result

_SAVEPOINT: Final = "counterfoil_transact"

OURS: Final = (
    "names that begin with cf_ are the journal's; keep your tables under other names, and ask the journal through its own calls"
)
TRANSACTIONS: Final = "a transaction is not begun, ended or marked inside transact; return to commit all of it, raise to undo it"
SETTINGS: Final = "PRAGMA, ATTACH and DETACH change the connection, which is the journal's; use a connection of your own for them"
SEQUENCES: Final = (
    "sqlite_sequence, sqlite_stat1 and its like, and sqlite_dbpage hold what is the journal's too; leave them to SQLite"
)
HIDES: Final = "a temporary table or view named json_each hides a function that the journal reads with; give it another name"

_IN_TABLES: Final = {sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE}
_WRITES: Final = _IN_TABLES - {sqlite3.SQLITE_READ}
_UNNAMED: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_RULES: Final = {
    sqlite3.SQLITE_TRANSACTION: TRANSACTIONS,
    sqlite3.SQLITE_SAVEPOINT: TRANSACTIONS,
    sqlite3.SQLITE_ATTACH: SETTINGS,
    sqlite3.SQLITE_DETACH: SETTINGS,
}
_DEFINES: Final = {
    sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_CREATE_TEMP_VIEW,
    sqlite3.SQLITE_CREATE_TRIGGER,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
    sqlite3.SQLITE_ALTER_TABLE,
}
"""What the authorizer is not told all of: what a view or trigger will touch, and what a table is renamed to."""
_USED: Final = "json_each"
"""What the journal reads lists with, as `temp.json_each`: no table of the file hides that, and one of the connection would."""
_NAMES: Final = {
    sqlite3.SQLITE_CREATE_TABLE,
    sqlite3.SQLITE_CREATE_TEMP_TABLE,
    sqlite3.SQLITE_CREATE_VIEW,
    sqlite3.SQLITE_CREATE_TEMP_VIEW,
    sqlite3.SQLITE_CREATE_VTABLE,
}
_OUR_NAME: Final = re.compile(r"(?<![\w$])cf(_|(?![\w$]))", re.IGNORECASE)
"""A name of ours in the text of a statement, or `cf`: a full-text table of that name has parts whose names are ours."""
_DROPS: Final = {
    sqlite3.SQLITE_DROP_TABLE,
    sqlite3.SQLITE_DROP_INDEX,
    sqlite3.SQLITE_DROP_TEMP_TABLE,
    sqlite3.SQLITE_DROP_TEMP_INDEX,
    sqlite3.SQLITE_DROP_VTABLE,
}
_MOVES: Final = {sqlite3.SQLITE_ALTER_TABLE, *_DROPS}
_ANALYZES: Final = re.compile(r"(?>[\s;]|--[^\n]*|/\*.*?\*/)*+analyze\b", re.IGNORECASE | re.DOTALL)
_OWN_QUESTIONS: Final = {"data_version", "page_size", "quick_check"}
"""Pragmas that SQLite asks of itself: a full-text table, an r-tree, and ALTER TABLE when it adds a CHECK."""


class Statement:
    """A statement of the host's while it is compiled and runs."""

    def __init__(self, sql: str) -> None:
        self.mentions = _OUR_NAME.search(sql) is not None
        """Whether a name of ours stands in it."""
        self.mentions_used = _USED in sql.lower()
        """Whether the name of the function stands in it that the journal reads lists with."""
        self.moves = False
        """Whether it is known to rename or drop something, for which SQLite changes tables of its own."""
        self.analyzes = _ANALYZES.match(sql) is not None
        """Whether SQLite gathers statistics in it, and writes them."""
        self.broken: str | None = None
        """The rule that it broke."""


class Authorizer:
    """Tell SQLite what a statement may do while it compiles it: everything, unless it is the host's."""

    def __init__(self) -> None:
        self._statement: Statement | None = None

    @contextmanager
    def looking_at(self, statement: Statement | None) -> Iterator[None]:
        """
        Hold what is compiled meanwhile to the rules for this statement of the host's; with None, to no rules, as it is ours.

        One may run in another, where a parameter is an object of the host's that has code.
        """
        before, self._statement = self._statement, statement
        try:
            yield
        finally:
            self._statement = before

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
        statement = self._statement
        if statement is None:
            return sqlite3.SQLITE_OK
        statement.moves = statement.moves or action in _MOVES
        broken = _rule(statement, action, first, second, database)
        if broken is None:
            return sqlite3.SQLITE_OK
        statement.broken = broken
        return sqlite3.SQLITE_DENY


def _rule(statement: Statement, action: int, first: str | None, second: str | None, database: str | None) -> str | None:
    """Return the rule that is broken; names come in any case, and SQLite does not tell cases apart."""
    if action in _UNNAMED:
        return None
    if action == sqlite3.SQLITE_PRAGMA:
        asks = first in _OWN_QUESTIONS and (second is None or first == "quick_check")
        return None if asks else SETTINGS
    if action in _RULES:
        return _RULES[action]
    names = [name.lower() for name in ((first,) if action in _IN_TABLES else (first, second)) if name is not None]
    if any(name.startswith("cf_") for name in names) or (action in _DEFINES and statement.mentions):
        return OURS
    if (action in _NAMES and database == "temp" and names[:1] == [_USED]) or (
        action == sqlite3.SQLITE_ALTER_TABLE and first == "temp" and statement.mentions_used
    ):
        return HIDES
    return SEQUENCES if names and _is_kept_by_sqlite(statement, action, names[0]) else None


def _is_kept_by_sqlite(statement: Statement, action: int, name: str) -> bool:
    """Tell whether a host changes by itself what SQLite keeps about all tables, those of the journal among them."""
    if name == "sqlite_dbpage":
        return True
    if name.startswith("sqlite_stat") and action in _DROPS:
        return True
    if action not in _WRITES or statement.moves:
        return False
    return name == "sqlite_sequence" or (name.startswith("sqlite_stat") and not statement.analyzes)


class HostStatements:
    """Execute a host's statements under a savepoint, which is released or rolled back as a whole."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._authorizer = Authorizer()
        connection.set_authorizer(self._authorizer)

    def execute(self, sql: str, parameters: Parameters) -> Result:
        """
        Execute one statement; what SQLite has against it is raised as it is.

        Raises `InvalidValue` for what the host may not do; nothing of the statement is done then.
        """
        if not isinstance(sql, str):
            raise InvalidValue(f"sql must be text, not {type(sql).__name__}")
        if sql.lstrip("; \t\r\n").upper().startswith("PRAGMA"):
            raise InvalidValue(SETTINGS)
        statement = Statement(sql)
        try:
            with self._authorizer.looking_at(statement):
                # Python keeps compiled statements by their text. No statement of ours ends in a space, so what was compiled for
                # us, when everything was allowed, is never found under a text of the host's.
                cursor = self._connection.execute(sql + " ", parameters)
                return Result(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)
        except sqlite3.Error:
            if statement.broken is None:
                raise
        raise InvalidValue(statement.broken)

    def suspended(self) -> AbstractContextManager[None]:
        """Let the journal's own statements be compiled meanwhile, where a parameter of a running statement calls `tx`."""
        return self._authorizer.looking_at(None)

    # The savepoint.

    def begin(self) -> None:
        self._connection.execute(f"SAVEPOINT {_SAVEPOINT}")

    def release(self) -> None:
        """Keep what was done since `begin`."""
        self._connection.execute(f"RELEASE {_SAVEPOINT}")

    def rollback(self) -> None:
        """Undo what was done since `begin`."""
        self._connection.execute(f"ROLLBACK TO {_SAVEPOINT}")
        self.release()

    @property
    def ended(self) -> bool:
        """Whether a statement has made SQLite roll back the whole transaction, as `INSERT OR ROLLBACK` does."""
        return not self._connection.in_transaction
