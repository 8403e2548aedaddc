"""`counterfoil copy`: a journal is copied into a file or a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import MEMORY, JournalName, json_option
from .printing import print_json, print_table
from .verify import Progress

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("source", metavar="FROM", type=JournalName(exists=True))
@click.argument("target", metavar="TO", type=JournalName(exists=False))
@json_option("one JSON object")
def copy(source: str, target: str, as_json: bool) -> int:
    """
    Copy the journal FROM to where there is none: TO.

    Each is a file, or a schema of PostgreSQL by its URL. Positions, times, digests, texts, and what pseudonyms stand for stay
    what they are; read models are folded anew. FROM may be written to meanwhile: the copy is of the moment at which it begins.
    Both sides are verified in the end. Tables of the host are not copied.

    Everything that runs has ended in the copy: nobody holds a key or waits for one, and the first who opens it for writing raises
    the epoch above all fences given before. Those that FROM gives later may be higher, so stop all who write to FROM before
    anybody writes to TO.

    A copy that fails or is interrupted leaves nothing. Of one that was killed PostgreSQL keeps nothing either; a file is refused
    as unfinished, to be removed.

    Exit status 0: it was copied, and both sides agree. 3: a side does not agree with itself, and no copy was kept.
    """
    if target == MEMORY:
        raise click.UsageError("a copy in memory would be gone at once: name a file or a schema", click.get_current_context())
    from counterfoil.infrastructure.copying import copy_journal

    copied = copy_journal(source, target, Progress())
    differences = [
        {"side": side, "check": check.name, "difference": check.difference}
        for side, found in (("original", copied.source), ("copy", copied.target))
        for check in found.checks
        if check.difference is not None
    ]
    if as_json:
        print_json({"position": copied.position, "rows": copied.rows, "agrees": copied.agrees, "differences": differences})
    else:
        print_table(("copied", "#rows"), ((name.replace("_", " "), count) for name, count in copied.rows.items()))
    if copied.agrees:
        click.echo(f"Both sides agree, up to position {copied.position:,}.", err=True)
        return 0
    for found in differences:
        click.echo(f"counterfoil copy: {found['side']}, {found['check']}: {found['difference']}", err=True)
    click.echo("counterfoil copy: a side does not agree with itself, and no copy was kept; restore a backup", err=True)
    return 3
