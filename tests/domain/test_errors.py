"""Errors: the tree that a host may catch."""

import copy
import inspect
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from counterfoil.domain import errors
from counterfoil.domain.errors import CounterfoilError, Denied, InvalidValue, LeaseLost, NotSent

RAISED = {
    name: cls
    for name, cls in vars(errors).items()
    if inspect.isclass(cls) and issubclass(cls, Exception) and cls.__module__ == errors.__name__
}


def test_the_tree_on_top_is_the_tree_of_the_classes() -> None:
    """Each error once, under its parent."""
    assert errors.__doc__ is not None
    path: list[str] = []
    drawn: dict[str, str | None] = {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ((?:│   |    )*(?:[├└]── )?)(\w+)", line)
        if found:
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            drawn[found[2]] = path[-2] if depth else None

    assert {name: None if cls is CounterfoilError else cls.__bases__[0].__name__ for name, cls in RAISED.items()} == drawn


@pytest.mark.parametrize("name", RAISED)
def test_each_says_what_it_is(name: str) -> None:
    """One sentence at least, and one base to catch them all."""
    assert RAISED[name].__doc__
    assert issubclass(RAISED[name], CounterfoilError)


def test_reasons_are_attributes() -> None:
    """A host need not read the message."""
    assert "revoked" == Denied("the identity is revoked", reason="revoked").reason
    assert ("not_sent", "no_program") == (NotSent().reason, NotSent("no_program").reason)
    assert issubclass(InvalidValue, ValueError)


def made(cls: type[Exception]) -> Exception:
    """Return an error of a class, with all that its class is called with."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    named = {each.name: f"the_{each.name}" for each in parameters if each.kind is each.KEYWORD_ONLY}
    return cls("a_word", **named)


def shown(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", RAISED)
def test_each_goes_through_a_pickle(name: str, protocol: int) -> None:
    """With what it says and all of its attributes; what a host adds to it comes along."""
    error = made(RAISED[name])
    error.add_note("a note")

    assert shown(error) == shown(pickle.loads(pickle.dumps(error, protocol)))
    assert shown(error) == shown(copy.copy(error))


class OfAHost(LeaseLost):
    """A class of a host's, called with something else again."""

    def __init__(self, number: int, *, name: str) -> None:
        super().__init__("ttl", lock=name, lease_id="lk-0123456789")
        self.number = number


def test_one_of_a_host_goes_through_a_pickle() -> None:
    error = OfAHost(7, name="jobs")

    assert shown(error) == shown(pickle.loads(pickle.dumps(error)))


LOSE = """
from counterfoil.domain.errors import LeaseLost
raise LeaseLost("ttl", lock="jobs", lease_id="lk-0123456789", key="k")
"""
"""What a worker of a pool meets; as text, because a process that is spawned may not find this module."""


def test_an_error_in_a_worker_breaks_no_pool() -> None:
    """It is raised where the result is asked for, and the pool goes on."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(LeaseLost) as lost:
            pool.submit(exec, LOSE).result()
        assert 7 == pool.submit(abs, -7).result()
    assert ("ttl", "jobs", "lk-0123456789", "k") == (
        lost.value.reason,
        lost.value.lock,
        lost.value.lease_id,
        lost.value.key,
    )


@pytest.mark.contract("DIA-01")
@pytest.mark.parametrize("word", ["a", "7", "_", "http_403", "x" * 64])
def test_a_class_word_is_a_reason_for_not_having_sent(word: str) -> None:
    assert word == NotSent(word).reason
    assert f"nothing was sent: {word}" == str(NotSent(word))


@pytest.mark.contract("DIA-01")
@pytest.mark.parametrize(
    "reason",
    ["", "x" * 65, "No program", "ann@example.org", "word\n", "w\xf6rd", "\u0663", "not-sent", None, 7, b"word", ["word"]],
    ids=ascii,
)
def test_what_is_no_class_word_is_no_reason_for_not_having_sent(reason: Any) -> None:
    """It could hold text: neither the reason nor the message shows it."""
    error = NotSent(reason)

    assert "not_sent" == error.reason
    assert "nothing was sent: not_sent" == str(error)
    assert "not_sent" in repr(error)
