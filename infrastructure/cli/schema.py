"""`counterfoil schema`: what a journal in PostgreSQL is made of, printed, compared and upgraded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from .noun import Noun
from .options import JournalURL, SchemaName, json_option
from .printing import print_json, print_table

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS: Final = ("what", "name", "difference")


@click.group(cls=Noun, invoke_without_command=True, subcommand_metavar="VERB [URL]")
@click.pass_context
def schema(ctx: click.Context) -> None:
    """Print, check and upgrade what a journal in PostgreSQL is made of."""
    if ctx.invoked_subcommand is None:
        ctx.fail(f"name what to do: {', '.join(schema.commands)}")


def _which_schema(function: F) -> F:
    """The schema: its name is all that is looked at, and nothing is connected to."""
    url = click.argument("url", type=JournalURL(connects=False), required=False)
    name = click.option(
        "--schema", "name", type=SchemaName(), metavar="NAME", help="The schema, in the place of a URL.  [default: counterfoil]"
    )
    return url(name(function))


@schema.command()
@_which_schema
def sql(url: str | None, name: str | None) -> None:
    """
    Print the SQL that creates a journal, without connecting.

    It makes the schema unless that is there, and all that is in it: tables, indexes, functions, a trigger, and the first rows.
    Run it in one transaction, as the role that is to own the journal, in a database whose encoding is UTF8:

      counterfoil schema sql --schema support | psql -1 -v ON_ERROR_STOP=1 -f - DATABASE
    """
    from counterfoil.infrastructure.postgres.ddl import VERSION, create, create_schema

    named = _named(url, name)
    _print_sql(
        f"a journal of counterfoil in format 1; the version of its schema is {VERSION}", [create_schema(named), *create(named)]
    )


@schema.command()
@_which_schema
def roles(url: str | None, name: str | None) -> None:
    """
    Print the SQL that makes three roles for a journal that is there, without connecting.

    NAME_owner creates and upgrades. NAME_writer appends; it cannot alter tables, nor an event. NAME_reader cannot write, and sees
    neither texts nor ids of people, platforms and keys of locks; it gets texts by a function of the database that records it.

    Nobody logs in as one of them: grant them to those who do. Run it as a superuser:

      counterfoil schema roles --schema support | psql -1 -v ON_ERROR_STOP=1 -f - DATABASE
    """
    from counterfoil.infrastructure.postgres.roles import grants, make_roles

    named = _named(url, name)
    _print_sql(
        "the roles of a journal of counterfoil, to be run on one that is there; LISTEN, NOTIFY and advisory locks, which "
        "its writer uses, need no right but to connect",
        [*make_roles(named), *grants(named)],
    )


def _named(url: str | None, name: str | None) -> str:
    from counterfoil.infrastructure.postgres.naming import DEFAULT_SCHEMA, schema_of

    if url is not None and name is not None:
        raise click.UsageError("name a URL or --schema, not both", click.get_current_context())
    return name or (DEFAULT_SCHEMA if url is None else schema_of(url))


def _print_sql(what: str, statements: Iterable[str]) -> None:
    click.echo(f"-- {what}\n")
    for statement in statements:
        click.echo(f"{statement};\n")


@schema.command()
@click.argument("url", type=JournalURL())
@json_option("one JSON object")
def check(url: str, as_json: bool) -> int:
    """
    Compare a journal's schema with what this release makes: exit status 3 when anything is different.

    Tables, columns, constraints, indexes, functions, the trigger and the projections are compared. How tables are stored, and
    further indexes, are not: those are for whoever runs the server to tune. Nothing is changed; the role needs the right to make
    temporary tables.
    """
    from counterfoil.infrastructure.postgres.upgrading import check_schema

    differences = check_schema(url)
    if as_json:
        rows = [{"kind": each.kind, "name": each.name, "difference": each.what} for each in differences]
        print_json({"rows": rows, "next": None, "agrees": not differences})
    elif differences:
        print_table(COLUMNS, differences)
    if not differences:
        click.echo("The schema is as this release makes it.", err=True)
        return 0
    click.echo("counterfoil schema check: the schema is different; `counterfoil schema upgrade` makes what can be made", err=True)
    return 3


@schema.command()
@click.argument("url", type=JournalURL())
@json_option("one JSON object")
def upgrade(url: str, as_json: bool) -> int:
    """
    Bring a journal's schema to this release: what it lacks is made, and what is different replaced.

    That is: functions, indexes, the trigger, and the tables of projections, into which the history is folded. It is one
    transaction, as the journal's owner; those who have the journal open wait meanwhile, and go on. Roles that `schema roles` has
    made get their rights on what is new.

    Columns, constraints and tables of the history are never touched: what is wrong with them is listed, with exit status 3.
    """
    from counterfoil.infrastructure.postgres.upgrading import upgrade_schema

    upgraded = upgrade_schema(url, lambda what: click.echo(f"counterfoil schema upgrade: {what}", err=True))
    if as_json:
        left = [{"kind": each.kind, "name": each.name, "difference": each.what} for each in upgraded.left]
        print_json({"rows": upgraded.done, "next": None, "left": left})
    else:
        for line in upgraded.done:
            click.echo(line)
        if upgraded.left:
            print_table(COLUMNS, upgraded.left)
    if upgraded.left:
        click.echo("counterfoil schema upgrade: no upgrade makes what is left; look at it, or restore a backup", err=True)
        return 3
    if not upgraded.done:
        click.echo("There is nothing to do.", err=True)
    return 0
