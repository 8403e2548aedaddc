"""What goes to standard output: JSON for programs, and text and tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click

if TYPE_CHECKING:
    from counterfoil.infrastructure.reading import Page

R = TypeVar("R")

PAGE: Final = 500
"""Rows that are read at once, behind a list of any length."""
FIRST: Final = 100
"""Rows of a page that is asked for by `--after` alone."""


class Listing(Generic[R]):
    """
    The rows of a list, page by page.

    Without `limit` and `after` all of them, and `next` is None; otherwise at most `limit`, and then `next` is where to go on.
    """

    def __init__(self, fetch: Callable[[int, str | None], Page[R]], limit: int | None, after: str | None) -> None:
        self._fetch = fetch
        self._bounded = limit is not None or after is not None
        self._left = limit if limit is not None or not self._bounded else FIRST
        self._cursor = after
        self.next: str | None = None

    def pages(self) -> Iterator[Sequence[R]]:
        """Yield pages that are not empty."""
        more = True
        while more:
            page = self._fetch(PAGE if self._left is None else min(PAGE, self._left), self._cursor)
            if page.rows:
                yield page.rows
            self._cursor = page.next
            if self._left is not None:
                self._left -= len(page.rows)
            more = self._cursor is not None and self._left != 0
        self.next = self._cursor if self._bounded else None

    def print_json(self, to_json: Callable[[R], Any]) -> None:
        """Print one object on one line, while it is read."""
        write = sys.stdout.write
        write('{"rows": [')
        separator = ""
        for page in self.pages():
            for row in page:
                write(separator + json.dumps(to_json(row)))
                separator = ", "
        write(f'], "next": {json.dumps(self.next)}}}\n')

    def say_next(self) -> None:
        """Tell people where to go on, if there is more."""
        if self.next is not None:
            click.echo(f"There is more: go on with --after {self.next}", err=True)


def print_json(value: Any) -> None:
    """Print a value on one line."""
    click.echo(json.dumps(value))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; columns whose name begins with `#` hold numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row))
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # what a program reads is never folded
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines() if line.strip()))


def shown(value: object) -> str:
    """Return a value for people: what cannot be printed is escaped, so that no id moves the cursor of a terminal."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case timedelta():
            from counterfoil.domain.duration import in_words

            return in_words(value // timedelta(microseconds=1))
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in str(value))
