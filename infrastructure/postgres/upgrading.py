"""The upgrade of a schema, only when it is asked for: what it lacks, or has in another way, is made as this release makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import psycopg

from counterfoil.domain.errors import FormatUnknown, JournalRefused
from counterfoil.domain.limits import Limits
from counterfoil.projections.catalogue import BUILT_IN
from counterfoil.projections.projection import Projection

from ..statements import statements
from . import ddl
from .checking import Difference, compare, kept_by_others
from .connecting import connect
from .connection import Connection
from .faults import fault
from .folding import catch_up, fold_slice
from .naming import Address, parse, quoted
from .opening import check_format, exists
from .projection_tables import entry
from .roles import ROLES, grants, role_names
from .store import PostgresStore
from .unfolded import Unfolded

UPGRADING: Final = statements("postgres/upgrading.sql")
BUSY_US: Final = Limits().duration("busy_wait")
_UNIQUE: Final = "unique "


class Upgraded(NamedTuple):
    """What has become of a schema."""

    done: list[str]
    """Each thing that was made or changed, as kind, name and what was done."""
    left: list[Difference]
    """What is different and was not touched: no upgrade makes that."""


def check_schema(url: str) -> list[Difference]:
    """Compare a journal's schema with what this release makes. Raises what says why there is nothing to compare."""
    address = parse(url)
    try:
        with connect(address, purpose="writer", busy_us=BUSY_US) as connection:
            _require(connection, address)
            found = compare(connection, address)
            version = _version(connection, address)
    except psycopg.Error as error:
        raise fault(error, address.name) from None
    if version != ddl.VERSION:
        found.append(Difference("schema", "version", f"is {version}, and should be {ddl.VERSION}"))
    return found


def upgrade_schema(url: str, say: Callable[[str], None]) -> Upgraded:
    """
    Bring a journal's schema to this release, in one transaction, and fold the projections that it then begins.

    Processes that have the journal open go on; they wait while it is under way.
    """
    address = parse(url)
    try:
        with connect(address, purpose="writer", busy_us=BUSY_US) as connection:
            _require(connection, address)
            connection.silence_s = None
            with connection.transaction():
                upgraded = _Upgrade(connection, address).run()
            if any(each.startswith("projection ") for each in upgraded.done):
                say("folding the history into what is new")
            store = PostgresStore(connection, address.schema)
            catch_up(store)
            while fold_slice(store, Unfolded()):
                pass
    except psycopg.Error as error:
        raise fault(error, address.name) from None
    return upgraded


def _require(connection: Connection, address: Address) -> None:
    if not exists(connection, address):
        raise JournalRefused(f"{address.name}: does not exist; create it by what `counterfoil schema sql` prints")
    check_format(connection, address)
    version = _version(connection, address)
    if version > ddl.VERSION:
        raise FormatUnknown(
            f"{address.name}: its schema is of version {version}, and this release knows version {ddl.VERSION}; install a newer "
            "release"
        )


def _version(connection: Connection, address: Address) -> int:
    row = connection.execute(UPGRADING.schema_version).fetchone()
    return 0 if row is None else int(row[0])


class _Upgrade:
    """One transaction that upgrades a schema."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection = connection
        self._address = address
        self._done: list[str] = []

    def run(self) -> Upgraded:
        self._execute(UPGRADING.be_patient)
        self._become_owner()
        self._execute(UPGRADING.queue_up)
        different = compare(self._connection, self._address)
        mended = {id(each) for each in self._mend(different)}
        if _version(self._connection, self._address) != ddl.VERSION:
            self._connection.execute(UPGRADING.set_schema_version, (ddl.VERSION,))
            self._done.append(f"schema version: set to {ddl.VERSION}")
        if self._done:
            self._grant()
        return Upgraded(self._done, [each for each in different if id(each) not in mended])

    def _become_owner(self) -> None:
        row = self._connection.execute(UPGRADING.owner).fetchone()
        assert row is not None
        try:
            self._execute(UPGRADING.act_as.replace("{object}", quoted(row[0])))
        except psycopg.errors.InsufficientPrivilege:
            raise JournalRefused(f"{self._address.name}: only its owner upgrades it; connect as one that has that role") from None

    def _mend(self, different: list[Difference]) -> Iterable[Difference]:
        """Make what can be made, in the order in which it is made anew; yields what that has mended."""
        by_name = {(each.kind.removeprefix(_UNIQUE), each.name): each for each in different}
        fresh = set()
        for part in ddl.parts(self._address.schema, kept_by_others(self._connection)):
            found = by_name.get((part.kind, part.name))
            if found is None:
                continue
            if part.kind == "table":
                if part.name not in {each.table for each in BUILT_IN} or found.what != "is missing":
                    continue  # a part of the history is gone, and no upgrade brings it back
                fresh.add(part.name)
            elif part.kind == "index":
                self._execute(self._named(UPGRADING.drop_index, part.name))
            elif part.kind == "trigger":
                self._execute(self._named(UPGRADING.drop_trigger, part.name))
            elif part.kind == "function":
                self._drop_others(part.name, found)
            self._execute(part.statement)
            self._done.append(f"{part.kind} {part.name}: {'made' if found.what == 'is missing' else 'replaced'}")
            yield found
        self._execute_rights(different)
        for projection in BUILT_IN:
            found = by_name.get(("projection", projection.NAME))
            if found is not None or projection.table in fresh:
                self._begin(projection)
            if found is not None:
                yield found

    def _drop_others(self, name: str, found: Difference) -> None:
        """Drop what has a function's name and takes or returns something else; not what a trigger calls, which takes nothing."""
        if not found.what.startswith("is ") or found.what == "is missing":
            return
        for (function,) in self._connection.execute(UPGRADING.overloads, (name,)).fetchall():
            try:
                with self._connection.transaction():
                    self._execute(UPGRADING.drop_function.replace("{function}", function))
            except psycopg.errors.DependentObjectsStillExist:
                continue

    def _execute_rights(self, different: list[Difference]) -> None:
        named = {each.name for each in different if each.kind == "function"}
        for part in ddl.parts(self._address.schema):
            if part.kind == "rights" and part.name in named:
                self._execute(part.statement)

    def _begin(self, projection: Projection[Any]) -> None:
        """Enter a projection with all of the history before it."""
        self._connection.execute(UPGRADING.leave_out, (projection.NAME, projection.VERSION))
        self._execute(self._named(UPGRADING.empty, projection.table))
        self._execute(entry(projection, self._address.schema, behind=True))
        self._done.append(f"projection {projection.NAME}: begun in version {projection.VERSION}")

    def _grant(self) -> None:
        """What is new is for the roles too, where there are such."""
        roles = role_names(self._address.schema)
        row = self._connection.execute(ROLES.are_there, (roles,)).fetchone()
        if row is not None and row[0]:
            for statement in grants(self._address.schema):
                self._execute(statement)

    def _named(self, statement: str, name: str) -> str:
        return ddl.in_schema(statement.replace("{object}", quoted(name)), self._address.schema)

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement.encode(), prepare=False)
