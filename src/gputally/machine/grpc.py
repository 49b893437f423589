"""gRPC over unix sockets with raw messages: a new connection for every call, so none can be stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpclib.client import Channel, Stream
from grpclib.config import Configuration
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from gputally.model import Unreadable

DEADLINE = 2.0
MOST_BYTES = 16 * 2**20
"""The kubelet's own clients take no more either."""
WINDOW = 2**20
UNAVAILABLE = 14
DEADLINE_EXCEEDED = 4


class _Raw(CodecBase):
    """Messages stay bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return bytes(data)


async def call(socket: str, method: str, request: bytes) -> bytes:
    """One call; asked once more if the peer went away meanwhile, as a restarting kubelet does."""
    try:
        return await _call(socket, method, request)
    except _Terminated:
        return await _call(socket, method, request)


async def messages(socket: str, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
    """The messages of a stream until the peer ends it; only its beginning has a deadline."""
    with _failures(socket, method):
        async with _asked(socket, method, request, Cardinality.UNARY_STREAM) as stream:
            async with asyncio.timeout(DEADLINE):
                await stream.recv_initial_metadata()
            while (message := await stream.recv_message()) is not None:
                yield message


async def _call(socket: str, method: str, request: bytes) -> bytes:
    with _failures(socket, method):
        async with (
            asyncio.timeout(DEADLINE),
            _asked(socket, method, request, Cardinality.UNARY_UNARY) as stream,
        ):
            message = await stream.recv_message()
            await stream.recv_trailing_metadata()
    return b"" if message is None else message


@asynccontextmanager
async def _asked(
    socket: str, method: str, request: bytes, cardinality: Cardinality
) -> AsyncIterator[Stream[bytes, bytes]]:
    """A stream on which the question was sent."""
    window = Configuration(http2_connection_window_size=WINDOW, http2_stream_window_size=WINDOW)
    channel = Channel(path=socket, codec=_Raw(), config=window)
    try:
        stream = channel.request(method, cardinality, bytes, bytes)
        async with stream:
            async with asyncio.timeout(DEADLINE):
                await stream.send_message(request, end=True)
            _bound(stream)
            yield stream
    finally:
        channel.close()


def _bound(stream: Stream[bytes, bytes]) -> None:
    """Refuse a message by the length it announces; grpclib itself knows no limit."""
    inner = stream._stream
    read = inner.recv_data

    async def bounded(size: int) -> bytes:
        if size > MOST_BYTES:
            raise Unreadable(f"an answer of {size} bytes is more than the {MOST_BYTES} allowed")
        return await read(size)

    inner.recv_data = bounded  # type: ignore[method-assign]


class _Terminated(Unreadable):
    """The peer went away in the middle of a call."""


class _failures:  # noqa: N801  reads as a statement
    """Every way in which a call can fail, as Unreadable."""

    def __init__(self, socket: str, method: str) -> None:
        self._where = f"{method.rpartition('/')[2]} on {socket}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, GRPCError):
            words = f"{self._where}: {error.status.name}: {error.message or 'no reason given'}"
            raise Unreadable(words[:300], error.status.value) from None
        if isinstance(error, TimeoutError):
            raise Unreadable(f"{self._where}: no answer in {DEADLINE:g} s", DEADLINE_EXCEEDED) from None
        if isinstance(error, StreamTerminatedError):
            raise _Terminated(f"{self._where}: {error}", UNAVAILABLE) from None
        if isinstance(error, OSError):
            raise Unreadable(f"{self._where}: {error.strerror or error}", UNAVAILABLE) from None
        # grpclib asserts and raises NotImplementedError on what a peer should not send.
        if isinstance(error, ProtocolError | AssertionError | NotImplementedError | ValueError):
            raise Unreadable(f"{self._where}: not gRPC: {error}") from None
