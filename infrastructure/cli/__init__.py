"""The command line, `counterfoil VERB`. To list the verbs it loads click and nothing else of weight."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line on the arguments of the process, and exit with its status."""
    if sys.argv[1:2] == ["run"]:
        from .signals import listen_as_process

        listen_as_process()  # before the imports below, which take longer than a hasty Ctrl-C
    try:
        from .group import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main(prog_name="counterfoil")
