"""`counterfoil demo`: a journal survives a kill, step by step."""

from __future__ import annotations

import click

from .options import MEMORY, JournalName


@click.command()
@click.option(
    "--keep",
    "--journal",
    "path",
    type=JournalName(exists=False),
    metavar="JOURNAL",
    help="Make the journal here, in a file or a schema; there must be none yet.  [default: in a new folder for temporary files]",
)
def demo(path: str | None) -> int:
    """
    Watch a journal survive a kill, step by step.

    Some 200 messages of 20 people go through a new journal. The worker is killed in the middle of a turn. Then you see what is
    unresolved and why, how it is reconciled, what a second run makes of the same messages, and the whole story of the one
    that was hit. It takes a few seconds; the journal stays, to be looked at.
    """
    if path == MEMORY:
        raise click.UsageError(
            "the demo shows several processes on one journal: name a file or a schema", click.get_current_context()
        )
    from .demonstration import Demonstration

    return Demonstration(path).show()
