"""
Calling the body of a transaction. One that is a coroutine is stepped: it runs to its end in one step, because awaiting `tx` does
not make it yield, and nothing else may be awaited.

Most of asyncio complains before it yields where no event loop runs, each function in its own words, and a body could go on after
that. So there is one meanwhile, and a task, which refuse whatever they are asked for.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

from counterfoil.domain.errors import InsideTransaction, InvalidValue

from .callbacks import is_async
from .inside import Refuses
from .tx import AsyncTx, Tx

log = logging.getLogger(__name__)

ONLY_TX: Final = (
    "inside a transaction only tx is awaited, because the journal's writer waits meanwhile; do the rest before or after"
)


def call_body(body: Callable[[Any], Any], tx: Tx, transaction: Refuses) -> Any:
    """Call a body, of either kind, to its end, and return what it returns. Raises `InvalidValue` for one that has not run."""
    if is_async(body):
        return finish(body(AsyncTx(tx)), transaction)
    result = body(tx)
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidValue(
            f"the body returned a {type(result).__name__}, of which nothing has run; pass a function that returns when it "
            "has done its work, or to an AsyncJournal a coroutine function"
        )
    return result


class Refusing:
    """What asyncio finds in a body as the running event loop: every method raises, and has the transaction rolled back."""

    def __init__(self, transaction: Refuses) -> None:
        self._transaction = transaction

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*arguments: object, **options: object) -> NoReturn:
            for argument in arguments:
                if inspect.iscoroutine(argument):
                    argument.close()  # nothing will run it
            error = InsideTransaction(ONLY_TX)
            self._transaction.refuse(error)
            raise error

        return refuse


class RefusingTask(Refusing):
    """What asyncio finds in a body as the running task."""

    def get_name(self) -> str:
        """Return what log records show, which ask for it whenever anything is logged."""
        return "counterfoil-transact"


def finish(coroutine: Coroutine[Any, Any, Any], transaction: Refuses) -> Any:
    """Run a coroutine to its end in one step, and return what it returns; raises `InsideTransaction` where it yields."""
    with _refusing(transaction):
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        try:
            coroutine.close()
        except BaseException as error:
            name = type(error).__name__
            log.error("the body of a transaction, closed where it awaited something else than tx, raised %s", name)
    raise InsideTransaction(ONLY_TX)


@contextmanager
def _refusing(transaction: Refuses) -> Iterator[None]:
    """Let asyncio find a loop and a task in this thread that refuse everything."""
    loop = cast(asyncio.AbstractEventLoop, Refusing(transaction))
    task = cast("asyncio.Task[Any]", RefusingTask(transaction))
    asyncio._set_running_loop(loop)
    asyncio.tasks._enter_task(loop, task)
    try:
        yield
    finally:
        asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
