"""gRPC over unix sockets with raw messages: a new connection for every call, so none can be stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from gputally.model import Unreadable

DEADLINE = 2.0
MOST_BYTES = 16 * 2**20
"""The kubelet's own clients take no more either."""
WINDOW = 2**20
AT_ONCE = 2**16
PREFIX = 5
"""Bytes before each message: whether it is packed, and its length."""
GREETING = slice(3, 4)
"""Where the first frame of whoever speaks HTTP/2 says that it is one of settings."""
STREAM = 1
"""The number of the only one on a connection."""
STATUSES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
DEADLINE_EXCEEDED, UNAVAILABLE = map(STATUSES.index, ("DEADLINE_EXCEEDED", "UNAVAILABLE"))


async def call(socket: str, method: str, request: bytes) -> bytes:
    """One call; asked once more if the peer went away meanwhile, as a restarting kubelet does."""
    try:
        return await _call(socket, method, request)
    except _Terminated:
        return await _call(socket, method, request)


async def messages(socket: str, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
    """The messages of a stream until the peer ends it; only its beginning has a deadline."""
    with _failures(socket, method):
        async with _asked(socket, method, request) as answer:
            async with asyncio.timeout(DEADLINE):
                await answer.begin()
            while (message := await answer.message()) is not None:
                yield message


async def _call(socket: str, method: str, request: bytes) -> bytes:
    with _failures(socket, method):
        async with asyncio.timeout(DEADLINE), _asked(socket, method, request) as answer:
            message = await answer.message()
            await answer.end()
    return b"" if message is None else message


@asynccontextmanager
async def _asked(socket: str, method: str, request: bytes) -> AsyncIterator[_Answer]:
    """A connection on which the question was sent."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_unix_connection(socket)
    answer = _Answer(reader, writer)
    try:
        answer.ask(method, request)
        yield answer
    finally:
        writer.transport.abort()
        answer.drop()


class _Answer:
    """What comes back on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = H2Connection(H2Configuration(validate_outbound_headers=False))
        wanted = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW}
        self._http.local_settings = Settings(client=True, initial_values=wanted)
        self._said: dict[bytes, bytes] = {}
        """Headers, and trailers at the end."""
        self._received = bytearray()
        self._greeted = self._ended = False

    def ask(self, method: str, request: bytes) -> None:
        """Send the question."""
        self._http.initiate_connection()
        self._http.increment_flow_control_window(WINDOW)
        about = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost"}
        about |= {"te": "trailers", "content-type": "application/grpc", "user-agent": "gputally"}
        self._http.send_headers(STREAM, list(about.items()))
        prefix = b"\0" + len(request).to_bytes(PREFIX - 1, "big")
        self._http.send_data(STREAM, prefix + request, end_stream=True)
        self._writer.write(self._http.data_to_send())

    async def begin(self) -> None:
        """Wait until the peer says how it will answer."""
        while not self._said:
            await self._receive()
        self._check()

    async def message(self) -> bytes | None:
        """The next message; None after the last one."""
        if not await self._holds(1):
            return None
        await self._need(PREFIX)
        packed, size = self._received[0], int.from_bytes(self._received[1:PREFIX], "big")
        if packed:
            raise Unreadable("the answer is packed, which nobody asked for")
        if size > MOST_BYTES:
            raise Unreadable(f"an answer of {size} bytes is more than the {MOST_BYTES} allowed")
        await self._need(PREFIX + size)
        message = bytes(self._received[PREFIX : PREFIX + size])
        del self._received[: PREFIX + size]
        return message

    async def end(self) -> None:
        """Wait until the peer has said that this was all, and that it is well."""
        while not self._ended and not self._received:
            await self._receive()
        self._check()
        if self._received:
            raise ValueError("more than one message")

    def drop(self) -> None:
        """Hold no half of an answer while somebody holds the error that broke it off."""
        self._received.clear()

    async def _need(self, size: int) -> None:
        if not await self._holds(size):
            raise ValueError("it ends within a message")

    async def _holds(self, size: int) -> bool:
        """Whether so many bytes came before the end."""
        while len(self._received) < size:
            if self._ended:
                self._check()
                return False
            await self._receive()
        return True

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(AT_ONCE)
            self._greeted |= data[GREETING] == b"\x04"
            for event in self._http.receive_data(data):
                self._heed(event)
            if reply := self._http.data_to_send():  # we heed its settings, we live, more may come
                self._writer.write(reply)
                await self._writer.drain()
        except OSError as error:
            raise _Lost(str(error)) from None
        except H2Error as error:
            if not self._greeted:
                raise
            # A server that is stopped takes leave and says more with it, which is not understood.
            raise _Lost(f"the peer broke off: {error}") from None
        if not data and not self._ended:
            raise _Lost("the connection was lost")

    def _heed(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._received += event.data or b""
            self._http.acknowledge_received_data(event.flow_controlled_length or 0, STREAM)
        elif isinstance(event, ResponseReceived | TrailersReceived):
            self._said.update(event.headers or ())
        elif isinstance(event, StreamEnded):
            self._ended = True
        elif isinstance(event, StreamReset | ConnectionTerminated) and not self._ended:
            raise _Lost(f"the peer broke off with error {event.error_code}")

    def _check(self) -> None:
        """Raise what the peer says is wrong, or that it says nothing of what it must."""
        if self._said.get(b":status") != b"200":
            raise ValueError(f"HTTP status {self._said.get(b':status', b'').decode(errors='replace')}")
        status = self._said.get(b"grpc-status")
        if status is None and self._ended:
            raise ValueError("it ends without a status")
        if status is not None and int(status) != 0:
            why = unquote(self._said.get(b"grpc-message", b"").decode(errors="replace"))
            raise _Refused(int(status), why or "no reason given")


class _Lost(Exception):
    """The peer went away in the middle of a call."""


class _Terminated(Unreadable):
    """The same, for who asked."""


class _Refused(Exception):
    """The peer answered with a status that is not OK: its number, and why."""


class _failures:  # noqa: N801  reads as a statement
    """Every way in which a call can fail, as Unreadable."""

    def __init__(self, socket: str, method: str) -> None:
        self._where = f"{method.rpartition('/')[2]} on {socket}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, _Refused):
            code, why = error.args
            name = STATUSES[code] if 0 <= code < len(STATUSES) else f"status {code}"
            raise Unreadable(f"{self._where}: {name}: {why}"[:300], code) from None
        if isinstance(error, TimeoutError):
            raise Unreadable(f"{self._where}: no answer in {DEADLINE:g} s", DEADLINE_EXCEEDED) from None
        if isinstance(error, _Lost):
            raise _Terminated(f"{self._where}: {error}", UNAVAILABLE) from None
        if isinstance(error, OSError):
            raise Unreadable(f"{self._where}: {error.strerror or error}", UNAVAILABLE) from None
        if isinstance(error, H2Error | ValueError):
            raise Unreadable(f"{self._where}: not gRPC: {error}") from None
        if isinstance(error, Unreadable):
            raise Unreadable(f"{self._where}: {error}", error.code) from None
