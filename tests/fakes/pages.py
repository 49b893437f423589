"""A web server that answers with whatever bytes a test gives it, well-formed or not."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable
from typing import Self

Behaviour = Callable[[socket.socket], None]


class Pages:
    """Answers every connection by `behaviour`; `requests` are what was asked."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.port = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        """Where its metrics are."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer no more."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        self._open.add(connection)
        try:
            with connection:
                self.requests.append(connection.recv(65_536))
                self.behaviour(connection)
        except OSError:
            pass
        finally:
            self._open.discard(connection)


def page(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> Behaviour:
    """Answer once with this."""
    size = len(body) if length is None else length
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""])
    return lambda connection: connection.sendall(head.encode() + body)


def squeezed(body: bytes, cut: int | None = None) -> Behaviour:
    """Answer compressed, perhaps not to the end."""
    return page(gzip.compress(body)[:cut], "Content-Encoding: gzip")
