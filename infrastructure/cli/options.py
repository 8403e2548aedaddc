"""What verbs take alike: the journal, `--json`, pages, durations, ids, locks. Loads nothing of weight until a value is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

MEMORY: Final = ":memory:"

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic for type checkers alone, in the older of the releases that are allowed


class JournalName(ParamType):
    """The path of a journal, or its URL on PostgreSQL; what is seen to be wrong without opening it is wrong usage."""

    name = "journal"

    def __init__(self, *, exists: bool) -> None:
        self.exists = exists

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = str(value)
        if "://" in path:
            return self._url(path, param, ctx)
        if not path or "\0" in path or not _is_utf8(path):
            self.fail("name a path that is not empty, in UTF-8 and without NUL", param, ctx)
        if path == MEMORY:
            if self.exists:
                self.fail(f"a journal in {MEMORY} is seen by the process that made it alone: name a file", param, ctx)
            return path
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            self._missing(path, param, ctx)
        except OSError as error:
            self.fail(f"{path} cannot be reached: {error.strerror}", param, ctx)
        else:
            if stat.S_ISDIR(mode):
                self.fail(f"{path} is a folder; name a file in it", param, ctx)
        return path

    def _url(self, url: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from counterfoil.domain.errors import InvalidValue
        from counterfoil.infrastructure.naming import is_postgres, path_of

        try:
            if not is_postgres(url):
                path_of(url)
            from counterfoil.infrastructure.postgres.naming import parse

            parse(url)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)
        return url

    def _missing(self, path: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        if not os.path.isdir(os.path.dirname(path) or "."):
            self.fail(f"the folder of {path} does not exist; create it first", param, ctx)
        if self.exists:
            self.fail(f"{path} does not exist; a journal is made by `counterfoil run`", param, ctx)


class JournalURL(ParamType):
    """The URL of a journal on PostgreSQL; unless it `connects`, nothing but the schema that it names is looked at."""

    name = "url"

    def __init__(self, *, connects: bool = True) -> None:
        self.connects = connects

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from counterfoil.domain.errors import InvalidValue
        from counterfoil.infrastructure.postgres.naming import parse, schema_of

        try:
            schema_of(str(value))
            if self.connects:
                parse(str(value))
        except InvalidValue as error:
            self.fail(str(error), param, ctx)
        return str(value)


class SchemaName(ParamType):
    """The name of a schema of PostgreSQL."""

    name = "schema"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from counterfoil.domain.errors import InvalidValue
        from counterfoil.infrastructure.postgres.naming import checked_schema

        try:
            return checked_schema(str(value))
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class Identifier(ParamType):
    """An id as the platform or the journal gave it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text or "\0" in text or not _is_utf8(text):
            self.fail("an id is not empty, in UTF-8 and without NUL", param, ctx)
        return text


class LockName(ParamType):
    """The name of a lock of hosts; with `routes` that of the routes' too."""

    name = "name"

    def __init__(self, *, routes: bool = False) -> None:
        self.routes = routes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from counterfoil.domain.errors import InvalidValue
        from counterfoil.domain.hold import checked_name
        from counterfoil.domain.ids import ROUTE_LOCK

        if value == ROUTE_LOCK:
            if not self.routes:
                self.fail(
                    f"{ROUTE_LOCK} is held by those who run turns: `counterfoil timeline` tells what happened to it, and "
                    "`counterfoil reconcile --force` fences a holder out",
                    param,
                    ctx,
                )
            return ROUTE_LOCK
        try:
            return checked_name(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class LockKey(ParamType):
    """A key of a lock, as its text."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from counterfoil.domain.errors import InvalidValue
        from counterfoil.domain.hold import checked_key

        try:
            return checked_key(value)
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class WholeNumber(ParamType):
    """A whole number from `least`, as SQLite holds it."""

    name = "number"
    MOST: Final = 2**63 - 1

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and self.least <= int(text) <= self.MOST):
            self.fail(f"it must be a whole number from {self.least} to {self.MOST}", param, ctx)
        return int(text)


class Duration(ParamType):
    """A duration like `30s`, as microseconds."""

    name = "duration"

    def __init__(self, most: str) -> None:
        """`most` is the longest, as it is written."""
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from counterfoil.domain.duration import microseconds
        from counterfoil.domain.errors import InvalidValue

        try:
            duration = microseconds(str(value), name="it")
        except InvalidValue as error:
            self.fail(str(error), param, ctx)
        if not 1_000 <= duration <= microseconds(self._most, name="most"):
            self.fail(f"it must be from 1ms to {self._most}", param, ctx)
        return duration


class Instant(ParamType):
    """An instant with its time zone, in the form of ISO 8601."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        example = "for example 2026-01-05T09:00:00Z"
        try:
            instant = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"it must be an instant in the form of ISO 8601, {example}", param, ctx)
        if instant.tzinfo is None:
            self.fail(f"it must have a time zone, {example}", param, ctx)
        return instant


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def journal_argument(*, exists: bool = True) -> Callable[[F], F]:
    """The journal, as the first argument; with `exists` it must be there already."""
    return click.argument("journal", type=JournalName(exists=exists))


def json_option(what: str) -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} instead of a table.")


def page_options(function: F) -> F:
    """`--limit` and `--after`; without them a list has every row."""
    limit = click.option("--limit", type=WholeNumber(1), metavar="N", help="Print at most N rows, and where to go on.")
    after = click.option("--after", metavar="CURSOR", help="Go on where an earlier list has ended.")
    return limit(after(function))


def deliver_options(function: F) -> F:
    """How replies are sent, and for whom."""
    options = (
        click.option(
            "--deliver", metavar="MODULE:FUNCTION", help="The Python callable that sends a reply; it gets a counterfoil.Reply."
        ),
        click.option(
            "--deliver-command",
            metavar="COMMAND",
            help="The program that sends a reply; it gets a JSON object on standard input. Exit status 0 is delivered, "
            "1 not delivered, anything else unknown.",
        ),
        click.option(
            "--deliver-timeout",
            type=Duration("1h"),
            default="30s",
            show_default=True,
            help="How long one sending may take; afterwards it is unknown whether it arrived.",
        ),
        click.option(
            "--grants",
            type=click.Path(),
            metavar="FILE",
            help="JSON Lines that name who may write; everybody else is denied. Without it everybody is granted, in tenant "
            "local, and what belongs to other tenants is neither run nor sent.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
