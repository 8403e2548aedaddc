"""`counterfoil bench`: figures with what they are compared with, all measured in one run."""

from __future__ import annotations

from pathlib import Path

import click

from counterfoil.infrastructure.bench.lines import LINES, NAMES

from .options import json_option
from .printing import print_json, print_table


@click.command(epilog="docs/performance.md tells what each line means.")
@click.option("--quick", is_flag=True, help="Do less of everything: a minute instead of several, and figures that vary more.")
@click.option(
    "--only",
    type=click.Choice(NAMES),
    multiple=True,
    metavar="NAME",
    help=f"Measure only this line; may be given again. One of {', '.join(NAMES)}.",
)
@click.option(
    "--rounds",
    "number",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Measure everything N times.  [default: 5, with --quick 3]",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where to make the files; they are removed again.  [default: the folder for temporary files]",
)
@click.option(
    "--tinystore",
    "python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PYTHON",
    help="Compare locks with TinyStore, of the environment that has this Python.  [default: compare them with nothing]",
)
@json_option("one JSON object with every sample")
def bench(
    quick: bool, only: tuple[str, ...], number: int | None, folder: Path | None, python: Path | None, as_json: bool
) -> None:
    """
    Measure the journal on this machine.

    Everything is measured in interleaved rounds on fresh files, with a sync at every commit, beside what it is compared with: a
    plain application of the eventsourcing library, SQLite without a journal, and TinyStore where --tinystore names one. Read the
    ratios: figures of another machine, or of another hour, say little. What a line must reach decides nothing about the exit
    status.

    All of it takes some minutes, and a gigabyte in the folder for journals of a million events; --quick needs a tenth of that.
    """
    from counterfoil.infrastructure.bench import sizes
    from counterfoil.infrastructure.bench.progress import Progress
    from counterfoil.infrastructure.bench.rendering import COLUMNS, document, facts, rows
    from counterfoil.infrastructure.bench.rounds import measure
    from counterfoil.infrastructure.bench.tinystore import TinyStore, TinyStoreFails

    chosen = sizes.QUICK if quick else sizes.FULL
    chosen = chosen._replace(rounds=number or chosen.rounds)
    lines = tuple(line for line in LINES if not only or line.name in only)
    try:
        tinystore = None if python is None else TinyStore(python)
    except TinyStoreFails as error:
        raise click.BadParameter(str(error), param_hint="'--tinystore'") from None
    with Progress() as say:
        report = measure(lines, chosen, folder, tinystore, say)
    if as_json:
        print_json(document(report))
        return
    print_table(COLUMNS, rows(report))
    click.echo()
    for fact in facts(report):
        click.echo(fact)
