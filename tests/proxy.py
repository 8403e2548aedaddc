"""A wire between a client and PostgreSQL that a test can cut, or let stall."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.postgres_server import Postgres


class Proxy:
    """Forward what comes to a port of this machine to a PostgreSQL, both ways, in threads."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._server = postgres.address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, schema: str) -> str:
        """Name the journal in a schema, as seen over this wire."""
        return self._postgres.url(schema, port=self.port)

    def drop(self) -> None:
        """Cut all connections, as a network that answers for a host which is gone; new ones are taken."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Take connections, but forward nothing, until `resume`: a network that loses every packet."""
        self._flows.clear()

    def resume(self) -> None:
        """Forward again; what came meanwhile comes first."""
        self._flows.set()

    def close(self) -> None:
        """Cut all connections and take no more."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self.resume()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Connect one client, and forward until either end has closed."""
        with client:
            try:
                server = socket.create_connection(self._server)
            except OSError:  # what the client sees of a server that is away
                return
            with server:
                with self._lock:
                    self._open |= {client, server}
                back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
                back.start()
                self._forward(client, server)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._flows.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
