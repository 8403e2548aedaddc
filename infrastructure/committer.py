"""
The committer: one writer thread takes commands from a queue, decides a few hundred of them in one transaction, and completes
their callers.

A caller that is refused, raises, is cancelled, or whose event loop has ended costs its neighbours nothing; nothing ends the
thread but `close`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from counterfoil.domain.errors import Closed, ForkedError

from .inside import refuse_inside
from .unit import Unit

log = logging.getLogger(__name__)

A = TypeVar("A", covariant=True)

GROUP: Final = 256
"""Commands in one transaction at most: beyond that only the latency grows."""


class Command(Protocol[A]):
    """Something to decide and append. What it raises is its caller's; what it had appended until then is undone."""

    def run(self, unit: Unit) -> A:
        """Decide on the state that stands and append the steps."""
        ...


@runtime_checkable
class GivesBack(Protocol):
    """A command that acquires something which must not stay with a caller that is gone."""

    def give_back(self, answer: Any) -> Command[Any] | None:
        """Return the command that gives back what the answer tells was acquired."""
        ...


class Request(Generic[A]):
    """A command with the future of its caller."""

    __slots__ = ("command", "error", "future", "loop", "result")

    def __init__(self, command: Command[A], future: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.command = command
        self.future = future
        self.loop = loop
        self.result: Any = None
        self.error: BaseException | None = None

    def withdrawn(self) -> bool:
        """Tell whether the caller left before the command was picked up."""
        if self.loop is not None:
            return bool(self.future.cancelled())
        return not self.future.set_running_or_notify_cancel()


RunGroup: TypeAlias = Callable[[list[Request[Any]]], None]
"""Decide and commit a group; leaves each request's result or error in it."""


class Committer:
    """Take commands from any thread or event loop, and run them in groups on one thread of its own."""

    def __init__(self, run_group: RunGroup, *, name: str, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called on the thread once a group has its answers, for what nobody waits for."""
        self._run_group = run_group
        self._after = after
        self._queue: SimpleQueue[Request[Any] | None] = SimpleQueue()
        self._lock = threading.RLock()  # re-entrant: what a collection frees may give a key back, anywhere
        self._closed = False
        self._pid = os.getpid()
        self._name = name
        self._thread: threading.Thread | None = None

    def submit(self, command: Command[A]) -> concurrent.futures.Future[A]:
        """Queue a command; the future of threads."""
        future: concurrent.futures.Future[A] = concurrent.futures.Future()
        self._put(Request(command, future, None))
        return future

    def submit_async(self, command: Command[A]) -> asyncio.Future[A]:
        """Queue a command; the future of the running event loop."""
        refuse_inside()  # where no event loop runs, which would be the complaint otherwise
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._put(Request(command, future, loop))
        return future

    def close(self) -> None:
        """Finish what is queued and end the thread; later commands raise `Closed`."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
            thread = self._thread
        if thread is not None:
            thread.join()

    def _put(self, request: Request[Any]) -> None:
        refuse_inside()
        if os.getpid() != self._pid:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")
        with self._lock:
            if self._closed:
                raise Closed("the journal is closed; open it again")
            if self._thread is None:
                self._start(threading.Thread(target=self._work, name=self._name, daemon=True))
            self._queue.put(request)

    def _start(self, thread: threading.Thread) -> None:
        """Start the writer, unless a call that came in between has."""
        if self._thread is not None:
            return
        self._thread = thread
        try:
            thread.start()
        except BaseException:
            self._thread = None
            raise

    def _work(self) -> None:
        last = False
        while not last and os.getpid() == self._pid:  # a body may fork: its child is no writer
            waiting = [self._queue.get()]
            with contextlib.suppress(Empty):
                while len(waiting) < GROUP:
                    waiting.append(self._queue.get_nowait())
            last = None in waiting
            group = [request for request in waiting if request is not None and not request.withdrawn()]
            if group:
                try:
                    self._run_group(group)
                except BaseException as error:
                    for request in group:
                        request.result, request.error = None, request.error or error
                self._complete(group)
                self._tidy()
            del waiting, group

    def _tidy(self) -> None:
        try:
            self._after()
        except BaseException as error:
            log.error("what was to be done after a group raised %s", type(error).__name__)

    # Completing: each result alone, and one wake-up of a loop for all of its callers.

    def _complete(self, group: list[Request[Any]]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
        for request in group:
            if request.loop is None:
                _alone(self._complete_here, request)
            else:
                loops.setdefault(request.loop, []).append(request)
        for loop, requests in loops.items():
            try:
                loop.call_soon_threadsafe(self._complete_in_loop, requests)
            except RuntimeError:  # the loop has ended, and its callers with it
                for request in requests:
                    _alone(self._give_back, request)

    def _complete_here(self, request: Request[Any]) -> None:
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.result)

    def _complete_in_loop(self, requests: list[Request[Any]]) -> None:
        for request in requests:
            _alone(self._complete_for_loop, request)

    def _complete_for_loop(self, request: Request[Any]) -> None:
        future = request.future
        if future.done():
            self._give_back(request)
        elif request.error is None:
            future.set_result(request.result)
        elif isinstance(request.error, StopIteration):
            future.set_exception(RuntimeError("a command raised StopIteration"))
        else:
            future.set_exception(request.error)

    def _give_back(self, request: Request[Any]) -> None:
        if request.error is not None or not isinstance(request.command, GivesBack):
            return
        command = request.command.give_back(request.result)
        if command is not None:
            with contextlib.suppress(Closed):
                self.submit(command)


def _alone(complete: Callable[[Request[Any]], None], request: Request[Any]) -> None:
    """Complete one caller; what goes wrong there, for example in a callback of its future, stays there."""
    try:
        complete(request)
    except BaseException as error:
        log.error("completing a command raised %s", type(error).__name__)
