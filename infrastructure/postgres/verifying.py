"""The verification of a journal in a schema that need not be good enough to be opened."""

from __future__ import annotations

import psycopg

from counterfoil.domain.errors import JournalRefused
from counterfoil.domain.limits import Limits

from ..verification import Progress, Verification, verify
from .connecting import connect
from .faults import fault
from .naming import parse
from .opening import check_format, exists
from .reader_pool import SNAPSHOT
from .store import PostgresStore


def verify_schema(url: str, progress: Progress | None = None) -> Verification:
    """
    Verify the journal in a schema, also one that opening refuses because its end does not agree.

    Raises `JournalRefused` for what is no journal of a known format.
    """
    address = parse(url)
    try:
        with connect(address, purpose="reader", busy_us=Limits().duration("busy_wait")) as connection:
            if not exists(connection, address):
                raise JournalRefused(f"{address.name}: does not exist; a journal is made by `counterfoil run`")
            connection.execute(SNAPSHOT)
            check_format(connection, address)
            return verify(PostgresStore(connection, address.schema), progress)
    except psycopg.Error as error:
        raise fault(error, address.name) from None
