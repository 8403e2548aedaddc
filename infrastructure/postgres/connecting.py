"""
Connecting to the server of a journal, with a session in which nothing depends on the defaults of a server, a database or a role.
"""

from __future__ import annotations

import math
import time
from secrets import token_hex
from typing import Final, Literal, NamedTuple, TypeAlias

import psycopg
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from counterfoil.domain.errors import JournalRefused, JournalUnavailable

from ..statements import statements
from .connection import Connection, Session, open_connection
from .faults import fault
from .naming import Address, quoted

Purpose: TypeAlias = Literal["writer", "reader", "sign", "watch", "host"]

SESSION: Final = statements("postgres/session.sql")
OLDEST_SERVER: Final = 150_000
DEAD_HOST_MS: Final = 10_000
"""After how long either end takes the other's host for dead, and the server ends what an opening was that had it."""
_CHECK_CLIENT_MS: Final = 5_000

_SESSION: Final = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "extra_float_digits": "1",
    "idle_session_timeout": "0",
    "jit": "off",  # what it costs is more than our statements take
    "log_parameter_max_length_on_error": "0",  # no text of a message goes into the log of the server
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": str(DEAD_HOST_MS),
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
}
_READER: Final = {"default_transaction_isolation": "repeatable read", "default_transaction_read_only": "on"}
_HOST_IDLE_MS: Final = 60_000
"""How long the body of a host's transaction may do nothing on its connection: what it has locked, others wait for."""
_READER_IDLE_MS: Final = 60_000
"""How long a snapshot may be idle before the server ends it, which keeps back what VACUUM could remove."""


class _Facts(NamedTuple):
    backend: int
    mark: str | None
    in_recovery: bool


def connect(address: Address, *, purpose: Purpose, busy_us: int) -> Connection:
    """
    Connect to the server of a journal; whether the journal is there is not looked at.

    `busy_us` is `busy_wait` in microseconds. It bounds each attempt to connect, and in a writer the wait for a lock; a statement
    of a writer is cancelled by the server after twice as long, and the connection is closed when nothing is heard for three times
    as long. A reader's statements may take as long as they like; its transactions are read-only, each of one snapshot. A host's
    may too, and wait for locks as long as they like.

    Raises `JournalUnavailable`, also for all but readers where the server is a standby, and `JournalRefused` for a server older
    than 15, a database whose encoding is not UTF-8, and a connection pooler that gives each transaction another session.
    """
    try:
        conninfo = _conninfo(address, purpose, busy_us)
        connection = open_connection(conninfo)
        try:
            _prepare(connection, address, conninfo, purpose, busy_us)
        except BaseException:
            connection.close()
            raise
    except psycopg.Error as error:
        raise fault(error, address.name) from None
    return connection


def _conninfo(address: Address, purpose: Purpose, busy_us: int) -> str:
    given = conninfo_to_dict(address.conninfo)
    longest = max(2, math.ceil(busy_us / 1_000_000))  # psycopg waits for two seconds at least
    asked = int(given.get("connect_timeout") or 0)
    own: ConnDict = {
        "fallback_application_name": "counterfoil",
        "keepalives_idle": _SESSION["tcp_keepalives_idle"],
        "keepalives_interval": _SESSION["tcp_keepalives_interval"],
        "keepalives_count": _SESSION["tcp_keepalives_count"],
        "tcp_user_timeout": DEAD_HOST_MS,
    }
    if purpose in ("writer", "sign") and any("," in str(given.get(name, "")) for name in ("host", "hostaddr")):
        own["target_session_attrs"] = "primary"
    always: ConnDict = {"client_encoding": "UTF8", "connect_timeout": min(asked, longest) if asked > 0 else longest}
    return make_conninfo("", **(own | given | always))


def _prepare(connection: Connection, address: Address, conninfo: str, purpose: Purpose, busy_us: int) -> None:
    """Refuse what is no good server for this, and make a session of the connection."""
    connection.silence_s = busy_us * 3 / 1_000_000
    version = connection.info.server_version
    if version < OLDEST_SERVER:
        raise JournalRefused(f"{address.name}: the server is PostgreSQL {version // 10_000}; a journal needs 15 or later")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise JournalRefused(f"{address.name}: the encoding of the database is {encoding}; a journal needs UTF8")
    mark = token_hex(8)
    _set(connection, _settings(address, purpose, busy_us, version) | {"counterfoil.mark": mark})
    facts = _look(connection)
    if facts.mark != mark or _is_shared(connection, facts, address, conninfo):
        raise JournalRefused(
            f"{address.name}: a connection pooler stands before the server and gives each transaction another session; "
            "connect to the server itself, or let the pooler keep a session for each client"
        )
    if facts.in_recovery and purpose != "reader":
        raise JournalUnavailable(
            f"{address.name}: the server is a standby, which takes no changes; connect to its primary, or open it read-only"
        )
    if purpose == "watch":
        _have_client_checked(connection)
    elif purpose in ("reader", "host"):
        connection.silence_s = None


def _settings(address: Address, purpose: Purpose, busy_us: int, version: int) -> dict[str, str]:
    busy_ms = max(1, busy_us // 1_000)
    settings = dict(_SESSION)
    if version >= 170_000:
        settings["transaction_timeout"] = "0"
    lock, statement, idle = {
        "writer": (busy_ms, 2 * busy_ms, busy_ms),
        "reader": (busy_ms, 0, _READER_IDLE_MS),
        "sign": (busy_ms, 2 * busy_ms, busy_ms),
        "watch": (0, 0, busy_ms),
        "host": (0, 0, _HOST_IDLE_MS),
    }[purpose]
    settings["lock_timeout"] = str(lock)
    settings["statement_timeout"] = str(statement)
    settings["idle_in_transaction_session_timeout"] = str(idle)
    return settings | (_READER if purpose == "reader" else {}) | {"search_path": f"{quoted(address.schema)}, pg_temp"}


def _set(connection: Connection, settings: dict[str, str]) -> None:
    # By SET, which needs no snapshot: on a standby whose default is `serializable` nothing else can come first.
    values = {name: value if name == "search_path" else f"'{value}'" for name, value in settings.items()}
    connection.execute("; ".join(f"SET {name} TO {value}" for name, value in values.items()).encode(), prepare=False)


def _have_client_checked(connection: Connection) -> None:
    """Have the server notice the end of this process while the connection waits for a lock; not all systems can."""
    try:
        connection.execute(f"SET client_connection_check_interval TO {_CHECK_CLIENT_MS}".encode(), prepare=False)
    except psycopg.errors.InvalidParameterValue:
        return


def _look(connection: Connection) -> _Facts:
    backend, mark, in_recovery, began, _ = connection.execute(SESSION.facts, prepare=False).fetchone() or (
        0,
        None,
        False,
        0,
        None,
    )
    connection.session = Session(backend, began)
    return _Facts(backend, mark, in_recovery)


# Poolers.

_ROUNDS: Final = 2
_ROUNDS_WITH_POOLER: Final = 8
_ROUND_S: Final = 0.002
_kept: Final[set[str]] = set()
"""What was found to keep a session for each connection; it is tried once in a process."""


def _is_shared(connection: Connection, facts: _Facts, address: Address, conninfo: str) -> bool:
    """Tell whether a session serves others between the transactions of a connection."""
    if address.conninfo in _kept:
        return False
    direct = facts.backend == connection.pgconn.backend_pid  # most poolers know no backend yet when they greet a client
    with open_connection(conninfo) as other:
        other.silence_s = connection.silence_s
        _set(other, {"default_transaction_isolation": "read committed"})
        # A pooler gives the session that was idle last, or the only one, or one in turn, to a transaction that begins: so each
        # soon meets the session of the other, unless it comes back only after the answer, and too late for the next transaction.
        for number in range(_ROUNDS if direct else _ROUNDS_WITH_POOLER):
            time.sleep(number * _ROUND_S)
            if _look(connection) != facts:
                return True
            with other.transaction():
                if _look(other).mark == facts.mark or _look(connection) != facts:
                    return True
    _kept.add(address.conninfo)
    return False
