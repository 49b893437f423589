"""The HTTP transport: tornado's server with limits, answering through one plain function."""

import asyncio
import errno
import logging
import re
import socket
import ssl
import struct
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http.client import responses
from typing import cast

from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream


@dataclass(frozen=True)
class Request:
    """What a client asked for; header names are case-insensitive."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    peer: str = ""
    """The address it came from, as the kernel tells it."""


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Limits:
    """What clients may cost us: counts, bytes and seconds."""

    connections: int = 64
    answers: int = 16
    header_bytes: int = 8192
    body_bytes: int = 1024
    idle_seconds: float = 10.0
    """For a first request."""
    kept_seconds: float = 90.0
    """For the next one: longer than most wait between two scrapes, so that they need one connection."""
    body_seconds: float = 5.0
    write_seconds: float = 10.0


Respond = Callable[[Request], Answer]
DEFAULT_LIMITS = Limits()
AT_ONCE = 65_536
"""Up to this size a copy is cheaper than a call to the kernel for headers alone."""


class BindError(Exception):
    """An address that cannot be listened on, and why."""


def parse_address(text: str) -> tuple[str, int]:
    """Split a listen address into host ("" for every address) and port."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F.]*:[0-9a-fA-F:.]*)\]|([^\s:/\[\]]*)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, :PORT or [IPV6]:PORT with a port from 0 to 65535")
    return match[1] or match[2] or "", int(match[3])


class HttpServer:
    """A server on the running loop that no client can fill up, stall or bring down."""

    def __init__(
        self,
        respond: Respond,
        limits: Limits = DEFAULT_LIMITS,
        ssl_options: ssl.SSLContext | None = None,
        commands: Collection[str] = (),
    ) -> None:
        logging.getLogger("tornado").setLevel(logging.ERROR)
        self._respond, self._limits, self._logged = respond, limits, set[str]()
        self._commands = commands
        """Paths on which the answering function sees to the method itself."""
        self.connections: dict[IOStream, asyncio.TimerHandle] = {}  # longest without a request first
        self._writing: dict[IOStream, asyncio.Future[None]] = {}  # longest in writing first
        self._server = _Server(
            self._answer,
            ssl_options=ssl_options,
            max_header_size=limits.header_bytes,
            max_body_size=limits.body_bytes,
            max_buffer_size=8 * limits.header_bytes,
        )
        self._server.owner = self
        # One timer is enough, and only ours holds for a client that never takes its 400.
        self._server.conn_params.header_timeout = None

    def listen(self, address: str) -> tuple[str, ...]:
        """Begin to answer on an address, and say which addresses that came to."""
        listener = _bind(*parse_address(address))
        listener.setblocking(False)
        # What a closed connection's client has not taken stays in the kernel, which has this deadline for it.
        listener.setsockopt(socket.SOL_TCP, socket.TCP_USER_TIMEOUT, int(1000 * self._limits.write_seconds))
        self._server.add_socket(listener)
        host, port, *_ = listener.getsockname()
        return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",)

    def secure(self, ssl_options: ssl.SSLContext) -> None:
        """Let connections from now on have another TLS context."""
        self._server.ssl_options = ssl_options

    async def stop(self, grace: float) -> None:
        """Accept no more, let answers finish for at most `grace` seconds, then close what is left."""
        self._server.stop()
        for idle in self.connections.keys() - self._writing.keys():
            self._cut(idle)
        if self._writing:
            await asyncio.wait(tuple(self._writing.values()), timeout=grace)
        for left in tuple(self.connections):
            self._cut(left)
        await self._server.close_all_connections()

    def _admit(self, stream: IOStream) -> None:
        while len(self.connections) >= self._limits.connections:
            idle = (each for each in self.connections if each not in self._writing and not _has_unread(each))
            self._cut(next(idle, next(iter(self.connections))))
        self._watch(stream, self._limits.idle_seconds)

    def _expect_body(self, stream: IOStream) -> None:
        self._watch(stream, self._limits.body_seconds)

    def _answer(self, request: Request, connection: HTTP1Connection) -> None:
        answer = self._ask(request)
        start = ResponseStartLine("HTTP/1.1", answer.status, responses.get(answer.status, "Unknown"))
        headers = HTTPHeaders({"Content-Type": answer.content_type, "X-Content-Type-Options": "nosniff"})
        for name, value in (("Content-Length", str(len(answer.body))), *answer.headers):
            headers.add(name, value)
        body = b"" if request.method == "HEAD" else answer.body
        at_once = body if len(body) <= AT_ONCE else b""
        written = connection.write_headers(start, headers, at_once)
        if body and not at_once:
            written = connection.write(body)
        self._track(connection.stream, written)
        connection.finish()

    def _ask(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD") and request.path not in self._commands:
            return Answer(405, b"only GET and HEAD are allowed\n", headers=(("Allow", "GET, HEAD"),))
        try:
            return self._respond(request)
        except Exception as error:
            place = "".join(traceback.format_tb(error.__traceback__))
            if place not in self._logged and len(self._logged) < 100:
                self._logged.add(place)
                logging.getLogger(__name__).error("answering a request failed", exc_info=error)
            return Answer(500, b"internal error, see the log\n")

    def _track(self, stream: IOStream, written: "asyncio.Future[None]") -> None:
        if not written.done():
            self._watch(stream, self._limits.write_seconds)
            self._writing[stream] = written
            written.add_done_callback(lambda _: self._track(stream, written))
            if len(self._writing) > self._limits.answers:
                self._cut(next(iter(self._writing)))
        elif stream in self.connections:
            self._watch(stream, self._limits.kept_seconds)

    def _watch(self, stream: IOStream, seconds: float) -> None:
        self._forget(stream)
        self.connections[stream] = asyncio.get_running_loop().call_later(seconds, self._cut, stream)

    def _cut(self, stream: IOStream) -> None:
        if stream in self._writing and not stream.closed():
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._forget(stream)
        stream.close()

    def _forget(self, stream: IOStream) -> None:
        self._writing.pop(stream, None)
        if timer := self.connections.pop(stream, None):
            timer.cancel()


class _Server(HTTPServer):
    """Tornado's server, telling when a connection opens (before TLS) and has closed."""

    owner: HttpServer

    def handle_stream(self, stream: IOStream, address: tuple[object, ...]) -> None:
        self.owner._admit(stream)
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return _Message(self.owner, cast(HTTP1Connection, request_conn))

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        self.owner._forget(cast(HTTP1ServerConnection, server_conn).stream)


class _Message(HTTPMessageDelegate):
    """One request on its way in; its body is read and dropped."""

    def __init__(self, owner: HttpServer, connection: HTTP1Connection) -> None:
        self._owner, self._connection = owner, connection

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        start = cast(RequestStartLine, start_line)
        if len(headers.get_list("Host")) != 1 and start.version != "HTTP/1.0":
            raise HTTPInputError("a request names its host, and once")
        path, _, query = start.path.partition("?")
        peer = getattr(self._connection.context, "remote_ip", "")
        self._request = Request(start.method, path, query, headers, peer)
        if "Content-Length" in headers or "Transfer-Encoding" in headers:
            self._owner._expect_body(self._connection.stream)

    def finish(self) -> None:
        self._owner._answer(self._request, self._connection)


def _bind(host: str, port: int) -> socket.socket:
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        trouble = "is in use" if getattr(error, "errno", 0) == errno.EADDRINUSE else "cannot be listened on"
        reason = str(getattr(error, "strerror", error)).partition(" (while attempting")[0]
        raise BindError(f"port {port} on {host or 'all addresses'} {trouble} ({reason})") from error


def _has_unread(stream: IOStream) -> bool:
    try:  # with the plain socket's method, because that of a TLS socket cannot look ahead
        return not stream.closed() and bool(socket.socket.recv(stream.socket, 1, socket.MSG_PEEK))
    except OSError:
        return False
