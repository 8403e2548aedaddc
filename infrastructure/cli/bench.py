"""`counterfoil bench`: figures with what they are compared with, all measured in one run."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from counterfoil.infrastructure.bench.lines import IN_FILES, IN_SCHEMAS, names, without_tinystore

from .options import JournalURL, json_option
from .printing import print_json, print_table

if TYPE_CHECKING:
    from counterfoil.infrastructure.bench.rounds import Place
    from counterfoil.infrastructure.bench.tinystore import TinyStore

NAMES = names(IN_FILES + IN_SCHEMAS)


@click.command(epilog="docs/performance.md tells what each line means.")
@click.argument("url", type=JournalURL(), required=False)
@click.option("--quick", is_flag=True, help="Do less of everything: a minute instead of several, and figures that vary more.")
@click.option(
    "--only",
    type=click.Choice(NAMES),
    multiple=True,
    metavar="NAME",
    help=f"Measure only these lines; may be given again. One of {', '.join(NAMES)}.",
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
    url: str | None,
    quick: bool,
    only: tuple[str, ...],
    number: int | None,
    folder: Path | None,
    python: Path | None,
    as_json: bool,
) -> None:
    """
    Measure journals on this machine: in files, or on PostgreSQL in the database that URL names.

    Everything is measured in interleaved rounds on fresh journals, with a sync at every commit, beside what it is compared with:
    a plain application of the eventsourcing library, the database without a journal, and TinyStore where --tinystore names one.
    Read the ratios: figures of another machine, or of another hour, say little. What a line must reach decides nothing about the
    exit status.

    In files all of it takes some minutes, and a gigabyte in the folder for journals of a million events; --quick needs a tenth of
    that. On PostgreSQL each measurement makes a schema of its own, counterfoil_bench_…, and drops it; nothing else in the
    database is touched, whichever schema the URL names.
    """
    from counterfoil.infrastructure.bench import sizes
    from counterfoil.infrastructure.bench.progress import Progress
    from counterfoil.infrastructure.bench.rendering import COLUMNS, document, facts, rows
    from counterfoil.infrastructure.bench.rounds import measure
    from counterfoil.infrastructure.bench.tinystore import TinyStore, TinyStoreFails

    lines = IN_FILES if url is None else IN_SCHEMAS
    for name in only:
        if name not in names(lines):
            raise click.BadParameter(
                f"{name} is measured {'on PostgreSQL: name a URL' if url is None else 'in files alone'}", param_hint="'--only'"
            )
    if url is not None and (folder is not None or python is not None):
        raise click.UsageError("--folder and --tinystore are for journals in files: leave them out, or the URL")
    try:
        tinystore = None if python is None else TinyStore(python)
    except TinyStoreFails as error:
        raise click.BadParameter(str(error), param_hint="'--tinystore'") from None
    chosen = sizes.QUICK if quick else sizes.FULL
    chosen = chosen._replace(rounds=number or chosen.rounds)
    if tinystore is None:
        lines = without_tinystore(lines)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _end))
        place = _files(stack, folder, tinystore) if url is None else _schemas(stack, url)
        say = stack.enter_context(Progress())
        report = measure(tuple(line for line in lines if not only or line.name in only), chosen, place, say)
    if as_json:
        print_json(document(report))
        return
    print_table(COLUMNS, rows(report))
    click.echo()
    for fact in facts(report):
        click.echo(fact)


def _end(number: int, _: object) -> None:
    """End as an interrupt does, so that what was made is removed."""
    raise SystemExit(128 + number)


def _files(stack: ExitStack, folder: Path | None, tinystore: TinyStore | None) -> Place:
    from counterfoil.infrastructure.bench.in_files import Files, scratch

    return Files(stack.enter_context(scratch(folder)), tinystore)


def _schemas(stack: ExitStack, url: str) -> Place:
    from counterfoil.infrastructure.bench.in_schemas import Schemas, connected

    return Schemas(url, stack.enter_context(connected(url)))
