"""The options that name an agent and a channel become callables; what cannot be started is wrong usage, found at once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from counterfoil.infrastructure.callbacks import Agent, Deliver

from .callables import load, with_timeout
from .programs import agent_of, deliver_of, program


def agent_from(function: str | None, command: str | None, timeout_us: int, limit: int) -> Agent:
    """Return the agent that was named; exactly one of the two must have been."""
    _exactly_one("--agent", function, command)
    seconds = timeout_us / 1_000_000
    if function is not None:
        return with_timeout(load("--agent", function), seconds)
    assert command is not None
    return agent_of(program("--agent-command", command, limit), seconds)


def deliver_from(function: str | None, command: str | None, limit: int) -> Deliver:
    """Return the channel that was named; exactly one of the two must have been."""
    _exactly_one("--deliver", function, command)
    if function is not None:
        return load("--deliver", function)
    assert command is not None
    return deliver_of(program("--deliver-command", command, limit))


def _exactly_one(option: str, function: str | None, command: str | None) -> None:
    if (function is None) == (command is None):
        many = "one of them, not both" if function is not None else "one of them"
        raise click.UsageError(
            f"name {option} MODULE:FUNCTION or {option}-command COMMAND: {many}", click.get_current_context(silent=True)
        )


def as_given(function: str | None, command: str | None, grants: str | None) -> Sequence[str]:
    """Return the options again, to be put into a command for a shell."""
    words = ["--deliver", function] if function is not None else ["--deliver-command", command or shlex.quote("")]
    return [*words, "--grants", grants] if grants is not None else words
