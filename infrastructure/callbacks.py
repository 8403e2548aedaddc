"""Calling a host: its functions may be plain, and then run in a thread, or coroutine functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from counterfoil.domain.errors import NotSent
from counterfoil.domain.exchange import AgentAnswer, DeliveryFailed, Reply, Turn
from counterfoil.domain.identity import Grant, Identity
from counterfoil.domain.ids import ID_BYTES
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.turn import Delivery

Authorize: TypeAlias = Callable[[Inbound, str], Awaitable[Grant | None] | Grant | None]
Agent: TypeAlias = Callable[[Turn], "Awaitable[str | AgentAnswer | None] | str | AgentAnswer | None"]
ResolveAgent: TypeAlias = Callable[[str, Identity, Inbound], "Agent | Awaitable[Agent]"]
Deliver: TypeAlias = Callable[[Reply], "Awaitable[str | DeliveryFailed | None] | str | DeliveryFailed | None"]


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling a function only makes a coroutine, also for an object with an async `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 - the bound method is what is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """
    Call a host's function: on the event loop if it is a coroutine function, in a thread of its own otherwise.

    What it raises is an `Exception`, whatever it was: a host's `SystemExit` or `CancelledError` must not end the task that asked.
    """
    try:
        if is_async(function):
            return await function(*arguments)
        result = await in_thread(function, *arguments)
        return await result if inspect.isawaitable(result) else result
    except SystemExit:
        raise RuntimeError("the function raised SystemExit") from None
    except asyncio.CancelledError:
        if was_cancelled():
            raise
        raise RuntimeError("the function raised CancelledError") from None


def was_cancelled() -> bool:
    """Tell whether somebody cancelled the running task; a `CancelledError` may also be the host's own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """
    Run a plain function in a daemon thread.

    A thread cannot be stopped: a cancelled caller leaves it running, and a function that never returns does not keep the program
    from ending, as it would in the pool of an executor.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif not isinstance(error, Exception) or isinstance(error, StopIteration):
            future.set_exception(RuntimeError(f"the function raised {type(error).__name__}"))
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(function, *arguments)
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(finish, result, error)
            except RuntimeError:
                return

    threading.Thread(target=run, name="counterfoil-callback", daemon=True).start()
    return await future


async def send(deliver: Deliver, reply: Reply, timeout_s: float, keep: Callable[[asyncio.Task[Any]], None]) -> Delivery:
    """
    Call `deliver` and say what is known afterwards: returning is a known outcome, raising and timing out are not.

    One that goes on after its time is not waited for: `keep` gets its task.
    """
    task = asyncio.create_task(call(deliver, reply), name="counterfoil-deliver")
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
    error = task.exception()
    if isinstance(error, NotSent):
        return Delivery("delivery_failed", error.reason)
    if error is not None:  # what it raised may quote the text; that it raised is what is known
        return Delivery("delivery_unknown", "raised")
    answer = task.result()
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
