"""The command line as an operator: who may open the journal may look at all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from counterfoil.domain.identity import Identity
    from counterfoil.infrastructure.journal import Desk, Journal

TENANT: Final = "local"
PRINCIPAL: Final = "cli"
ALIAS: Final = "agent"


def operator() -> Identity:
    """Return the identity that the command line acts as."""
    from counterfoil.domain.identity import OPERATE, Identity

    return Identity(tenant=TENANT, principal=PRINCIPAL, permissions=frozenset({OPERATE}), verified=True)


@contextmanager
def opened(path: str, *, readonly: bool = True) -> Iterator[tuple[Journal, Desk]]:
    """Lend a journal, and the desk that sees every tenant."""
    from counterfoil.domain.identity import EVERY_TENANT
    from counterfoil.infrastructure import journal

    with journal.open(path, readonly=readonly) as found:
        yield found, found.acting_as(operator(), tenant=EVERY_TENANT)
