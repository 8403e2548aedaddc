"""The command that reconciles an operation, ready for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from counterfoil.infrastructure.reading import UnresolvedOperation

PLACEHOLDER: Final = ("--deliver", "MODULE:FUNCTION")
"""Stands where nobody has said yet how replies are sent."""
GRANTS: Final = ("--grants", "FILE")
"""Stands where nobody has said yet who is granted, for what is not in the scope of a run without grants."""


def reconcile_command(journal: str, row: UnresolvedOperation, sending: Sequence[str] = PLACEHOLDER) -> str:
    """Return the command with all that it needs; `sending` are the options of a resend."""
    words = ["counterfoil", "reconcile", as_argument(journal), row.operation_id, "--expect", str(row.version)]
    if row.needs_acknowledgment:
        words.append("--acknowledge-duplicate-risk")
    if row.resends:
        words += sending
    return shlex.join(words)


def as_argument(journal: str) -> str:
    """Return the name of a journal as an argument: a path that is not taken for an option, or a URL without its password."""
    if "://" not in journal:
        return f"./{journal}" if journal.startswith("-") else journal
    from counterfoil.infrastructure.postgres.naming import without_password

    return without_password(journal)


def what_it_is(row: UnresolvedOperation, *, granted: bool = True) -> str:
    """
    Return in words what is known of an operation and what reconciling it does. `granted` tells whether a run without --grants
    may run it.
    """
    if row.state == "accepted":
        if row.holder is None:
            return "has waited too long to be run unasked; it runs with its message once more. To give it up:"
        if row.holder_alive:
            return (
                f"waits in the queue of opening {row.holder}, which is alive and has it in hand; look again. To give it up now:"
            )
        run = "counterfoil run" if granted else "counterfoil run --grants FILE"
        return f"waits; it runs with the next `{run}`, or with its message once more. To give it up:"
    if row.state == "executing":
        alive = {
            True: f"runs now under opening {row.holder}, which is alive; let it end, or add --force to stop it. To file it:",
            False: f"was running when opening {row.holder} ended, and is never run again. To file that nobody knows what it did:",
            None: f"was claimed by opening {row.holder}, and is never run again. To file that nobody knows what it did:",
        }
        return alive[row.holder_alive]
    if row.reply_state == "pending" and row.holder_alive:
        return (
            f"has a reply that opening {row.holder}, which is alive, has in hand and may be sending now; look again. "
            "Only if it stays so, to send it again:"
        )
    reply = {
        "pending": "has a reply of which nobody recorded a sending. To send it (again, perhaps):",
        "delivery_unknown": "has a reply of which nobody can tell whether it arrived. To send it again:",
        "delivery_failed": "has a reply that did not arrive. To send it again:",
    }
    return reply.get(row.reply_state, "is not resolved. To look at it:")
