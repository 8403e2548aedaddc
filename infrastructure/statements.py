"""SQL stands in files, one named and described operation after the other; this reads them once."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Statements:
    """The statements of one file, by name as attributes."""

    def __init__(self, text: str) -> None:
        parts = _NAME.split(text)[1:]
        self._by_name = {
            name: "\n".join(line for line in body.splitlines() if not line.startswith("--")).strip()
            for name, body in zip(parts[::2], parts[1::2], strict=True)
        }

    def __getattr__(self, name: str) -> str:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"no statement is called {name}") from None


@cache
def statements(path: str) -> Statements:
    """Read a file under `sql/`, for example `sqlite/append.sql`."""
    return Statements(files(__package__).joinpath("sql", *path.split("/")).read_text("utf-8"))
