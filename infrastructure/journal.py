"""The journal for plain synchronous programs. Made from `journal_async.py` by `scripts/colours.py`; change that one."""

from __future__ import annotations

import os
from datetime import timedelta
from types import TracebackType
from typing import Self

from counterfoil.domain.admission import Admission, refused
from counterfoil.domain.errors import JournalUnavailable
from counterfoil.domain.hold import checked_terms
from counterfoil.domain.identity import Every, Grant, Identity, Reach, reach
from counterfoil.domain.ids import SubjectKind
from counterfoil.domain.inbound import Inbound
from counterfoil.domain.limits import Limits
from counterfoil.domain.reconcile import Reconciliation
from counterfoil.projections.story import Story
from counterfoil.projections.timeline import TimelineEntry, TimelineFilter

from . import reading, reading_locks
from .admitting import admit_command, refusal_before_journal
from .calls import Calls
from .clock import Clock
from .commands.opening import RecordAct
from .commands.reconcile import ResendClaimed
from .core import STORE_FAILS, Core, store_failed
from .erasing import erase_command, erase_scope_command
from .locks import Lock
from .reading_locks import Holder, Waiter
from .reconciling import reconcile_command
from .transactions import Transactions
from .verification import Progress, Verification, verify


class Journal(Transactions):
    """
    One opening of a journal.

    Use it as a context manager, or call `close`. Calls may come from any number of threads; commands that come together share a
    commit.
    """

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is queued, record the end of the opening, and close. Closing again does nothing."""
        self._close()

    @property
    def core(self) -> Core:
        """What a `Runtime` and a recorder share with this journal."""
        return self._core

    @property
    def limits(self) -> Limits:
        """The limits it was opened with."""
        return self._core.limits

    def admit(self, inbound: Inbound, grant: Grant, *, command_id: str | bytes | None = None) -> Admission:
        """
        Admit one event that the host has authorised, without running anything.

        Returns after the durable append. `grant` is the host's word on who sent it. A `command_id` (1 to 128 bytes) makes asking
        again safe beyond the event id: within `command_id_days` the same id gives the first answer, and raises `CommandConflict`
        for another command.
        """
        core = self._core
        reason = refusal_before_journal(inbound, grant, core.limits, core.now())
        if reason is not None:
            return core.count_admission(refused(reason))
        command = admit_command(inbound, grant, command_id)
        try:
            admitted = self._submit(command)
        except STORE_FAILS as error:
            return core.count_admission(store_failed(error))
        return core.count_admission(admitted.admission)

    def acting_as(self, identity: Identity, *, tenant: str | Every | None = None) -> Desk:
        """
        Return the calls of an identity: what it may list, file and erase.

        Without `tenant` it works in its own scope. Naming one, or `EVERY_TENANT`, needs the permission `journal:operate` and
        raises `Denied` otherwise.
        """
        return Desk(self._core, reach(identity, tenant))

    def lock(
        self,
        name: str,
        *,
        ttl: timedelta | str = "30s",
        max_hold: timedelta | str | None = None,
        lock_delay: timedelta | str | None = None,
    ) -> Lock:
        """
        Return a lock by its name: 1 to 64 characters, a lower-case letter or digit, then also `_` and `-`.

        A lease of it lasts its `ttl` (1 s to 1 h) from its last renewal, and `max_hold` (1 ms to 365 days) from its grant at the
        longest. `lock_delay` (up to 1 h) holds a key back after a lease that was not let go but ended by itself: its holder may
        still be at work. What is outside its range raises `InvalidValue`.
        """
        return Lock(self._core, checked_terms(name, ttl, max_hold, lock_delay))

    def holders(self) -> list[Holder]:
        """Tell who holds which keys of all locks, those of routes included, the oldest grant first."""
        core = self._core
        return self._read(lambda store: reading_locks.holders(store, core.engine.clocks))

    def waiters(self) -> list[Waiter]:
        """Tell who waits for which keys of all locks, in the order in which they came."""
        core = self._core
        return self._read(lambda store: reading_locks.waiters(store, core.is_live))

    def verify(self, progress: Progress | None = None) -> Verification:
        """
        Check the chain, the commitments, and every projection against one folded anew.

        `progress` is called with what is checked, how far it is and how much there is.
        """
        return self._read(lambda store: verify(store, progress))

    def position(self) -> int:
        """Return the position of the newest event, 0 for an empty journal."""
        return self._read(lambda store: store.head().position)

    def diagnostics(self) -> dict[str, int]:
        """Return the counters of this opening: numbers, and no string that came from outside."""
        return dict(self._core.counters)


class Desk(Calls):
    """What one identity may do with a journal. Every call checks that the identity is active, and raises `Denied` otherwise."""

    def __init__(self, core: Core, reached: Reach) -> None:
        super().__init__(core)
        self._reach = reached

    def _active(self) -> Core:
        core = self._core
        self._reach.identity.require_active(core.now())
        return core

    def unresolved(
        self, *, limit: int | None = None, after: str | None = None
    ) -> reading.Page[reading.UnresolvedOperation]:
        """
        List what still needs attention, oldest first, one page at a time.

        `limit` is `max_journal_page` unless given, `after` the `next` of the page before.
        """
        core = self._active()
        return self._read(
            lambda store: reading.unresolved(
                store, self._reach, core.limits, limit=limit, after=after, now=core.engine.clocks.stamps(), is_live=core.is_live
            )
        )

    def timeline(
        self,
        filter: TimelineFilter | None = None,
        *,
        limit: int | None = None,
        after: str | None = None,
        newest_first: bool = False,
        with_text: bool = False,
    ) -> reading.Page[TimelineEntry]:
        """Tell what happened, in order of position, one page at a time. Showing text is recorded as an act of this identity."""
        core = self._active()
        if with_text and not core.engine.records_showing:
            self._record("text_shown")
        return self._read(
            lambda store: reading.timeline(
                store,
                self._reach,
                core.limits,
                filter or TimelineFilter(),
                limit=limit,
                after=after,
                newest_first=newest_first,
                with_text=with_text,
            )
        )

    def explain(self, identifier: str, *, with_text: bool = False) -> list[Story]:
        """
        Tell the story of one message, named by its operation id or by the platform's event id: one story for each operation of
        it.

        An id that is not known in this reach gives an empty list. Showing text is recorded as an act of this identity.
        """
        core = self._active()
        stories = self._read(
            lambda store: reading.explain(
                store, self._reach, identifier, with_text=with_text, now=core.engine.clocks.stamps(), is_live=core.is_live
            )
        )
        if with_text and not core.engine.records_showing:
            for story in stories:
                self._record("text_shown", story.operation_id)
        return stories

    def statistics(self) -> reading.Statistics:
        """Return counts and latencies, in all and by the hour."""
        self._active()
        return self._read(lambda store: reading.statistics(store, self._reach))

    def reconcile(
        self,
        operation_id: str,
        *,
        expected_version: int,
        acknowledge_duplicate_risk: bool = False,
        force: bool = False,
        reason: str = "operator",
        note: str | None = None,
        command_id: str | bytes | None = None,
    ) -> Reconciliation:
        """
        File what cannot be proven: an accepted operation as abandoned, an executing one as unknown.

        An executing one needs `acknowledge_duplicate_risk`, and `force` while its holder is alive. `expected_version` is the
        version that the decision was made on. A reply that would have to be sent raises `NeedsRuntime` and changes nothing.
        """
        command = reconcile_command(
            self._reach,
            operation_id,
            expected_version=expected_version,
            acknowledge_duplicate_risk=acknowledge_duplicate_risk,
            force=force,
            reason=reason,
            note=note,
            command_id=command_id,
            may_send=False,
        )
        try:
            answer = self._submit(command)
        except JournalUnavailable:
            return Reconciliation("unavailable")
        assert not isinstance(answer, ResendClaimed)
        return answer

    def erase(self, kind: SubjectKind, value: str, *, connection: str | None = None) -> bool:
        """
        Erase one person's id in this identity's scope, with the texts and platform ids of its operations; tells whether it was
        known.

        An actor, conversation or thread is named with its connection, a principal without; anything else raises `InvalidValue`.
        Events keep the pseudonym, which then stands for nobody. A desk that names a tenant raises `Denied`.
        """
        self._active()
        return self._submit(erase_command(self._reach, kind, value, connection))

    def erase_scope(self) -> bool:
        """
        Erase the key of this identity's scope, and with it all that links its history to anybody; tells whether it was known.

        A desk that names a tenant raises `Denied`.
        """
        self._active()
        return self._submit(erase_scope_command(self._reach))

    def _record(self, action: str, operation_id: str | None = None) -> None:
        self._submit(RecordAct(action, self._reach.identity, operation_id))


def open(
    url: str | os.PathLike[str],
    *,
    readonly: bool = False,
    create: bool = True,
    limits: Limits | None = None,
    keep_inbound: int | None = None,
    clock: Clock | None = None,
) -> Journal:
    """
    Name a journal: the path of an SQLite file, `:memory:`, or the URL of a schema of PostgreSQL, `postgresql://…?schema=NAME`.

    It is created if it is missing, unless `create` is False: then `JournalRefused` says so.

    With `readonly` nothing is created or changed, and commands raise `ReadOnly`. `keep_inbound` keeps inbound texts after their
    operations have ended, for pruning after so many days. What cannot be opened raises `JournalRefused`, what may be tried again
    `JournalUnavailable`.
    """
    return Journal(
        lambda: Core(url, readonly=readonly, create=create, limits=limits, keep_inbound=keep_inbound, clock=clock)
    )
