"""`counterfoil unresolved`: what still needs attention, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .advice import reconcile_command, what_it_is
from .desk import opened
from .options import journal_argument, json_option, page_options
from .printing import Listing, print_table

if TYPE_CHECKING:
    from counterfoil.infrastructure.reading import UnresolvedOperation

COLUMNS = ("operation", "connection", "state", "reply", "#sendings", "#version", "age", "#holder", "alive")


@click.command()
@journal_argument()
@json_option("one JSON object")
@page_options
def unresolved(journal: str, as_json: bool, limit: int | None, after: str | None) -> None:
    """
    List what still needs attention, with the command for each.

    These are messages that wait, turns that were begun and not settled, and replies that are pending, failed, or may or may not
    have arrived; the oldest first. Nothing of it is run or sent again by itself. While a `counterfoil run` is at work, what it
    has in hand is listed too.
    """
    with opened(journal) as (_, desk):
        listing = Listing(lambda most, cursor: desk.unresolved(limit=most, after=cursor), limit, after)
        if as_json:
            listing.print_json(lambda row: {**row.to_json(), "reconcile": reconcile_command(journal, row)})
            return
        found = 0
        for page in listing.pages():
            found += len(page)
            print_table(COLUMNS, (_cells(row) for row in page))
            for row in page:
                click.echo(f"{row.operation_id} {what_it_is(row)}\n  {reconcile_command(journal, row)}")
        if not found:
            click.echo("Nothing is unresolved.", err=True)
        listing.say_next()


def _cells(row: UnresolvedOperation) -> tuple[object, ...]:
    state, reply = (word.replace("_", " ") for word in (row.state, row.reply_state))
    return row.operation_id, row.connection, state, reply, row.attempts, row.version, row.age, row.holder, row.holder_alive
