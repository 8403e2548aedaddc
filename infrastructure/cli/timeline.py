"""`counterfoil timeline`: what happened, in the order of positions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from .desk import opened
from .options import Identifier, Instant, WholeNumber, journal_argument, json_option, page_options
from .printing import Listing, shown

if TYPE_CHECKING:
    from counterfoil.projections.timeline import TimelineEntry, TimelineFilter

ACTOR_KINDS = ("person", "agent", "operator", "system")
OUTCOMES = (
    "succeeded",
    "failed",
    "cancelled",
    "late_refused",
    "abandoned",
    "execution_unknown",
    "delivered",
    "delivery_failed",
    "delivery_unknown",
)


@click.command()
@journal_argument()
@click.option("--connection", type=Identifier(), help="On this connection.")
@click.option("--conversation", type=Identifier(), help="In this conversation.")
@click.option("--thread", type=Identifier(), help="In this thread.")
@click.option("--actor", type=Identifier(), help="Done by this person or operator.")
@click.option("--actor-kind", type=click.Choice(ACTOR_KINDS), help="Done by this kind of actor.")
@click.option("--operation", "operation_id", type=Identifier(), help="On behalf of this operation.")
@click.option("--correlation", metavar="HEX", help="Of this platform event, in every occurrence; as --json shows it.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Of this type, like reply.delivered; may be given again.")
@click.option("--outcome", type=click.Choice(OUTCOMES), metavar="OUTCOME", help=f"With this outcome: {', '.join(OUTCOMES)}.")
@click.option("--since", type=Instant(), help="Recorded at this instant or later.")
@click.option("--until", type=Instant(), help="Recorded before this instant.")
@click.option("--above", type=WholeNumber(0), metavar="POSITION", help="At a larger position.")
@click.option("--below", type=WholeNumber(0), metavar="POSITION", help="At a smaller position.")
@click.option("--newest-first", is_flag=True, help="Begin with the newest event.")
@click.option("--with-text", is_flag=True, help="Show texts that are kept; this is recorded in the journal.")
@json_option("one JSON object")
@page_options
def timeline(
    journal: str,
    as_json: bool,
    limit: int | None,
    after: str | None,
    newest_first: bool,
    with_text: bool,
    above: int | None,
    below: int | None,
    types: tuple[str, ...],
    **fields: str | datetime | None,
) -> None:
    """
    Tell what happened, event by event.

    Options together show what fits all of them. Times are in UTC. Texts are shown only with --with-text, and then the journal
    records that they were.
    """
    where = _filter(types=types or None, after=above, before=below, **fields)
    with opened(journal, readonly=not with_text) as (_, desk):
        listing = Listing(
            lambda most, cursor: desk.timeline(where, limit=most, after=cursor, newest_first=newest_first, with_text=with_text),
            limit,
            after,
        )
        if as_json:
            listing.print_json(lambda entry: entry.to_json())
            return
        for page in listing.pages():
            click.echo("\n".join(line_of(entry) for entry in page))
        listing.say_next()


def _filter(**values: Any) -> TimelineFilter:
    from pydantic import ValidationError

    from counterfoil.projections.timeline import TimelineFilter

    from .parsing import reasons

    try:
        return TimelineFilter(**values)
    except ValidationError as error:
        raise click.UsageError(reasons(error, TimelineFilter), click.get_current_context()) from None


def line_of(entry: TimelineEntry) -> str:
    """Return an event as one line: position, time, platform's event id, and what happened; a text stands under it."""
    from counterfoil.projections.timeline import describe

    about = "" if entry.event_id is None else f"[{shown(entry.event_id)}] "
    line = f"{entry.position:>8}  {shown(entry.recorded_at)}  {about}{describe(entry)}"
    return line if entry.text is None else f"{line}\n{'':>10}| {shown(entry.text)}"
