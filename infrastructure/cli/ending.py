"""The end of a process that ran a host: functions of the host may go on for ever, and the process does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final

from .signals import leave, of_process

PATIENCE: Final = 1.0
"""Seconds that a task gets to end when it is told to once more."""
LONGEST: Final = 3.0
"""Seconds that the process gets to end by itself after its run: for threads, and for what is called at its exit."""
IGNORED: Final = "The agent or deliver ignores that it was told to end; it is ended with the process."


async def to_its_end(run: Coroutine[Any, Any, int]) -> int:
    """
    Await a run and what it has left behind, and return its exit status.

    In a process of its own, what does not end is not waited for: the process ends with that status.
    """
    try:
        status = await run
    except Exception as error:
        if await _goes_on() and of_process() is not None:
            from .group import say_failed

            leave(say_failed(error), IGNORED)
        raise
    goes_on = await _goes_on()
    signals = of_process()
    if signals is not None:
        signals.ignore()
        if goes_on:
            leave(status, IGNORED)
        watch = threading.Timer(LONGEST, leave, (status, IGNORED))
        watch.daemon = True
        watch.start()
    return status


async def _goes_on() -> bool:
    """Cancel what still runs on the event loop, and tell whether it runs on; how it ends is nobody's news."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in ended:
            if not task.cancelled():
                task.exception()
    return len(asyncio.all_tasks()) > 1
