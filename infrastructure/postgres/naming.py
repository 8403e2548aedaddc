"""
How a journal on PostgreSQL is named: a URL of libpq's, with one parameter of ours, `schema`.

What a URL tells of a user, a password or a host is in no message: errors name the database and the schema.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from counterfoil.domain.errors import InvalidValue, JournalRefused

DEFAULT_SCHEMA: Final = "counterfoil"
_SCHEMES: Final = ("postgresql", "postgres")
NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names, and then two may be one."""
_PARAMETER: Final = re.compile(r"[a-z_]{1,32}")
_PORTS: Final = re.compile(r"[0-9,]*")
_SECONDS: Final = re.compile(r"-?[0-9]*")
_DRIVER: Final = re.compile(r"[a-z0-9_]{1,32}")
_ESCAPE: Final = "in a user or a password write % as %25, @ as %40, / as %2F and ? as %3F"


class Address(NamedTuple):
    """Where a journal is. Two addresses that differ may be the same journal, under two names of a server."""

    conninfo: str
    """What libpq connects with; it may hold a password."""
    schema: str
    name: str
    """How errors and messages name the journal: as a URL without a user, a password or a host."""

    def __repr__(self) -> str:
        return f"Address({self.name})"


def names_postgres(url: str) -> bool:
    """Tell whether a journal's name is a URL of PostgreSQL's, be it one that `parse` refuses."""
    return _scheme(url).partition("+")[0] in _SCHEMES


def parse(url: str) -> Address:
    """
    Return where the journal is that a URL names.

    Raises `InvalidValue` for what is no such URL, and `JournalRefused` where psycopg is not installed.
    """
    require_driver()
    scheme = _scheme(url)
    base, _, driver = scheme.partition("+")
    if base not in _SCHEMES:
        raise InvalidValue("a journal on PostgreSQL is named by a URL that begins with postgresql://")
    if driver or "+" in scheme:
        shown = f"+{driver}" if _DRIVER.fullmatch(driver) else "what follows the +"
        raise InvalidValue(f"name the journal by postgresql://… without {shown}; counterfoil connects through psycopg")
    if "\0" in url:
        raise InvalidValue("the URL of a journal must not hold NUL")
    try:
        url.encode()
    except UnicodeEncodeError:
        raise InvalidValue("the URL of a journal must be text without lone surrogates") from None
    user, place, query = _split(url[len(scheme) + len("://") :])
    if "@" in place:
        raise InvalidValue(f"the URL of a journal cannot be understood; {_ESCAPE}")
    schema, passed = _take_schema(query)
    conninfo, database = _conninfo(f"postgresql://{user}{place}?{passed}")
    return Address(conninfo, schema, f"postgresql:///{quote(database, safe='')}?schema={quote(schema, safe='')}")


def schema_of(url: str) -> str:
    """Return the schema that a URL names, which needs no driver; whatever else it says is not looked at."""
    if not names_postgres(url):
        raise InvalidValue("a journal on PostgreSQL is named by a URL that begins with postgresql://")
    _, _, query = _split(url[len(_scheme(url)) + len("://") :])
    return _take_schema(query)[0]


def without_password(url: str) -> str:
    """Return a URL that was parsed as it may be shown: whoever uses it gives the password anew, or has it in a file."""
    user, place, query = _split(url[len(_scheme(url)) + len("://") :])
    name = user.rstrip("@").partition(":")[0]
    kept = [each for each in query.split("&") if each and unquote(each.partition("=")[0]) not in ("password", "sslpassword")]
    return f"postgresql://{name}{'@' if name else ''}{place}{'?' if kept else ''}{'&'.join(kept)}"


def with_schema(url: str, schema: str) -> str:
    """Return a URL that was parsed, of another schema in the same database."""
    user, place, query = _split(url[len(_scheme(url)) + len("://") :])
    passed = _take_schema(query)[1]
    return f"postgresql://{user}{place}?{passed}{'&' if passed else ''}schema={quote(schema, safe='')}"


def quoted(name: str) -> str:
    """Return a name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def require_driver() -> None:
    """Raise `JournalRefused` where psycopg, or the libpq that it needs, is not installed."""
    try:
        import psycopg  # noqa: F401 - asked here, so that its absence is a sentence
    except ImportError:
        raise JournalRefused("a journal on PostgreSQL needs psycopg: pip install 'counterfoil[postgres]'") from None


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def _split(rest: str) -> tuple[str, str, str]:
    """Part what follows the scheme into user, place and query, as libpq does: a user and a password may hold a question mark."""
    found = re.search("[@/]", rest)
    start = found.end() if found is not None and found[0] == "@" else 0
    place, _, query = rest[start:].partition("?")
    return rest[:start], place, query


def _take_schema(query: str) -> tuple[str, str]:
    """Return the schema that a query names, and the query without it."""
    schemas, passed = [], []
    for parameter in query.split("&") if query else []:
        key, _, value = parameter.partition("=")
        if unquote(key) == "schema":
            schemas.append(value)
        else:
            passed.append(parameter)
    if len(schemas) > 1:
        raise InvalidValue("the URL of a journal must name one schema, not several")
    return checked_schema(_unquoted(schemas[0])) if schemas else DEFAULT_SCHEMA, "&".join(passed)


def _unquoted(value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidValue("schema must be text in UTF-8") from None


def checked_schema(schema: str) -> str:
    """Return the name of a schema that may hold a journal; raises `InvalidValue` for another."""
    try:
        size = len(schema.encode())
    except UnicodeEncodeError:
        raise InvalidValue("schema must be text without lone surrogates") from None
    if not 1 <= size <= NAME_BYTES:
        raise InvalidValue(f"schema must have 1 to {NAME_BYTES} bytes, not {size}")
    if "\0" in schema:
        raise InvalidValue("schema must not hold NUL")
    if schema.startswith("pg_") or schema in ("$user", "information_schema"):
        raise InvalidValue("schema must not be one of PostgreSQL's own: pg_…, information_schema or $user")
    return schema


def _conninfo(url: str) -> tuple[str, str]:
    """Return what libpq makes of a URL without our parameter, and the database that it names, which may be none."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parameters = conninfo_to_dict(url)
    except (Error, UnicodeDecodeError):
        raise InvalidValue(_complaint(url.partition("?")[2])) from None
    if not _PORTS.fullmatch(str(parameters.get("port", ""))):
        raise InvalidValue(f"the port in the URL of a journal must be a number; {_ESCAPE}")
    if not _SECONDS.fullmatch(str(parameters.get("connect_timeout", ""))):
        raise InvalidValue("connect_timeout in the URL of a journal must be whole seconds")
    return make_conninfo("", **parameters), str(parameters.get("dbname", ""))


def _complaint(query: str) -> str:
    """Say what libpq dislikes, whose own words quote the URL; and name a parameter only where it can be no part of a password."""
    from psycopg import pq

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | {"ssl"}
    for parameter in query.split("&"):
        key = unquote(parameter.partition("=")[0])
        if "@" not in query and key not in known and _PARAMETER.fullmatch(key):
            return f"the URL of a journal has a parameter that neither libpq nor counterfoil knows: {key}"
    return f"the URL of a journal cannot be understood; {_ESCAPE}"
