"""
What a host's statement may be inside a transaction that the journal runs: one statement, on the host's own tables.

PostgreSQL tells nobody beforehand what a statement will touch, so its text is looked at. That keeps a host from mistakes; what
keeps anybody from the journal's tables is the rights of roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

OURS: Final = (
    "names that begin with cf_ are the journal's; keep your tables under other names, and ask the journal through its own calls"
)
TRANSACTIONS: Final = "a transaction is not begun, ended or marked inside transact; return to commit all of it, raise to undo it"
SETTINGS: Final = (
    "SET, RESET, DISCARD, LISTEN, PREPARE and the like change the connection, which is the journal's; use SET LOCAL, or a "
    "connection of your own"
)
SEVERAL: Final = "one statement at a time is executed; call execute for each"

_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<text> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' )
    | (?P<place> %\([^)]*\)[sbt] )
    | "(?P<quoted> (?:[^"]|"")* )"
    | (?P<dollar> \$(?:[^\W\d]\w*)?\$ )
    | (?P<word> [^\W\d][\w$]* )
    | (?P<number> [\d][\w.]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_OUR_NAME: Final = re.compile(r"(?<![\w$])cf_", re.IGNORECASE)

_TRANSACTIONS: Final = {"abort", "begin", "commit", "end", "release", "rollback", "savepoint", "start"}
_SETTINGS: Final = {"deallocate", "discard", "listen", "load", "prepare", "reset", "set", "unlisten"}


def refusal(sql: str) -> str | None:
    """Return the rule that a statement of the host's breaks, None when it breaks none."""
    words: list[str] = []
    ended = False
    for kind, text in _tokens(sql):
        if kind == "other" and text == ";":
            ended = bool(words)
            continue
        if ended:
            return SEVERAL
        if kind == "quoted" and text.lower().startswith("cf_"):
            return OURS
        if kind == "body" and _OUR_NAME.search(text):
            return OURS
        if kind == "word" and text.lower().startswith("cf_"):
            return OURS
        words.append(text.lower() if kind == "word" else kind)
    match words[:2]:
        case ["prepare", "transaction"] | ["set", "transaction" | "constraints"]:
            return TRANSACTIONS
        case ["set", "local"]:
            return TRANSACTIONS if words[2:3] == ["transaction"] else None
        case [first, *_] if first in _TRANSACTIONS:
            return TRANSACTIONS
        case [first, *_] if first in _SETTINGS:
            return SETTINGS
    return None


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yield what a statement is made of, by kind, but for spaces and comments. A `body` is what stands between dollars."""
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None and found.lastgroup is not None
        kind, text, at = found.lastgroup, found[found.lastgroup], found.end()
        if kind == "comment":
            at = _after_comment(sql, at)
        elif kind == "dollar":
            end = sql.find(text, at)
            end = len(sql) if end < 0 else end
            yield "body", sql[at:end]
            at = end + len(text)
        elif kind != "space":
            yield kind, text


def _after_comment(sql: str, at: int) -> int:
    """Return where a comment ends, in which others may lie."""
    depth = 1
    while depth:
        found = _COMMENT_EDGE.search(sql, at)
        if found is None:
            return len(sql)
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at
