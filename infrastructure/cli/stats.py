"""`counterfoil stats`: counts and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .desk import opened
from .options import journal_argument, json_option
from .printing import print_json, print_table

if TYPE_CHECKING:
    from counterfoil.infrastructure.reading import Measured


@click.command()
@journal_argument()
@click.option("--hours", is_flag=True, help="Show a table by the hour too; --json always has it.")
@json_option("one JSON object with totals and hours")
def stats(journal: str, hours: bool, as_json: bool) -> None:
    """
    Count what happened on each connection, and tell how long it took.

    What was claimed and delivered is timed from the admission, what was settled from its claim.
    """
    with opened(journal) as (_, desk):
        statistics = desk.statistics()
    if as_json:
        print_json(statistics.to_json())
        return
    if not statistics.totals:
        click.echo("Nothing has happened yet.", err=True)
        return
    print_table(("connection", "what", "#count", "#mean", "#longest"), (_cells(row) for row in statistics.totals))
    if hours:
        columns = ("hour (UTC)", "connection", "what", "#count", "#mean", "#longest")
        print_table(columns, ((f"{row.hour:%Y-%m-%d %H:00}", *_cells(row)) for row in statistics.hours))


def _cells(row: Measured) -> tuple[object, ...]:
    return row.connection, row.measure.replace("_", " "), row.count, row.mean, row.longest
