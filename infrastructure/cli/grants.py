"""Who may write: everybody, or the actors of a file."""

from __future__ import annotations

from typing import Annotated, Any

import click
from pydantic import Field

from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.ids import Id, OptionalId
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.model import Model
from counterfoil.infrastructure.callbacks import Authorize

from .desk import ALIAS, TENANT
from .named_files import open_file
from .parsing import BOM, Malformed, parse


class GrantLine(Model):
    """One actor of a file of grants."""

    actor: Id
    tenant: Id
    account: OptionalId = None
    user: OptionalId = None
    principal: OptionalId = None
    permissions: frozenset[str] = frozenset()
    aliases: Annotated[tuple[Id, ...], Field(min_length=1)] = (ALIAS,)
    revision: Id = "1"

    @property
    def grant(self) -> Grant:
        identity = Identity(
            tenant=self.tenant,
            account=self.account,
            user=self.user,
            principal=self.principal or self.actor,
            permissions=self.permissions,
            verified=True,
        )
        return Grant(identity=identity, aliases=self.aliases, revision=self.revision)


def authorize_from(path: str | None, journal: str) -> Authorize:
    """Return the `authorize` of the command line; a file with a fault is wrong usage."""
    return _everybody if path is None else _those_of(_read(path, journal))


async def _everybody(inbound: Inbound, _action: str) -> Grant:
    return Grant.of(Identity(tenant=TENANT, principal=inbound.actor, verified=True), ALIAS)


def _those_of(grants: dict[str, Grant]) -> Authorize:
    async def authorize(inbound: Inbound, _action: str) -> Grant | None:
        return grants.get(inbound.actor)

    return authorize


def _read(path: str, journal: str) -> dict[str, Grant]:
    grants: dict[str, Grant] = {}
    with open_file("--grants", path, journal) as file:
        lines: Any = file.readall().removeprefix(BOM).split(b"\n")  # type: ignore[attr-defined]
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            found = parse(line, GrantLine)
            if found.actor in grants:
                raise Malformed("names an actor that an earlier line names too")
        except Malformed as error:
            message = f"--grants: {click.format_filename(path)}, line {number}: {error}"
            raise click.UsageError(message, click.get_current_context(silent=True)) from None
        grants[found.actor] = found.grant
    return grants
