"""A journal with its three roles, and people who log in as one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from counterfoil.infrastructure.postgres import ddl
from counterfoil.infrastructure.postgres.roles import grants, make_roles, role_names
from tests.postgres_server import Postgres

PASSWORD = "only-for-tests"


class Logins:
    """Who may log in, each with one of the roles; all is gone at the end."""

    def __init__(self, postgres: Postgres, schema: str, *, make: bool = True) -> None:
        """With `make` there is a journal, which its owner has; otherwise only the roles of none."""
        self.postgres = postgres
        self.schema = schema
        self.roles = role_names(schema)
        self._users: list[str] = []
        if make:
            statements = [ddl.create_schema(schema), *ddl.create(schema), *make_roles(schema), *grants(schema)]
            for statement in statements:
                postgres.execute(statement)
        else:
            for role in self.roles:
                postgres.execute(f'CREATE ROLE "{role}" NOLOGIN')
        self.owner, self.writer, self.reader = (
            self.add(f"{schema}_{who}", role) for who, role in zip("owr", self.roles, strict=True)
        )

    def add(self, user: str, *roles: str) -> str:
        """Add somebody who logs in, and return the name of the journal for them."""
        create = SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(Identifier(user), Literal(PASSWORD))
        self.postgres.execute(create.as_string())
        for role in roles:
            self.postgres.execute(f'GRANT "{role}" TO "{user}"')
        self._users.append(user)
        return self.url_of(user, self.schema)

    def url_of(self, user: str, schema: str) -> str:
        parts = urlsplit(self.postgres.url(schema))
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{host}"))

    @contextmanager
    def connected(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """Connect past the journal, with the rights of one of them."""
        parts = urlsplit(url)
        query = "&".join(word for word in parts.query.split("&") if not word.startswith("schema="))
        with psycopg.connect(urlunsplit(parts._replace(query=query)), autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{self.schema}"'.encode())
            yield connection

    def close(self) -> None:
        self.postgres.drop(self.schema)
        for role in (*self._users, *self.roles):
            self.postgres.execute(f'DROP OWNED BY "{role}" CASCADE')
            self.postgres.execute(f'DROP ROLE "{role}"')
