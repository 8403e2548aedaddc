"""`counterfoil run`: a complete host for one stream of messages."""

from __future__ import annotations

import click

from .options import Duration, deliver_options, journal_argument


@click.command()
@journal_argument(exists=False)
@click.option(
    "--events",
    default="-",
    metavar="FILE",
    help="Where the messages come from, as JSON Lines.  [default: standard input]",
)
@click.option("--agent", metavar="MODULE:FUNCTION", help="The Python callable that answers; it gets a counterfoil.Turn.")
@click.option(
    "--agent-command",
    metavar="COMMAND",
    help="The program that answers; it gets a JSON object on standard input, and what it prints is the reply.",
)
@click.option(
    "--agent-timeout",
    type=Duration("24h"),
    default="5m",
    show_default=True,
    help="How long one turn may take; afterwards it has failed.",
)
@deliver_options
@click.option("--no-resume", is_flag=True, help="Leave alone what waits from runs that have ended.")
@click.option("--no-create", is_flag=True, help="Fail where there is no journal yet, instead of creating one.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, on the last line.")
def run(
    journal: str,
    events: str,
    agent: str | None,
    agent_command: str | None,
    agent_timeout: int,
    deliver: str | None,
    deliver_command: str | None,
    deliver_timeout: int,
    grants: str | None,
    no_resume: bool,
    no_create: bool,
    as_json: bool,
) -> int:
    """
    Read messages, run an agent on each, and send its replies.

    Each line is one message: {"connection", "conversation", "actor", "event_id", "text"}, and if you like "thread",
    "received_at" and "claims". It is in the journal before the agent sees it. Messages of one person in one conversation are
    answered one after the other, in their order.

    Kill it whenever you want, and run it again on the same file: what was accepted runs, what was answered is a duplicate, and
    what was in the middle is listed with the command that files it. SIGTERM and Ctrl-C stop in order: a turn that does not end
    within 30 seconds is filed as execution_unknown, and the process ends. A second Ctrl-C ends it at once.

    With --grants it runs what waits from ended runs in every tenant of the journal, if who wrote it is still granted there.
    Without, only what came without grants too: the rest waits, and how much that is is said at the end.

    Callables may be plain or async, in a module that is installed or lies in the current folder. Commands are split into words
    like a shell's and run without one. A callable that delivers returns None or the message id, returns
    counterfoil.DeliveryFailed when it knows that nothing arrived, and raises when it does not know.

    Exit status 0: every line was accepted or a duplicate. 1: a line was malformed or denied. 130: Ctrl-C.
    """
    import asyncio
    from datetime import timedelta

    from counterfoil.domain.limits import DURATIONS, Limits

    from .ending import to_its_end
    from .grants import authorize_from
    from .named_files import open_source
    from .running import Host, run_host
    from .sending import agent_from, as_given, deliver_from

    minute = 60_000_000
    longest = min(max(Limits().duration("max_turn"), agent_timeout + minute), DURATIONS["max_turn"][1])
    limits = Limits(max_turn=timedelta(microseconds=longest))
    host = Host(
        journal=journal,
        agent=agent_from(agent, agent_command, agent_timeout, limits.max_response_bytes),
        deliver=deliver_from(deliver, deliver_command, limits.max_response_bytes),
        authorize=authorize_from(grants, journal),
        limits=limits,
        deliver_timeout=timedelta(microseconds=deliver_timeout),
        create=not no_create,
        resume=not no_resume,
        granted=grants is not None,
        sending=as_given(deliver, deliver_command, grants),
    )
    source = open_source("--events", events, journal)
    try:
        return asyncio.run(to_its_end(run_host(host, source, as_json=as_json)))
    finally:
        source.close()
