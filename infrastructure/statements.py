"""
SQL stands in files, one named and described operation after the other; this reads them once.

A statement is called by the file and the name that it has for every engine, and each engine has its own text for it. What several
statements share is a fragment, which a line `-- include: NAME` puts in its place.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^ *-- include: (\w+)$", re.MULTILINE)


class Statement(NamedTuple):
    """What a statement is called, whatever the engine."""

    file: str
    name: str


class Names:
    """The statements that stand in the files of one name, as attributes."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Statement:
        return Statement(self._file, name)


class Statements:
    """The statements of one file, by name as attributes."""

    def __init__(self, text: str) -> None:
        parts = _NAME.split(text)[1:]
        blocks = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
        fragments = {name: _bare(body) for kind, name, body in blocks if kind == "fragment"}
        self._by_name = {
            name: _bare(_INCLUDE.sub(lambda found: fragments[found[1]], body)) for kind, name, body in blocks if kind == "name"
        }

    def __getattr__(self, name: str) -> str:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"no statement is called {name}") from None


def _bare(body: str) -> str:
    """Return a block without its description."""
    return "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()


@cache
def statements(path: str) -> Statements:
    """Read a file under `sql/`, for example `sqlite/append.sql`."""
    return Statements(files(__package__).joinpath("sql", *path.split("/")).read_text("utf-8"))


@cache
def text_of(engine: str, statement: Statement) -> str:
    """Return an engine's text of a statement."""
    text: str = getattr(statements(f"{engine}/{statement.file}.sql"), statement.name)
    return text


def read_all(engine: str) -> None:
    """Read what an engine executes now, and not when it is first needed: a host may have given up its rights until then."""
    for file in files(__package__).joinpath("sql", engine).iterdir():
        statements(f"{engine}/{file.name}")
