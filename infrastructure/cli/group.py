"""
The verbs, each in a module of its own that is loaded when it is called, and the one place where errors become a line and a
status.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a verification found a difference, 4 conflict or held, 5 nothing matched where
something had to, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import click

from .named_files import keep_places

VERBS: Final = {
    "run": "Read messages, run an agent on each, and send its replies.",
    "unresolved": "List what still needs attention, with the command for each.",
    "reconcile": "File what cannot be proven, or send a reply again.",
    "timeline": "Tell what happened, event by event.",
    "explain": "Tell the story of one message.",
    "locks": "See who holds what and what happened to a key, and take it away.",
    "stats": "Count what happened, and how long it took.",
    "verify": "Check a journal against itself.",
    "copy": "Copy a journal into a file or into a schema of PostgreSQL.",
    "schema": "Print, check and upgrade what a journal in PostgreSQL is made of.",
    "bench": "Measure the journal on this machine.",
    "demo": "Watch a journal survive a kill, step by step.",
}
"""What stands beside each verb in the list; the module of a verb has its name, and so has the command in it."""

TRACEBACK: Final = "COUNTERFOIL_TRACEBACK"
"""A variable of the environment: when it is set, an error of counterfoil's own shows where it happened."""


def _is_there(verb: str) -> bool:
    return find_spec(f"{__package__}.{verb}") is not None


class Verbs(click.Group):
    """The group of all verbs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verb in VERBS if _is_there(verb)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS or not _is_there(cmd_name):
            return None
        command: click.Command = getattr(import_module(f"{__package__}.{cmd_name}"), cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"there is no such verb; there are {', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, VERBS[verb]) for verb in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        status = super().invoke(ctx)
        sys.stdout.flush()  # here a closed pipe is still told from an error of ours
        return status

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a verb; what goes wrong is said in one line on standard error."""
        keep_places()
        if sys.stdout is None:
            complain("standard output is closed; send it to a file, or to /dev/null")
            sys.exit(2)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # no name of a file or person is too strange to be printed
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            status = _say_wrong(error)
        except (click.Abort, KeyboardInterrupt):
            status = 130
        except Exception as error:
            status = say_failed(error)
        if not standalone_mode:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def complain(message: str, place: str = "counterfoil") -> None:
    """Say one line on standard error."""
    click.echo(f"{place}: {' '.join(message.split())}", err=True)


def _say_wrong(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    place = "counterfoil" if context is None else context.command_path
    message = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and context is not None:
        message = f"{message}; see `{place} --help`"
    complain(message, place)
    return error.exit_code


def say_failed(error: Exception) -> int:
    """Say what went wrong, and return the exit status of that."""
    if os.environ.get(TRACEBACK):
        raise error
    from counterfoil.domain.errors import CounterfoilError, InvalidValue

    if isinstance(error, CounterfoilError):
        complain(str(error))
        return 2 if isinstance(error, InvalidValue) else 1
    if isinstance(error, OSError):
        complain(f"the system refused something: {error.strerror or type(error).__name__}")
        return 1
    complain(f"this should not have happened ({type(error).__name__}); set {TRACEBACK}=1 to see where")
    return 1


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from counterfoil.infrastructure.unit import RELEASE

        click.echo(f"counterfoil {RELEASE}")
        ctx.exit()


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Data goes to standard output, talk to standard error. `counterfoil VERB --help` tells more.",
    subcommand_metavar="VERB [ARGUMENTS]...",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version.")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """
    Keep the durable record between messaging channels and agents.

    A journal is one SQLite file, named by its path, or one schema of PostgreSQL, named by a URL: postgresql://…?schema=NAME. It
    holds, for each message that a channel hands to an agent and each reply that goes back, what was admitted, who claimed it, how
    it was settled and what was sent, so that a process may be killed at any moment and nothing is lost or answered twice.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return 0
