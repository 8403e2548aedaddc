"""Names of journals on PostgreSQL: what is understood, and what is refused without a word of what it held."""

from __future__ import annotations

import sys

import pytest
from psycopg.conninfo import conninfo_to_dict

from counterfoil.domain.errors import InvalidValue, JournalRefused
from counterfoil.infrastructure.postgres.naming import Address, names_postgres, parse, quoted

SECRETS = ("s3cret", "zoe", "db.example")


@pytest.mark.parametrize(
    ("url", "schema", "parameters"),
    [
        ("postgresql://", "counterfoil", {}),
        ("postgres://db/chat", "counterfoil", {"host": "db", "dbname": "chat"}),
        ("PostgreSQL://db/chat", "counterfoil", {"host": "db", "dbname": "chat"}),
        ("postgresql:///chat?schema=a", "a", {"dbname": "chat"}),
        ("postgresql:///chat?sch%65ma=a", "a", {"dbname": "chat"}),
        ("postgresql:///chat?schema=a&host=/run/postgresql", "a", {"dbname": "chat", "host": "/run/postgresql"}),
        ("postgresql:///chat?sslmode=require&schema=a&connect_timeout=3", "a", {"sslmode": "require", "connect_timeout": "3"}),
        ("postgresql://db/chat?ssl=true", "counterfoil", {"sslmode": "require"}),
        ("postgresql://one:1,two:2/chat", "counterfoil", {"host": "one,two", "port": "1,2"}),
        ("postgresql://[::1]:5/chat", "counterfoil", {"host": "::1", "port": "5"}),
        ("postgresql://zoe:a%40%2F%3F%25@db/chat?schema=%22x%20y%22", '"x y"', {"user": "zoe", "password": "a@/?%"}),
        ("postgresql://zoe:a?b@db/chat?schema=x", "x", {"password": "a?b", "host": "db"}),
        ("postgresql://zoe@/chat?host=@socket", "counterfoil", {"host": "@socket"}),
        ("postgresql://db/chat?user=zoe@example", "counterfoil", {"user": "zoe@example"}),
        ("postgresql://db/chat?options=-c%20work_mem%3D1MB", "counterfoil", {"options": "-c work_mem=1MB"}),
        ("postgresql://db/%E2%82%AC?schema=%E2%82%AC", "€", {"dbname": "€"}),
        ("postgresql://db/€?schema=€", "€", {"dbname": "€"}),
    ],
)
def test_urls_of_libpq_are_understood(url: str, schema: str, parameters: dict[str, str]) -> None:
    """All that libpq takes, with the schema as one more parameter."""
    address = parse(url)
    found = conninfo_to_dict(address.conninfo)

    assert names_postgres(url)
    assert schema == address.schema
    assert parameters == {name: found.get(name) for name in parameters}


@pytest.mark.parametrize(
    "url", ["journal.sqlite", "/tmp/postgresql", ":memory:", "sqlite:///x", "mysql://db/chat", "postgresql:", ""]
)
def test_other_names_are_not_of_postgres(url: str) -> None:
    assert not names_postgres(url)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://zoe:s3cret@db.example:5433/chat?schema=bot", "postgresql:///chat?schema=bot"),
        ("postgresql://zoe:s3cret@db.example", "postgresql:///?schema=counterfoil"),
        ("postgresql://db.example/a%20b%0A?schema=%E2%82%AC%26", "postgresql:///a%20b%0A?schema=%E2%82%AC%26"),
    ],
)
@pytest.mark.contract("DIA-01")
def test_errors_name_database_and_schema(url: str, name: str) -> None:
    """And neither who connects nor where to; and what is named is one line."""
    address = parse(url)

    assert name == address.name
    for shown in (repr(address), str(address), f"{address}"):
        assert not any(secret in shown for secret in SECRETS)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://zoe:s3cret@db.example/chat", "begins with postgresql://"),
        ("postgresql+asyncpg://zoe:s3cret@db.example/chat", r"without \+asyncpg; counterfoil connects through psycopg"),
        ("postgresql+://zoe:s3cret@db.example/chat", "without what follows"),
        ("postgresql+s3cret zoe://db.example/chat", "without what follows"),
        ("postgresql://zoe:s3cret@zoe@db.example/chat", "write % as %25, @ as %40"),
        ("postgresql://zoe:s3cret/zoe@db.example/chat", "write % as %25, @ as %40"),
        ("postgresql://zoe:1/s3cret@db.example/chat", "write % as %25, @ as %40"),
        ("postgresql://zoe:1/x?s3cret=y@db.example/chat", "write % as %25, @ as %40"),
        ("postgresql://zoe:s3cret%4@db.example/chat", "write % as %25, @ as %40"),
        ("postgresql://zoe@db.example:s3cret/chat", "port in the URL"),
        ("postgresql://zoe:s3cret@db.example/chat?schemaa=x", "neither libpq nor counterfoil knows: schemaa"),
        ("postgresql://zoe:s3cret@db.example/chat?sslmode", "cannot be understood"),
        ("postgresql://zoe:s3cret@db.example/ch%ffat", "cannot be understood"),
        ("postgresql://zoe:s3cret@db.example/ch%00at", "cannot be understood"),
        ("postgresql://zoe:s3cret@db.example/chat\0", "NUL"),
        ("postgresql://zoe:s3cret@db.example/chat\ud800", "surrogates"),
        ("postgresql://zoe:s3cret@db.example/chat?connect_timeout=s3cret", "connect_timeout"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=a&schema=b", "one schema, not several"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=", "1 to 63 bytes, not 0"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=" + 64 * "a", "1 to 63 bytes, not 64"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=" + 32 * "ü", "1 to 63 bytes, not 64"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=a%00b", "schema must not hold NUL"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=a%FFb", "UTF-8"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=pg_toast", "PostgreSQL's own"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=$user", "PostgreSQL's own"),
        ("postgresql://zoe:s3cret@db.example/chat?schema=information_schema", "PostgreSQL's own"),
    ],
)
@pytest.mark.contract("DIA-01")
def test_what_is_refused_is_not_quoted(url: str, words: str) -> None:
    """One sentence says what would be right, and holds nothing that may be a password, a user or a host."""
    with pytest.raises(InvalidValue, match=words) as refused:
        parse(url)

    assert not any(secret in str(refused.value) for secret in SECRETS)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(JournalRefused, match=r"needs psycopg: pip install 'counterfoil\[postgres\]'"):
        parse("postgresql://db/chat")


def test_names_are_quoted_for_sql() -> None:
    assert '"a""b"' == quoted('a"b')


def test_addresses_of_one_journal_are_equal() -> None:
    """What is shared by address is shared by those who opened the same URL."""
    one, other = parse("postgresql://db/chat?schema=a"), parse("postgres://db/chat?schema=a")

    assert one == other
    assert one != parse("postgresql://db/chat?schema=b")
    assert isinstance(one, Address)
