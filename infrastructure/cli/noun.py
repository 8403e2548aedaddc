"""A verb that has verbs of its own: `counterfoil locks list`."""

from __future__ import annotations

import click


class Noun(click.Group):
    """The verbs about one kind of thing, in the order in which they are told."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"there is no such verb; there are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in self.commands.items()])
