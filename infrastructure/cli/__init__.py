"""The command line, `counterfoil VERB`. To list the verbs it loads click and nothing else of weight."""

from __future__ import annotations

from .group import cli


def main() -> None:
    """Run the command line on the arguments of the process, and exit with its status."""
    cli.main(prog_name="counterfoil")
