"""HTTP as a client: bounded in time and size, without redirects, over TLS or a unix socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import HTTPHeaders, HTTPInputError
from tornado.netutil import Resolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError, SimpleAsyncHTTPClient

from gputally.machine import Access
from gputally.model import Unreadable

DEADLINE = 5.0
MOST_BYTES = 64 * 2**20
MOST_LINE_BYTES = 4 * 2**20
SILENCE = 600.0
"""Seconds after which a watch without a line is taken for dead; bookmarks come every minute."""
LONGEST_TOKEN = 65_536
LONGEST_HEADERS = 65_536
FAILURES = (HTTPClientError, HTTPInputError, OSError, ValueError)


class _Socket(Resolver):
    """Finds every host at one unix socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, host: str, port: int, family: Any = None) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]


async def get(url: str, access: Access) -> bytes:
    """The body of a page."""
    client = _client(access)
    try:
        answer = await client.fetch(_request(url, access, request_timeout=DEADLINE))
        return answer.body
    except FAILURES as error:
        raise _unreadable(url, error) from None
    finally:
        client.close()


async def lines(url: str, access: Access) -> AsyncIterator[bytes]:
    """The lines of a page as they come; a reader that is slow slows the sender."""
    client = _client(access)
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
    request = _request(url, access, request_timeout=0, streaming_callback=chunks.put)
    fetched = asyncio.ensure_future(client.fetch(request))
    try:
        rest = b""
        while (chunk := await _next(chunks, fetched)) is not None:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
            if len(rest) > MOST_LINE_BYTES:
                raise Unreadable(f"{url}: a line of more than {MOST_LINE_BYTES} bytes")
        await fetched
    except FAILURES as error:
        raise _unreadable(url, error) from None
    finally:
        fetched.cancel()
        fetched.add_done_callback(lambda done: done.cancelled() or done.exception())
        client.close()


async def _next(chunks: asyncio.Queue[bytes], fetched: asyncio.Future[Any]) -> bytes | None:
    """What came next; None when nothing more will come."""
    waiting = asyncio.ensure_future(chunks.get())
    try:
        done, _ = await asyncio.wait({waiting, fetched}, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise TimeoutError
        if waiting in done:
            return waiting.result()
        return None if chunks.empty() else chunks.get_nowait()
    finally:
        waiting.cancel()


def _client(access: Access) -> SimpleAsyncHTTPClient:
    resolver = _Socket(path=access.socket) if access.socket else None
    return SimpleAsyncHTTPClient(
        force_instance=True,
        max_clients=1,
        max_body_size=MOST_BYTES,
        max_header_size=65_536,
        resolver=resolver,
    )


def _request(url: str, access: Access, **how: Any) -> HTTPRequest:
    headers = HTTPHeaders({"Accept": "application/json", "User-Agent": "gputally"})
    try:
        if access.token_file:
            with open(access.token_file, encoding="ascii") as file:
                headers["Authorization"] = f"Bearer {file.read(LONGEST_TOKEN).strip()}"
        context = _context(access) if url.startswith("https:") else None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{url}: {access.token_file} or {access.ca_file}: {error}") from None
    return HTTPRequest(
        url,
        headers=headers,
        connect_timeout=DEADLINE,
        follow_redirects=False,
        ssl_options=context,
        decompress_response=False,
        **how,
    )


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file or None)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _unreadable(url: str, error: Exception) -> Unreadable:
    place = url.partition("?")[0]
    if isinstance(error, HTTPTimeoutError | TimeoutError):
        return Unreadable(f"{place}: no answer in time")
    if isinstance(error, HTTPStreamClosedError):
        return Unreadable(f"{place}: the connection was closed")
    if isinstance(error, HTTPClientError):
        body = error.response.body[:200].decode("utf-8", "replace") if error.response else ""
        return Unreadable(f"{place}: HTTP {error.code} {' '.join(body.split())}".strip(), error.code)
    if isinstance(error, OSError):
        return Unreadable(f"{place}: {error.strerror or error}")
    return Unreadable(f"{place}: {type(error).__name__}: {error}")
