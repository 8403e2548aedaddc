"""What an engine is to the rest: one opening of one journal, with its writer, its readers and its sign of life."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from counterfoil.domain.limits import Limits

from .bell import Bell
from .clocks import Clocks
from .committer import Committer, Request
from .hosting import Hosting, Turns
from .store import Store


class Outside(Protocol):
    """Ask again and again whether anybody has committed since, in this or any process."""

    def changed(self) -> bool:
        """Tell whether a commit has come since the last call; the first tells True. Raises what a store that fails raises."""

    def close(self) -> None:
        """Ask no more."""


class Engine(Protocol):
    """One opening of one journal. `run_group` is called by the one thread of the committer, all else from any."""

    name: str
    """How errors and messages name the journal."""
    readonly: bool
    limits: Limits
    clocks: Clocks
    on_commit: list[Callable[[], None]]
    """Called on the writer thread after each commit that appended events; must not block."""
    on_rings: Callable[[Sequence[tuple[int, str]]], None]
    """Called on the writer thread after a commit with the openings that are to look at a key; must not block."""
    on_begun: Callable[[int], None]
    """Called on the writer thread where somebody has to listen to the bell of an opening as soon as it has begun."""
    on_lost: Callable[[int], None]
    """Called by the thread that listens, once for an opening that has ended although nobody has closed it."""

    @property
    def journal_key(self) -> bytes:
        """The key under which ids are made."""

    @property
    def records_showing(self) -> bool:
        """Whether whoever reads texts through it is recorded by the database itself."""

    @property
    def opening_id(self) -> int | None:
        """The id of this opening once it has appended something, None before."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def check_open(self) -> None:
        """Raise `ForkedError` in a forked child, and `Closed` once closed."""

    def reading(self) -> AbstractContextManager[Store]:
        """Lend a store to read with, in one snapshot; the projections are at the head of it."""

    def run_group(self, group: list[Request[Any]]) -> None:
        """Decide and commit a group; each request gets its result or its error."""

    def tidy(self) -> None:
        """Do, between two groups, what nobody waits for."""

    def is_live(self, opening_id: int) -> bool:
        """Tell whether an opening that has begun lives still, in this or any process."""

    def outside(self) -> Outside:
        """Return what tells whether anybody has committed; its user closes it."""

    def new_bell(self, opening_id: int) -> Bell:
        """Return what hears those who ring for this opening; its user closes it."""

    def ring(self, opening_id: int, lease_id: str) -> None:
        """After a commit: have another opening look at a key, unless the commit itself has told it."""

    def watch_death(self, opening_id: int, tell: Callable[[], None]) -> Callable[[], None] | None:
        """
        Have `tell` called once, on a thread of its own, when an opening has ended; soon, if it has already.

        Returns what takes the watch back, None where nobody else can have the journal open.
        """

    def hosting(self, committer: Committer, turns: Turns) -> Hosting:
        """Return what runs a host's transactions for this opening; its user closes it, before the committer."""

    def close(self) -> None:
        """Close the connections, and end the sign of life. In a forked child nothing is touched: it is the parent's."""
