"""Python callables that are named on the command line as `module:function`, with the current folder among the places."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import click

from counterfoil.domain.exchange import AgentAnswer, Turn
from counterfoil.infrastructure.callbacks import Agent, is_async

from .failures import TimedOut


def load(option: str, name: str) -> Callable[..., Any]:
    """Import a callable that takes one argument; what cannot be had is wrong usage."""
    module_name, separator, path = name.partition(":")
    if not (separator and module_name and path):
        raise _wrong(f"{option} must be MODULE:FUNCTION, for example counterfoil.demo:echo")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise _wrong(f"{option}: the module {module_name} cannot be imported ({type(error).__name__}: {error})") from None
    try:
        function = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise _wrong(f"{option}: the module {module_name} has no {path}") from None
    if not callable(function):
        raise _wrong(f"{option}: {name} is not a callable, but of the type {type(function).__name__}")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise _wrong(f"{option}: {name} must take one argument") from None
    except ValueError:  # a builtin does not tell what it takes
        pass
    return function


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context(silent=True))


def with_timeout(function: Callable[[Turn], Any], seconds: float) -> Agent:
    """
    Return an agent that raises `TimedOut` when it takes longer.

    It is a coroutine function exactly if the function is one: the runtime may abort a coroutine, and waits for a thread, which
    cannot be stopped.
    """
    if is_async(function):

        async def agent(turn: Turn) -> str | AgentAnswer | None:
            try:
                async with asyncio.timeout(seconds) as time:
                    return await function(turn)  # type: ignore[no-any-return]
            except TimeoutError:
                if time.expired():
                    raise TimedOut(seconds) from None
                raise

        return agent

    def plain_agent(turn: Turn) -> Any:
        outcome: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            try:
                outcome.append((function(turn), None))
            except BaseException as error:
                outcome.append((None, error))

        thread = threading.Thread(target=run, name="counterfoil-agent", daemon=True)
        thread.start()
        thread.join(seconds)
        if not outcome:
            raise TimedOut(seconds)
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    return plain_agent
