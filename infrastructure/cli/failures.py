"""How an agent failed: said once, with the operation, and without a word of what the agent was told or said."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Final, Self

import click

from counterfoil.domain.duration import in_words
from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.infrastructure.callbacks import Agent, is_async

LOG: Final = "counterfoil.infrastructure.route_worker"
LOGGED: Final = "an agent raised %s"
"""What the runtime logs of the same failure, where it knows neither the operation nor that the agent is a program."""


class TimedOut(TimeoutError):
    """An agent took too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {in_words(round(seconds * 1_000_000))}")


class ProgramFailed(Exception):
    """A program did not exit with 0; the message says how it ended, and nothing that it printed."""

    def __init__(self, status: int) -> None:
        super().__init__(f"ended by signal {-status}" if status < 0 else f"ended with exit status {status}")


class Failures(logging.Filter):
    """Says how each call of an agent failed. While it is entered, what has been said here is not logged again."""

    def __init__(self) -> None:
        super().__init__()
        self._said = 0

    def __enter__(self) -> Self:
        logging.getLogger(LOG).addFilter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        logging.getLogger(LOG).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let pass what has not been said."""
        if record.msg != LOGGED or not self._said:
            return True
        self._said -= 1
        return False

    def told_of(self, agent: Agent) -> Agent:
        """Return an agent that does the same, on the event loop or in a thread as before, and whose failures are said."""
        if is_async(agent):

            async def called(turn: Turn) -> str | AgentAnswer | None:
                try:
                    return await agent(turn)  # type: ignore[misc, no-any-return]
                except (Exception, SystemExit) as error:
                    self._say(turn, error)
                    raise

            return called

        def plainly_called(turn: Turn) -> Any:
            try:
                return agent(turn)
            except (Exception, SystemExit) as error:
                self._say(turn, error)
                raise

        return plainly_called

    def _say(self, turn: Turn, error: BaseException) -> None:
        what = str(error) if isinstance(error, TimedOut | ProgramFailed) else f"raised {type(error).__name__}"
        click.echo(f"{turn.operation_id}: the agent {what}", err=True)
        self._said += 1
