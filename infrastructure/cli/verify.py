"""`counterfoil verify`: a journal is compared with what its events say."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from .options import journal_argument, json_option
from .printing import print_json, print_table

if TYPE_CHECKING:
    from counterfoil.infrastructure.verification import Verification

SECONDS_BETWEEN_LINES = 2.0


@click.command()
@journal_argument()
@json_option("one JSON object")
def verify(journal: str, as_json: bool) -> int:
    """
    Check a journal against itself: exit status 3 when something does not agree.

    Every digest of the chain is computed anew, every text that is kept is compared with what its event commits to, and every
    projection with one that is folded anew aside. Nothing is changed. A chain proves nothing against somebody who can write
    the whole file; keep the position and digest of the head elsewhere for that.
    """
    found = _verified(journal, Progress() if sys.stderr.isatty() else None)
    if as_json:
        rows = [
            {
                "check": check.name,
                "checked": check.checked,
                "unit": check.unit,
                "agrees": check.agrees,
                "difference": check.difference,
            }
            for check in found.checks
        ]
        print_json({"rows": rows, "next": None, "position": found.position, "agrees": found.agrees})
    else:
        columns = ("check", "#checked", "", "result")
        print_table(columns, ((check.name, check.checked, check.unit, check.difference or "agrees") for check in found.checks))
    if found.agrees:
        click.echo(f"Everything agrees, up to position {found.position:,}.", err=True)
        return 0
    click.echo("counterfoil verify: the journal does not agree with itself; restore a backup", err=True)
    return 3


def _verified(journal: str, progress: Progress | None) -> Verification:
    from counterfoil.infrastructure.naming import is_postgres

    if is_postgres(journal):
        from counterfoil.infrastructure.postgres.verifying import verify_schema

        return verify_schema(journal, progress)
    from counterfoil.infrastructure.sqlite.verifying import verify_file

    return verify_file(Path(journal), progress)


class Progress:
    """Say now and then how far it is."""

    def __init__(self) -> None:
        self._said = monotonic()

    def __call__(self, name: str, done: int, total: int) -> None:
        if monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = monotonic()
            of = f" of {total:,}" if total else ""
            click.echo(f"{name}: {done:,}{of}", err=True)
