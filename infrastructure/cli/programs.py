"""
Programs as agents and as channels: one JSON object on standard input, the answer on standard output.

Each runs without a shell, in a process group of its own: what stops it stops its children too, and a Ctrl-C at the terminal
reaches the run alone, which then ends its programs in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
from contextlib import suppress
from typing import Final, NamedTuple

import click

from counterfoil.domain.errors import NotSent
from counterfoil.domain.exchange import DeliveryFailed, Reply, Turn
from counterfoil.infrastructure.callbacks import Agent, Deliver

from .executables import why_not_started
from .failures import ProgramFailed, TimedOut

PATIENCE: Final = 1.0
"""Seconds that a program gets to end by itself when it is stopped, and its output to arrive when it has ended."""
LOOK: Final = 0.1
CHARACTER: Final = 4
"""Bytes of the longest character in UTF-8."""

_running: set[int] = set()


class Ended(NamedTuple):
    """How a program ended. `stopped` tells that its output reached the limit and that it was ended for that."""

    status: int
    output: bytes
    stopped: bool


class Program:
    """A program with its arguments, started anew for each call."""

    def __init__(self, words: tuple[str, ...], limit: int) -> None:
        self.words = words
        self.limit = limit
        """Bytes of output that count. A few more are read, so that it shows when something is cut."""

    async def call(self, model: Turn | Reply) -> Ended:
        """Run it to its end; raises `OSError` if it cannot be started. A caller that is cancelled takes it along."""
        document = json.dumps({name: getattr(model, name) for name in type(model).model_fields})
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.words, stdin=pipe, stdout=pipe, process_group=0)
        _running.add(process.pid)
        feeding = asyncio.create_task(_feed(process, document.encode()))
        output = bytearray()
        reading = asyncio.create_task(_read(process, output, self.limit + CHARACTER))
        waiting = asyncio.create_task(process.wait())
        try:
            while process.returncode is None and len(output) < self.limit + CHARACTER:
                tasks = {waiting} if reading.done() else {waiting, reading}
                await asyncio.wait(tasks, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            stopped = process.returncode is None
            if not stopped:
                await asyncio.wait({reading}, timeout=PATIENCE)
            return Ended(0 if process.returncode is None else process.returncode, bytes(output), stopped)
        finally:
            await asyncio.shield(_end(process, feeding, reading, waiting))
            _running.discard(process.pid)


async def _feed(process: asyncio.subprocess.Process, document: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(document + b"\n")
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: asyncio.subprocess.Process, output: bytearray, most: int) -> None:
    assert process.stdout is not None
    while len(output) < most and (chunk := await process.stdout.read(most - len(output))):
        output += chunk


async def _end(process: asyncio.subprocess.Process, *tasks: asyncio.Task[object]) -> None:
    """Stop what still runs of a program and of what it has started, politely first, and leave nothing of it behind."""
    if process.returncode is None or _is_there(process.pid):
        _signal(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await _exit(process)
                while _is_there(process.pid):  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(LOOK / 5)
        _signal(process.pid, signal.SIGKILL)
        await _exit(process)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    process._transport.close()  # type: ignore[attr-defined]  # its children may hold the pipes open


async def _exit(process: asyncio.subprocess.Process) -> None:
    """Wait until it has ended. `process.wait()` also waits, in some releases of Python, for pipes that its children hold."""
    while process.returncode is None:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(LOOK / 5)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _is_there(group: int) -> bool:
    """Tell whether a process group has processes, though the program that it was made for may have ended."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def kill_all() -> None:
    """End every program at once."""
    for group in list(_running):
        _signal(group, signal.SIGKILL)


# What the command line names.


def program(option: str, command: str, limit: int) -> Program:
    """Split a command as a shell would, and see that it can be started; what cannot is wrong usage."""
    context = click.get_current_context(silent=True)
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise click.UsageError(f"{option} cannot be split into words: {str(error).lower()}", context) from None
    if not words:
        raise click.UsageError(f"{option} must name a program", context)
    if any("\0" in word for word in words):
        raise click.UsageError(f"{option} must not hold NUL", context)
    reason = why_not_started(words[0], shutil.which(words[0]))
    if reason is not None:
        raise click.UsageError(f"{option}: {click.format_filename(words[0])} {reason}", context)
    return Program(words, limit)


def agent_of(found: Program, seconds: float) -> Agent:
    """Return a program as an agent: what it prints is the reply, without its last newline, if it exits with 0."""

    async def agent(turn: Turn) -> str:
        try:
            async with asyncio.timeout(seconds):
                ended = await found.call(turn)
        except TimeoutError:
            raise TimedOut(seconds) from None
        if ended.status != 0:
            raise ProgramFailed(ended.status)
        return _text(ended.output, found.limit).removesuffix("\n")

    return agent


def deliver_of(found: Program) -> Deliver:
    """Return a program as a channel. 0 is delivered, 1 is not delivered, anything else unknown."""

    async def deliver(reply: Reply) -> str | DeliveryFailed | None:
        try:
            ended = await found.call(reply)
        except OSError:
            raise NotSent("not_started") from None
        first = _text(ended.output, found.limit).partition("\n")[0].strip()
        if ended.status == 0 and not ended.stopped:
            return first or None
        if ended.status == 1:
            return DeliveryFailed(first if re.fullmatch(r"[a-z0-9_]{1,64}", first) else "failed")
        raise ProgramFailed(ended.status)

    return deliver


def _text(output: bytes, limit: int) -> str:
    """Return output as text, whatever its bytes; of what is over the limit, a character that was cut in two goes."""
    for cut in range(CHARACTER if len(output) > limit else 1):
        with suppress(UnicodeDecodeError):
            return output[: len(output) - cut].decode("utf-8", "surrogatepass")
    return output.decode("utf-8", "replace")
