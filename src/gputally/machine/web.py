"""HTTP as a client: bounded in time and size, without redirects, over TLS or a unix socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing
from urllib.parse import urlsplit

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import (
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream
from tornado.tcpclient import TCPClient

from gputally.machine import Access
from gputally.machine.disk import Disk
from gputally.machine.files import dated
from gputally.model import Unreadable

PIECE = 65_536
MOST_BYTES = 64 * 2**20
MOST_LINE_BYTES = 4 * 2**20
SILENCE = 600.0
"""Seconds after which a watch without a line is taken for dead; bookmarks come every minute."""
LONGEST_TOKEN = 65_536
ENDLESS = HTTP1ConnectionParameters(max_body_size=2**50, max_header_size=65_536, no_keep_alive=True)
FAILURES = (HTTPInputError, OSError, ValueError)


async def get(url: str, access: Access, disk: Disk) -> bytes:
    """The body of a page."""
    body = bytearray()
    try:
        async with asyncio.timeout(access.seconds), aclosing(_chunks(url, access, disk)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > access.most_bytes:
                    raise Unreadable(f"{_place(url)}: more than {access.most_bytes} bytes")
    except TimeoutError:
        raise Unreadable(f"{_place(url)}: no whole answer in {access.seconds:g} s") from None
    return bytes(body)


async def lines(url: str, access: Access, disk: Disk) -> AsyncIterator[bytes]:
    """The lines of a page as they come; a reader that is slow slows the sender."""
    rest = b""
    async with aclosing(_chunks(url, access, disk)) as chunks:
        async for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > MOST_LINE_BYTES:
                raise Unreadable(f"{_place(url)}: a line of more than {MOST_LINE_BYTES} bytes")


class _Reader(HTTPMessageDelegate):
    """Hands on what comes, one piece at a time; None is the end."""

    def __init__(self) -> None:
        self.status = 0
        self.encoding = "identity"
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        assert isinstance(start_line, ResponseStartLine)
        self.status = start_line.code
        self.encoding = headers.get("Content-Encoding", "identity").lower()

    def data_received(self, chunk: bytes) -> Awaitable[None]:
        return self.pieces.put(chunk)


async def _chunks(url: str, access: Access, disk: Disk) -> AsyncGenerator[bytes, None]:
    """The body of a page with status 200, piece by piece; the connection ends with whoever reads it."""
    headers, context = await _credentials(url, access, disk)
    stream: IOStream | None = None
    reading: asyncio.Future[None] | None = None
    try:
        async with asyncio.timeout(access.connect_seconds):
            stream = await _connect(url, access, context)
            connection = HTTP1Connection(stream, True, ENDLESS)
            path = url.split("/", 3)[3] if url.count("/") > 2 else ""
            await connection.write_headers(RequestStartLine("GET", f"/{path}", ""), headers)
            connection.finish()
        reader = _Reader()
        reading = asyncio.ensure_future(_read(connection, reader))
        refused = b""
        unpacked = _Unpacked(reader)
        while (chunk := await asyncio.wait_for(reader.pieces.get(), SILENCE)) is not None:
            if reader.status == 200:
                for piece in unpacked.pieces(chunk):
                    yield piece
            elif len(refused) < 200:
                refused += chunk
        await reading
        if reader.status == 200:
            unpacked.end()
        else:
            why = " ".join(refused[:200].decode("utf-8", "replace").split())
            raise Unreadable(f"{_place(url)}: HTTP {reader.status} {why}".rstrip(), reader.status)
    except TimeoutError:
        raise Unreadable(f"{_place(url)}: no answer in time") from None
    except FAILURES as error:
        raise Unreadable(f"{_place(url)}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        if reading is not None:
            reading.cancel()
        if stream is not None:
            stream.close()


class _Unpacked:
    """A body as it was before it was compressed, in pieces too small for a bomb."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        if self._reader.encoding == "identity":
            yield chunk
            return
        if self._reader.encoding != "gzip":
            raise ValueError(f"its encoding is {self._reader.encoding[:20]!r}")
        try:
            while chunk:
                yield self._gzip.decompress(chunk, PIECE)
                chunk = self._gzip.unconsumed_tail
        except zlib.error:
            raise ValueError("it says that it is gzip and is not") from None

    def end(self) -> None:
        if self._reader.encoding == "gzip" and not self._gzip.eof:
            raise ValueError("its gzip is cut short")


async def _read(connection: HTTP1Connection, reader: _Reader) -> None:
    try:
        await connection.read_response(reader)
        if not reader.status:
            raise ValueError("the connection was closed, or the answer was not HTTP")
    finally:
        await reader.pieces.put(None)


async def _connect(url: str, access: Access, context: ssl.SSLContext | None) -> IOStream:
    if access.socket:
        stream = IOStream(socket.socket(socket.AF_UNIX), max_buffer_size=MOST_BYTES)
        return await stream.connect(access.socket)
    parts = urlsplit(url)
    port = parts.port or (443 if context else 80)
    return await TCPClient().connect(
        parts.hostname or "", port, ssl_options=context, max_buffer_size=MOST_BYTES
    )


async def _credentials(url: str, access: Access, disk: Disk) -> tuple[HTTPHeaders, ssl.SSLContext | None]:
    """Who we are, and whom to believe; both may be in files."""

    def read() -> tuple[HTTPHeaders, ssl.SSLContext | None]:
        return _headers(url, access), _context(url, access)

    if not access.token_file and not url.startswith("https:"):
        return read()
    return await disk.ask(f"{access.token_file} {access.ca_file}".strip() or "certificates", read)


def _headers(url: str, access: Access) -> HTTPHeaders:
    headers = HTTPHeaders({"Host": urlsplit(url).netloc, "Accept": access.accept, "User-Agent": "gputally"})
    headers["Connection"] = "close"
    if access.gzip:
        headers["Accept-Encoding"] = "gzip"
    if access.token_file and _is_private(url, access):
        headers["Authorization"] = f"Bearer {_token(access.token_file)}"
    return headers


def _token(path: str) -> str:
    _, content = dated(path, LONGEST_TOKEN)
    try:
        return content.decode("ascii").strip()
    except ValueError as error:
        raise Unreadable(f"{path}: {error}") from None


def _is_private(url: str, access: Access) -> bool:
    """Nobody on the way can read along; a token goes nowhere else."""
    return bool(access.socket) or url.startswith(("https:", "http://127.0.0.1:", "http://localhost:"))


def _place(url: str) -> str:
    return url.partition("?")[0]


def _context(url: str, access: Access) -> ssl.SSLContext | None:
    """Whom to believe, where the page is over TLS."""
    if access.socket or not url.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
    except OSError as error:
        raise Unreadable(f"{access.ca_file}: {error.strerror or error}") from None
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
