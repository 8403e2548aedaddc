"""`counterfoil unresolved`: what still needs attention, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .advice import GRANTS, PLACEHOLDER, reconcile_command, what_it_is
from .desk import TENANT, opened, operator
from .options import journal_argument, json_option, page_options
from .printing import Listing, print_table

if TYPE_CHECKING:
    from counterfoil.infrastructure.journal import Desk, Journal
    from counterfoil.infrastructure.pages import Page
    from counterfoil.infrastructure.reading import UnresolvedOperation

COLUMNS = ("operation", "connection", "state", "reply", "#sendings", "#version", "age", "#holder", "alive")
FILL_IN = "--deliver or --deliver-command, and --grants if it had them"


@click.command()
@journal_argument()
@json_option("one JSON object")
@page_options
def unresolved(journal: str, as_json: bool, limit: int | None, after: str | None) -> None:
    """
    List what still needs attention, with the command for each.

    These are messages that wait, turns that were begun and not settled, and replies that are pending, failed, or may or may not
    have arrived; the oldest first. Nothing of it is run or sent again by itself. While a `counterfoil run` is at work, what it
    has in hand is listed too: the holder is the opening that has it, and alive tells whether it still runs.
    """
    with opened(journal) as (found, desk):
        local, granted = _without_grants(found), set[str]()

        def fetch(most: int, cursor: str | None) -> Page[UnresolvedOperation]:
            page = desk.unresolved(limit=most, after=cursor)
            granted.clear()
            granted.update(row.operation_id for row in local.unresolved(limit=most, after=cursor).rows)
            return page

        def command(row: UnresolvedOperation) -> str:
            return reconcile_command(journal, row, PLACEHOLDER if row.operation_id in granted else (*PLACEHOLDER, *GRANTS))

        listing = Listing(fetch, limit, after)
        if as_json:
            listing.print_json(lambda row: {**row.to_json(), "reconcile": command(row)})
            return
        count = resends = 0
        for page in listing.pages():
            count += len(page)
            resends += sum(row.resends for row in page)
            print_table(COLUMNS, (_cells(row) for row in page))
            for row in page:
                click.echo(f"{row.operation_id} {what_it_is(row, granted=row.operation_id in granted)}\n  {command(row)}")
        if not count:
            click.echo("Nothing is unresolved.", err=True)
        if resends:
            click.echo(f"To send again, fill in what `counterfoil run` was given: {FILL_IN}.", err=True)
        listing.say_next()


def _without_grants(journal: Journal) -> Desk:
    """Return the desk that sees what a run without grants runs; a reader, who sees nothing of scopes but tenants, that of all."""
    from counterfoil.domain.errors import JournalRefused

    own = journal.acting_as(operator())
    try:
        own.unresolved(limit=1)
    except JournalRefused:
        return journal.acting_as(operator(), tenant=TENANT)
    return own


def _cells(row: UnresolvedOperation) -> tuple[object, ...]:
    state, reply = (word.replace("_", " ") for word in (row.state, row.reply_state))
    return row.operation_id, row.connection, state, reply, row.attempts, row.version, row.age, row.holder, row.holder_alive
