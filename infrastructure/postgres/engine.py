"""
The PostgreSQL engine: a group of commands is decided ahead, from what is cached, and appended by one call.

The call checks that the decision still stands; what has gone stale is decided again. No lock is held between two messages, so
that a process which is frozen or slow stops nobody else.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from counterfoil.domain.errors import Closed, ForkedError, JournalRefused, JournalUnavailable, ReadOnly
from counterfoil.domain.limits import Limits

from ..bell import Bell
from ..clock import Clock
from ..committer import Committer, Request
from ..engine import Engine, Outside
from ..hosting import Hosting, Turns
from ..inside import refuse_inside
from ..rows import Head
from ..statements import Names
from ..store import Store
from ..unit import OpeningState, Unit
from .access import access_of
from .appending import Appended, Appender, Conflict
from .clocks import ServerClocks
from .connecting import connect
from .connection import Connection, Session
from .deaths import watch_death
from .deciding import Draft, without_lease
from .drafting import Drafting
from .faults import fault
from .folding import catch_up, catch_up_aside, is_behind
from .host_transaction import Opening
from .hosting import PostgresHosting
from .knowledge import Knowledge
from .naming import Address
from .opening import open_journal
from .origin import Origin, where
from .outside import Elsewhere
from .pool import Pool
from .reader_pool import ReaderPool
from .record import Standpoint, record
from .sign import Sign, live_openings
from .store import PostgresStore

log = logging.getLogger(__name__)

CALLS: Final = Names("calls")
WITHIN: Final = Names("within")
UNKNOWN: Final = -1
"""The head that a record met, where its answer was lost."""
ENDED: Final = frozenset(("57P01", "57P02", "57P03"))
"""What a server says when it ends a session."""
GUARDED: Final = "a transaction that is guarded by the lease of this key has not ended yet; try again"
LOOK_AGAIN_S: Final = 0.01
PORTION: Final = 48
"""
How many commands are decided while as many are appended: with fewer a server that syncs slowly does little else, and with more it
waits for the first of them.
"""


class PostgresEngine(Engine):
    """One opening of one journal, and the next one when its connection was lost."""

    def __init__(
        self, address: Address, *, readonly: bool, create: bool, limits: Limits, clock: Clock, keep_inbound: bool
    ) -> None:
        self.address = address
        self.name = address.name
        self.readonly = readonly
        self.limits = limits
        self.clocks = ServerClocks(clock, self.is_live)
        self.on_commit: list[Callable[[], None]] = []
        self.on_rings: Callable[[Sequence[tuple[int, str]]], None] = lambda rings: None
        self.on_begun: Callable[[int], None] = lambda opening_id: None
        """Called on the writer thread when an opening has begun: somebody is to listen to its bell from now on."""
        self.on_lost: Callable[[int], None] = lambda opening_id: None
        """Called by whoever listens, once for an opening that has ended because its connection was lost."""
        self._keep_inbound = keep_inbound
        self._busy = limits.duration("busy_wait")
        """How long is waited for locks and connections, in microseconds."""
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.RLock()
        self._readers = ReaderPool(address, self._busy)
        self._opening = OpeningState()
        self._dead: set[int] = set()
        self._shares_work = False
        """Whether hosts' transactions admit events in the name of this opening."""
        self._sign = Sign(address, busy_us=self._busy, on_lost=lambda opening_id: self.on_lost(opening_id))
        try:
            with self._faults():
                connection = connect(address, purpose="reader" if readonly else "writer", busy_us=self._busy)
                open_journal(connection, address, readonly=readonly, create=create)
                self._access = self._readers.access = access_of(connection)
                self._origin: Origin = where(connection, address)
                self._use(connection, newest=0)
                self._known.look()
        except BaseException:
            self._sign.close()
            raise

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise fault(error, self.name) from None

    @property
    def journal_key(self) -> bytes:
        """The key under which ids are made. Raises `JournalRefused` where the role may not know it, which is so for a reader."""
        if self._access.journal_key is None:
            raise JournalRefused(f"{self.name}: this role finds no lock by its key; connect as one that has what the writer has")
        return self._access.journal_key

    @property
    def records_showing(self) -> bool:
        return not self._access.texts

    # Reading.

    @contextmanager
    def reading(self) -> Iterator[Store]:
        """Lend a store to read with, in one snapshot; the projections are at the head of it."""
        refuse_inside()
        self.check_open()
        with self._faults():
            with self._readers.snapshot() as store:
                if not is_behind(store):
                    yield store
                    return
            with self._caught_up() as caught_up:
                yield caught_up

    @contextmanager
    def _caught_up(self) -> Iterator[Store]:
        """Lend a store whose projections, which others have left behind, are at the head: for good, or for it alone."""
        if self.readonly:
            with self._readers.aside() as store:
                catch_up_aside(store)
                yield store
        else:
            with self._guard:
                self._connect()
                catch_up(self._known.store)
            with self._readers.snapshot() as found:
                yield found

    # Writing.

    def run_group(self, group: list[Request[Any]]) -> None:
        """Decide and commit a group; each request gets its result or its error."""
        self._check_writable()
        waiting, most, presume = list(group), self._portion(len(group)), True
        ahead: Draft | None = None
        until = time.monotonic() + self.limits.duration("busy_wait") / 1e6
        while waiting or ahead:
            part = waiting[:most] if ahead is None else ahead.part
            rest = waiting[most:] if ahead is None else waiting
            try:
                with self._guard, self._faults():
                    left, ahead = self._round(ahead or part, presume, rest[:most] if presume else [])
            except Exception as error:
                _refuse(part, error)
                left, ahead = [], None
            if len(left) < len(part):
                most, presume = self._portion(len(group)), True
            elif presume:
                presume = False
            elif time.monotonic() < until:
                most = max(1, len(part) // 2)
            else:
                _refuse(left, JournalUnavailable(f"{self.name}: others kept changing what it was decided on; try again"))
                left = []
            waiting = left + (rest if ahead is None else rest[len(ahead.part) :])

    def _portion(self, many: int) -> int:
        """Return how many of so many commands are decided together: fewer, where what follows can be decided meanwhile."""
        return PORTION if self._known.undisturbed and many >= 2 * PORTION else many

    def _round(
        self, part: list[Request[Any]] | Draft, presume: bool, following: list[Request[Any]]
    ) -> tuple[list[Request[Any]], Draft | None]:
        """
        Decide what belongs together, if it was not decided ahead, and append it.

        Returns the requests that are to be decided again, in order, and what was decided meanwhile of those that follow.
        """
        draft = part if isinstance(part, Draft) else self._draft(part, presume)
        if not isinstance(draft, Draft):
            return draft, None
        if self._sign.opening_id != self._opening.opening_id:  # it was lost meanwhile, and what was decided is in its name
            self._known.forget(draft.unit)
            return draft.part, None
        unit, decided = draft.unit, draft.decided
        try:
            appended, ahead = self._append(draft, following)
        except BaseException:
            self._known.forget(unit)
            raise
        if appended.status == "appended":
            return self._accept(draft, appended, ahead) + draft.part[len(decided.requests) :], ahead
        if appended.conflict not in ("conversation", "guard"):
            self._known.forget(unit)
        else:
            self._known.undo(draft)
            if appended.conflict == "conversation":
                self._known.has_moved()
        if appended.conflict == "guard" and len(decided.requests) == 1 and not without_lease(decided.requests[0]):
            _refuse(decided.requests, JournalUnavailable(f"{self.name}: {GUARDED}"))
            return draft.part[1:], None
        if appended.conflict == "head":
            raise JournalRefused(f"{self.name}: was exchanged while it was open; close it, and open it again")
        if appended.status == "behind":
            catch_up(self._known.store)
        return draft.part, None

    def _draft(self, part: list[Request[Any]], presume: bool) -> Draft | list[Request[Any]]:
        """Decide what belongs together; return the requests that are to be decided again where there is nothing to append."""
        self._connect()
        try:
            return self._known.draft(part, presume)
        except psycopg.OperationalError as error:
            if not self._is_lost(error):
                raise
        self._connect()  # nothing was sent yet: what was lost lay idle
        return self._known.draft(part, presume)

    def _append(self, draft: Draft, following: list[Request[Any]]) -> tuple[Appended, Draft | None]:
        """
        Append what was decided, and find out whether it landed when the answer is lost.

        Returns also what was decided meanwhile of the requests that follow, if it stands on what was appended.
        """
        unit, stood = draft.unit, draft.stood
        stand = Standpoint(stood.position, unit.now, stood.epoch, self._known.erasures)
        body = record(
            unit,
            stand,
            presumed=draft.wanted.presumed,
            presumed_routes=draft.wanted.presumed_routes,
            least=self._known.newest if unit.begins_opening else None,
            synced=not draft.decided.unsynced,
        )
        ahead: list[Draft | None] = []
        try:
            appended = self._send(draft, body, lambda: ahead.append(self._known.draft_ahead(draft, following)))
            self.clocks.heard(appended.clock)
        except psycopg.errors.UniqueViolation:  # of what was presumed to be new
            appended = self._not_landed(stood, "stream")
        except psycopg.OperationalError as error:
            if not self._is_lost(error):
                raise
            found = self._find(unit)
            if found is None and not unit.changes.events:
                raise  # it leaves no trace by which it could be told
            appended = found or self._not_landed(stood, None)
        drafted = ahead[0] if ahead else None
        if drafted is None or draft.stands(appended):
            return appended, drafted
        self._known.undo(drafted)
        return appended, None

    def _is_lost(self, error: psycopg.OperationalError) -> bool:
        """Tell whether the connection is no more; the server may say so before it closes it."""
        if error.sqlstate in ENDED:
            self._known.store.connection.close()
        return bool(self._known.store.connection.closed)

    def _not_landed(self, head: Head, conflict: Conflict | None) -> Appended:
        return Appended("conflict", conflict, head.position, None, None, head.epoch, self.clocks.stamps())

    def _send(self, draft: Draft, body: bytes, meanwhile: Callable[[], None]) -> Appended:
        """Append the record of a draft."""
        assert self._appender is not None
        return self._appender.append(body, meanwhile)

    def _accept(self, draft: Draft, appended: Appended, ahead: Draft | None) -> list[Request[Any]]:
        """Take in what was appended, and tell others of it; return the requests that are to be decided again."""
        stale = self._known.take_in(draft, appended, ahead)
        changes = draft.unit.changes
        if changes.rings:
            self.on_rings([ring for ring in changes.rings if ring[0] == self.opening_id])
        if changes.events:
            self._tell_listeners()
        return stale

    # Connections.

    def _use(self, connection: Connection, *, newest: int) -> None:
        """Write through a connection from now on; nothing is known from before, but for the `newest` position that was seen."""
        self._known = Knowledge(
            PostgresStore(connection, self.address.schema, self._access),
            self._access,
            opening=self._opening,
            shares_work=lambda: self._shares_work,
            clocks=self.clocks,
            limits=lambda: self.limits,
            keep_inbound=self._keep_inbound,
            readonly=self.readonly,
            newest=newest,
        )
        self._appender = None if self.readonly else Appender(connection, self.address.schema)

    def _connect(self) -> None:
        """See that there is a connection to the same journal, and a living opening; a lost one is followed by the next."""
        if self._known.store.connection.closed:
            self._reconnect()
        if self._opening.opening_id is None or self._sign.opening_id != self._opening.opening_id:
            self._begin_opening()

    def _reconnect(self) -> None:
        connection = connect(self.address, purpose="writer", busy_us=self.limits.duration("busy_wait"))
        try:
            if access_of(connection).journal_key != self._access.journal_key:
                raise JournalRefused(f"{self.name}: was exchanged while it was open; close it, and open it again")
            self._origin = where(connection, self.address)
            opening_id = self._sign.opening_id
            alive = opening_id is None or live_openings(connection, self._origin.schema_oid, [opening_id])
        except BaseException:
            connection.close()
            raise
        self._use(connection, newest=self._known.newest)
        if not alive:  # the server was started anew, or is another one, and the sign has not noticed yet
            self._begin_opening()

    def _begin_opening(self) -> None:
        """Take the next number with its sign of life; its event follows with the first that is appended."""
        self._known.forget(None)
        row = self._known.store.one(CALLS.next_opening, self._origin)
        assert row is not None
        self._opening = self._known.opening = OpeningState()
        self._sign.begin(row[0])
        self._opening.opening_id = row[0]
        self.on_begun(row[0])

    def _find(self, unit: Unit) -> Appended | None:
        """Find out whether a unit landed whose answer was lost; None if it did not, or if it leaves no trace of its own."""
        session = self._known.store.connection.session
        self._reconnect()
        self._end_session(self._known.store, session)
        if not unit.changes.events:
            return None
        _, _, originator_id, version, _, _, opening_id, *_, state, _ = unit.changes.events[0]
        row = self._known.store.one(CALLS.landed, (originator_id, version, opening_id, state))
        if row is None:
            return None
        epoch = self._known.store.epoch_at(row[0] + len(unit.changes.events))
        return Appended("appended", None, UNKNOWN, row[0], row[1], epoch, self.clocks.stamps())

    def _end_session(self, store: PostgresStore, session: Session) -> None:
        """See that a session has ended, so that what it was doing has happened or never will."""
        until = time.monotonic() + self.limits.duration("busy_wait") / 1e6
        store.one(CALLS.end_backend, session)
        while store.one(CALLS.backend, session) is not None:
            if time.monotonic() >= until:
                raise JournalUnavailable(f"{self.name}: a session whose answer was lost does not end; try again")
            time.sleep(LOOK_AGAIN_S)

    # Other openings.

    @property
    def opening_id(self) -> int | None:
        """The id of this opening once it has appended something, None before."""
        return self._opening.opening_id if self._opening.started else None

    def is_live(self, opening_id: int) -> bool:
        """Tell whether an opening that has begun lives still; one that was seen dead stays so."""
        self._refuse_in_child()
        if opening_id in self._dead:
            return False
        if opening_id == self._opening.opening_id:
            return self._sign.opening_id == opening_id
        live = self._ask_for_life(opening_id)
        if not live:
            self._dead.add(opening_id)
        return live

    def _ask_for_life(self, opening_id: int) -> bool:
        with self._faults(), self._readers.lent() as store:
            return bool(live_openings(store.connection, self._origin.schema_oid, [opening_id]))

    def outside(self) -> Outside:
        return Elsewhere(self._readers, self.name)

    def new_bell(self, opening_id: int) -> Bell:
        return Hearing(self._sign)

    def ring(self, opening_id: int, lease_id: str) -> None:
        """The append itself has told the others."""

    def watch_death(self, opening_id: int, tell: Callable[[], None]) -> Callable[[], None]:
        def ended() -> None:
            self._dead.add(opening_id)
            tell()

        return watch_death(self.address, self._origin.schema_oid, opening_id, ended)

    # Transactions of a host.

    def hosting(self, committer: Committer, turns: Turns) -> Hosting:
        opening = Opening(
            schema=self.address.schema,
            name=self.name,
            schema_oid=lambda: self._origin.schema_oid,
            number=lambda: self._opening.opening_id or 0,
            living=self._living,
            limits=lambda: self.limits,
            wall=self.clocks.wall,
            turns=turns,
            check_writable=self._check_writable,
            staged=self._hosts_append,
        )
        drafting = Drafting(self._readers, self.clocks, self.name, keep_inbound=self._keep_inbound)
        pool = Pool(self.address, self._busy, "host")
        return PostgresHosting(opening, drafting, committer, pool, committed=self._tell_listeners, landed=self._has_landed)

    def _hosts_append(self) -> None:
        """Hosts' transactions give this opening work that the writer does not see come."""
        self._shares_work = True

    def _living(self) -> int | None:
        opening = self._opening
        alive = opening.started and self._sign.opening_id == opening.opening_id
        return opening.opening_id if alive else None

    def _check_writable(self) -> None:
        self.check_open()
        if self.readonly:
            raise ReadOnly(f"{self.name}: was opened for reading only; open it without readonly to change it")

    def _has_landed(self, session: Session, number: str) -> bool:
        """Tell of a transaction, by its number, whether it was committed; its session is ended if it is not yet."""
        connection = connect(self.address, purpose="writer", busy_us=self._busy)
        try:
            with self._faults():
                if where(connection, self.address) != self._origin:
                    raise JournalUnavailable(f"{self.name}: nobody can tell whether it was committed before the server failed")
                store = PostgresStore(connection, self.address.schema)
                self._end_session(store, session)
                row = store.one(WITHIN.outcome, (number,))
                return row is not None and row[0] == "committed"
        finally:
            connection.close()

    # The end.

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def _tried(self) -> Iterator[None]:
        """What is folded after the appends is folded later where it cannot be now: what a newer release has written, say."""
        try:
            yield
        except (psycopg.Error, ValueError) as error:
            self._known.fold_later()
            log.warning("events could not be folded: %s", type(error).__name__)

    def tidy(self) -> None:
        """Fold on what is folded after appends, when enough has come together."""
        with self._tried(), self._guard:
            self._known.fold()

    def _tell_listeners(self) -> None:
        for listener in tuple(self.on_commit):
            try:
                listener()
            except Exception as error:
                log.error("a listener raised %s after a commit, which stands", type(error).__name__)

    def _refuse_in_child(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("the journal was opened before a fork, by the parent of this process; open it again here")

    def check_open(self) -> None:
        """Raise `ForkedError` in a forked child, and `Closed` once closed."""
        self._refuse_in_child()
        if self._closed:
            raise Closed("the journal is closed; open it again")

    def close(self) -> None:
        """Close the connections, and end the sign of life. In a forked child nothing is touched: it is the parent's."""
        if self._closed or os.getpid() != self._pid:
            return
        with self._guard:
            self._closed = True
            with self._tried():
                self._known.fold_rest()
            self._known.store.connection.close()
        self._readers.close()
        self._sign.close()


class Hearing(Bell):
    """What an opening hears of its sign, which goes on when nobody hears any more."""

    def __init__(self, sign: Sign) -> None:
        self._sign = sign

    def hear(self, timeout_s: float | None) -> list[bytes]:
        return self._sign.hear(timeout_s)

    def interrupt(self) -> None:
        self._sign.interrupt()

    def close(self) -> None:
        """The sign ends with the opening."""


def _refuse(requests: list[Request[Any]], error: BaseException) -> None:
    for request in requests:
        request.result, request.error = None, error
