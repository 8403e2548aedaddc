"""Calling a host: its functions may be plain, and then run in a thread, or coroutine functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from counterfoil.domain.errors import NotSent
from counterfoil.domain.exchange import Action, AgentAnswer, DeliveryFailed, Reply, Turn
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.ids import ID_BYTES
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.turn import Delivery

Authorize: TypeAlias = Callable[[Inbound, Action], Awaitable[Grant | None] | Grant | None]
Agent: TypeAlias = Callable[[Turn], "Awaitable[str | AgentAnswer | None] | str | AgentAnswer | None"]
ResolveAgent: TypeAlias = Callable[[str, Identity, Inbound], "Agent | Awaitable[Agent]"]
Deliver: TypeAlias = Callable[[Reply], "Awaitable[str | DeliveryFailed | None] | str | DeliveryFailed | None"]


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function only makes a coroutine, also for an object with an async `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the bound method is what is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class Ended:
    """
    How a function of the host ended, in a box that shows nothing: in debug mode asyncio logs what tasks and futures end with.
    """

    __slots__ = ("_result", "error")

    def __init__(self, result: Any = None, error: Exception | None = None) -> None:
        self._result = result
        self.error = error

    @classmethod
    def by(cls, raised: BaseException) -> Ended:
        """
        Return the end by what was raised, which is an `Exception` whatever it was: a host's `SystemExit` must not end the task
        that asked.
        """
        if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
            return cls(error=raised)
        return cls(error=RuntimeError(f"the function raised {type(raised).__name__}"))

    def result(self) -> Any:
        """Return what the function returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._result


async def attempt(function: Callable[..., Any], *arguments: Any) -> Ended:
    """
    Call a host's function to its end, whatever that is: on the event loop if it is a coroutine function, in a thread otherwise.

    It is the body of a task of its own: a function that cancels the task it runs in cancels nothing of ours.
    """
    try:
        if is_async(function):
            return Ended(await function(*arguments))
        result = (await in_thread(function, *arguments)).result()
        return Ended(await result if inspect.isawaitable(result) else result)
    except BaseException as error:
        return Ended.by(error)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """
    Call a host's function and return what it returns; cancelled, it cancels the function and waits for its end.

    What it raises otherwise is an `Exception`, whatever the function raised.
    """
    task = asyncio.create_task(attempt(function, *arguments), name="counterfoil-callback")
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    return end_of(task).result()


def end_of(task: asyncio.Task[Ended]) -> Ended:
    """Return how the function in a task that is done ended; one that was cancelled before it began was never called."""
    return Ended.by(asyncio.CancelledError()) if task.cancelled() else task.result()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Ended:
    """
    Run a plain function in a daemon thread, and return how it ended.

    A thread cannot be stopped: a cancelled caller leaves it running, and a function that never returns does not keep the program
    from ending, as it would in the pool of an executor.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Ended] = loop.create_future()
    context = contextvars.copy_context()

    def finish(ended: Ended) -> None:
        if not future.done():
            future.set_result(ended)

    def run() -> None:
        try:
            ended = Ended(context.run(function, *arguments))
        except BaseException as error:
            ended = Ended.by(error)
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(finish, ended)
            except RuntimeError:
                return

    threading.Thread(target=run, name="counterfoil-callback", daemon=True).start()
    return await future


async def send(deliver: Deliver, reply: Reply, timeout_s: float, keep: Callable[[asyncio.Task[Ended]], None]) -> Delivery:
    """
    Call `deliver` and say what is known afterwards: returning is a known outcome, raising and timing out are not.

    One that goes on after its time is not waited for: `keep` gets its task.
    """
    task = asyncio.create_task(attempt(deliver, reply), name="counterfoil-deliver")
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        keep(task)
        raise
    if not done:
        task.cancel()
        keep(task)
        return Delivery("delivery_unknown", "timed_out")
    ended = end_of(task)
    error = ended.error
    if isinstance(error, NotSent):
        return Delivery("delivery_failed", error.reason)
    if error is not None:  # what it raised may quote the text; that it raised is what is known
        return Delivery("delivery_unknown", "raised")
    answer = ended.result()
    if answer is None:
        return Delivery("delivered")
    if isinstance(answer, str):
        return Delivery("delivered", message_id=answer if _is_id(answer) else None)
    if isinstance(answer, DeliveryFailed):
        return Delivery("delivery_failed", answer.reason)
    return Delivery("delivery_unknown", "unexpected_answer")


def _is_id(text: str) -> bool:
    """Tell whether every engine can keep this message id; a cut one would name another message."""
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return False
    return 0 < length <= ID_BYTES and "\0" not in text
