"""A connection pooler before PostgreSQL, as small as one can be: it speaks the protocol, and gives sessions to transactions."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Literal

from psycopg import pq
from psycopg.pq.abc import PGconn

from tests.postgres_server import Postgres

Mode = Literal["last used first", "in turn", "one", "kept"]
"""Which session a transaction gets: the last that came back, the one that waits longest, the only one; or a client keeps one."""

NO_TLS = (80877103, 80877104)
TOLD = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "DateStyle", "in_hot_standby")
TERMINATE, QUERY, SYNC, READY = b"X", b"Q", b"S", b"Z"


class Pooler:
    """Serve clients of a port of this machine, each in a thread, with a few sessions of a database."""

    def __init__(self, postgres: Postgres, mode: Mode, *, honest: bool, sessions: int = 3) -> None:
        """`honest` poolers name to a client, as its backend, one that serves it first; the others make a number up."""
        self._mode = mode
        self._honest = honest
        self._free: deque[PGconn] = deque(
            pq.PGconn.connect(postgres.database_url.encode()) for _ in range(1 if mode == "one" else sessions)
        )
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _take(self) -> PGconn:
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            return self._free.popleft() if self._mode == "in turn" else self._free.pop()

    def _give_back(self, session: PGconn) -> None:
        with self._changed:
            self._free.append(session)
            self._changed.notify()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, suppress(OSError, EOFError):
            self._greet(client)
            kept = self._take() if self._mode == "kept" else None
            try:
                self._transactions(client, kept)
            finally:
                if kept is not None:
                    kept.exec_(b"DISCARD ALL")
                    self._give_back(kept)

    def _greet(self, client: socket.socket) -> None:
        size, code = struct.unpack("!ii", exactly(client, 8))
        while code in NO_TLS:
            client.sendall(b"N")
            size, code = struct.unpack("!ii", exactly(client, 8))
        exactly(client, size - 8)
        session = self._take()
        told = {name: session.parameter_status(name.encode()) for name in TOLD}
        backend = session.backend_pid if self._honest else int.from_bytes(os.urandom(3), "big") + (1 << 24)
        self._give_back(session)
        words = [message(b"S", name.encode() + b"\0" + value + b"\0") for name, value in told.items() if value is not None]
        client.sendall(message(b"R", bytes(4)) + b"".join(words) + message(b"K", struct.pack("!iI", backend, 0)))
        client.sendall(message(READY, b"I"))

    def _transactions(self, client: socket.socket, kept: PGconn | None) -> None:
        """Forward until the client says farewell; a session comes back when it is in no transaction, before the answer goes."""
        session: PGconn | None = None
        try:
            while True:
                kind, body = receive(client)
                if kind == TERMINATE:
                    return
                session = session or kept or self._take()
                with socket.socket(fileno=os.dup(session.socket)) as server:
                    server.setblocking(True)
                    server.sendall(message(kind, body))
                    answers = until_ready(server) if kind in (QUERY, SYNC) else b""
                if answers.endswith(message(READY, b"I")) and kept is None:
                    self._give_back(session)
                    session = None
                client.sendall(answers)
        finally:
            if session is not None and session is not kept:
                self._give_back(session)


def until_ready(server: socket.socket) -> bytes:
    """Receive all that answers a query."""
    answers = b""
    while True:
        kind, body = receive(server)
        answers += message(kind, body)
        if kind == READY:
            return answers


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def receive(source: socket.socket) -> tuple[bytes, bytes]:
    kind, size = struct.unpack("!ci", exactly(source, 5))
    return kind, exactly(source, size - 4)


def exactly(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = source.recv(size - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
