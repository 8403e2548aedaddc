"""`counterfoil reconcile`: somebody decides about what nobody can prove."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from .options import Identifier, WholeNumber, deliver_options, journal_argument
from .printing import print_json

if TYPE_CHECKING:
    from counterfoil.domain.reconcile import Reconciliation

STATUS = {"resolved": 0, "conflict": 4, "not_found": 5, "denied": 1, "unavailable": 1}


@click.command()
@journal_argument()
@click.argument("operation", type=Identifier())
@click.option(
    "--expect",
    type=WholeNumber(1),
    required=True,
    metavar="VERSION",
    help="The version that you decided on, as `counterfoil unresolved` shows it.",
)
@click.option("--acknowledge-duplicate-risk", is_flag=True, help="Accept that something may have happened, or happen, twice.")
@click.option("--force", is_flag=True, help="Fence out a holder that is alive.")
@click.option("--reason", default="operator", metavar="WORD", help="Why, as a word of a-z, 0-9 and _.  [default: operator]")
@click.option("--note", metavar="TEXT", help="Why, in your words; kept apart from the history, so that it can be erased.")
@deliver_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a sentence.")
def reconcile(
    journal: str,
    operation: str,
    expect: int,
    acknowledge_duplicate_risk: bool,
    force: bool,
    reason: str,
    note: str | None,
    deliver: str | None,
    deliver_command: str | None,
    deliver_timeout: int,
    grants: str | None,
    as_json: bool,
) -> int:
    """
    File what cannot be proven, or send a reply again.

    A message that waits is given up (abandoned). A turn that was begun and not settled is filed as execution_unknown; this
    needs --acknowledge-duplicate-risk. A reply that is pending or unknown is sent again with that option and one of the two
    --deliver options; one that failed needs no acknowledgment. No agent is ever called. Nothing earlier is changed: who
    decided, when and why is one more event. `counterfoil unresolved` prints this command filled in.

    Exit status 0: it is resolved. 4: conflict, and nothing was changed: the version is stale, the risk was not acknowledged, or
    the holder is alive. 5: there is no such operation.
    """
    from counterfoil.domain.errors import NeedsRuntime

    from .reconciling import Asked, file_it, send_it

    asked = Asked(operation, expect, acknowledge_duplicate_risk, force, reason, note)
    if deliver is None and deliver_command is None:
        try:
            answer = file_it(journal, asked)
        except NeedsRuntime:
            raise click.UsageError(
                "its reply would be sent again: name --deliver MODULE:FUNCTION or --deliver-command COMMAND; nothing was changed",
                click.get_current_context(),
            ) from None
    else:
        answer = send_it(journal, asked, deliver, deliver_command, deliver_timeout, grants)
    if as_json:
        print_json(asdict(answer))
    click.echo(in_words(answer), err=as_json or answer.status != "resolved")
    return STATUS[answer.status]


OUTCOMES = {
    "abandoned": "It is given up, and will not run.",
    "execution_unknown": "It is filed that nobody knows what its turn did; it will not run again.",
    "reply_delivered": "Its reply was sent again, and arrived.",
    "reply_failed": "Its reply was sent again, and did not arrive.",
    "reply_unknown": "Its reply was sent again, and nobody can tell whether it arrived.",
    "none": "It was settled already; nothing was changed and nothing sent.",
}
DETAILS = {
    "stale": "it has changed since: it is at version {version} now; look at it again, and expect that version",
    "duplicate_risk": "this needs --acknowledge-duplicate-risk",
    "holder_alive": "the process that runs it is alive; wait for it, or fence it out with --force",
}
REFUSALS = {
    "not_found": "there is no such operation in this journal; `counterfoil unresolved` lists them",
    "denied": "nothing was sent: whom it would answer is no longer granted, or what it would take is erased",
    "unavailable": "the journal did not take it; try again",
}


def in_words(answer: Reconciliation) -> str:
    """Return an answer as a sentence."""
    if answer.outcome is not None:
        return OUTCOMES[answer.outcome]
    if answer.detail is not None:
        return f"counterfoil reconcile: {DETAILS[answer.detail].format(version=answer.version)}"
    return f"counterfoil reconcile: {REFUSALS[answer.status]}"
