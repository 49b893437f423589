"""Real gRPC servers on unix sockets that answer, or misbehave, as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from tests.fakes.background import Background

Answer = bytes | Callable[[], bytes] | GRPCError | None
"""A message, or who makes one for each call; a status, or None to hang."""
LIMITED = GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")


class RawCodec(CodecBase):
    """Messages are bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return bytes(data)


class RpcServer:
    """Answers each method with what `answers` holds for it at that moment; others are unimplemented."""

    def __init__(self, background: Background, path: Path, answers: Mapping[str, Answer]) -> None:
        self.path = path
        self.answers: dict[str, Answer] = dict(answers)
        self.events: dict[str, asyncio.Queue[bytes | None]] = {}
        """Messages of streams, as a test puts them there; None ends the stream."""
        self.calls: list[str] = []
        self.breaks_off = 0
        """So many calls end with their connection, in the middle."""
        self._followed: list[Stream[bytes, bytes]] = []
        self._background = background
        self._server: Server | None = None
        background.at_end.append(self._stop)
        self.start()

    def start(self) -> None:
        """Bind, with a new inode."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._background.run(self._start())

    def stop(self, *, unlink: bool = False) -> None:
        """Stop answering; a kubelet leaves its socket behind."""
        self._background.run(self._stop())
        if unlink:
            self.path.unlink(missing_ok=True)

    def restart(self) -> None:
        """As a kubelet restarts: unlink, and bind anew."""
        self.stop(unlink=True)
        self.start()

    def tell(self, method: str, message: bytes | None) -> None:
        """Send on a stream."""
        self._background.call(lambda: self._queue(method).put_nowait(message))

    def __mapping__(self) -> dict[str, Handler]:
        return _Methods(self)

    async def _start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = Server([self], codec=RawCodec())
        await self._server.start(path=str(self.path))

    async def _stop(self) -> None:
        for stream in self._followed:
            stream._stream._transport.abort()
        self._followed.clear()
        server, self._server = self._server, None
        if server is not None:
            server.close()
            # A handler may still be sending to a client that refused to hear more.
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 1)

    def _queue(self, method: str) -> asyncio.Queue[bytes | None]:
        return self.events.setdefault(method, asyncio.Queue())

    async def _answer(self, method: str, stream: Stream[bytes, bytes]) -> None:
        await stream.recv_message()
        self.calls.append(method)
        if self.breaks_off:
            self.breaks_off -= 1
            stream._stream._transport.abort()
            return
        answer = self.answers.get(method, GRPCError(Status.UNIMPLEMENTED, f"unknown method {method}"))
        if answer is None:
            await asyncio.sleep(3600)
        if isinstance(answer, GRPCError):
            raise answer
        assert answer is not None
        await stream.send_message(answer() if callable(answer) else answer)

    async def _stream(self, method: str, stream: Stream[bytes, bytes]) -> None:
        await stream.recv_message()
        self.calls.append(method)
        await stream.send_initial_metadata()
        self._followed.append(stream)
        while (message := await self._queue(method).get()) is not None:
            await stream.send_message(message)


class _Methods(dict[str, Handler]):
    """Every method there may be, so that a test can also take answers away."""

    def __init__(self, server: RpcServer) -> None:
        names = [
            *("/v1.PodResourcesLister/List", "/v1alpha1.PodResourcesLister/List"),
            *("/v1alpha1.Pods/ListPods", "/runtime.v1.RuntimeService/ListContainers"),
            "/runtime.v1.RuntimeService/ListPodSandbox",
        ]
        super().__init__({name: _handler(server._answer, name, Cardinality.UNARY_UNARY) for name in names})
        watch = "/v1alpha1.Pods/WatchPods"
        self[watch] = _handler(server._stream, watch, Cardinality.UNARY_STREAM)


def _handler(answer: Callable[[str, Any], Awaitable[None]], name: str, cardinality: Cardinality) -> Handler:
    return Handler(lambda stream: answer(name, stream), cardinality, bytes, bytes)


class DeafServer:
    """Says the same bytes to whoever connects, whatever is asked, and hangs up."""

    def __init__(self, background: Background, path: Path, says: bytes) -> None:
        self.says = says
        self.visits = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._server = background.run(asyncio.start_unix_server(self._serve, str(path)))
        background.at_end.append(self._stop)

    async def _stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.write(self.says)
        with suppress(asyncio.CancelledError):  # the test ends first
            await asyncio.sleep(0.05)
        writer.transport.abort()


def at(path: Path | str) -> Callable[[], Awaitable[str]]:
    """A socket whose place is known."""

    async def place() -> str:
        return str(path)

    return place


def pods_of(*entries: tuple[str, str, str, Iterable[str]], resource: str = "nvidia.com/gpu") -> bytes:
    """A List of pod-resources: (namespace, pod, container, device ids)."""
    from gputally.machine.messages import LIST
    from gputally.machine.wire import encode

    pods = [
        {
            "namespace": namespace,
            "name": pod,
            "containers": [
                {"name": c, "devices": [{"resource_name": resource, "device_ids": [i]} for i in ids]}
            ],
        }
        for namespace, pod, c, ids in entries
    ]
    return encode({"pod_resources": pods}, LIST)
