"""A fake API server and kubelet over real HTTP or HTTPS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.netutil import bind_sockets, bind_unix_socket

from tests.fakes.background import Background

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class WebServer:
    """Serves pods; `status` other than 200 refuses, 0 hangs. A watch tells what `tell` was given.

    Nodes may only be watched: whoever asks for them otherwise has no right to.
    """

    def __init__(
        self, background: Background, *, token: str = "", tls: ssl.SSLContext | None = None, socket: str = ""
    ) -> None:
        self.pods: list[Mapping[str, Any]] | None = []
        self.page: bytes | None = None
        self.status = 200
        self.watch_status = 200
        self.watches_end = False
        """Every watch ends as soon as it began, and well."""
        self.token = token
        self.requests: list[str] = []
        self.nodes: dict[str, Mapping[str, str]] = {}
        """Name -> labels."""
        self._watches: dict[asyncio.Queue[bytes | None], str] = {}
        self._background = background
        self._scheme = "https" if tls else "http"
        background.run(self._start(tls, socket))
        background.at_end.append(self._stop)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def watches(self) -> int:
        """How many are watching."""
        return len(self._watches)

    def tell(self, kind: str, item: Mapping[str, Any], path: str = PODS) -> None:
        """Send an event to everybody who watches that path."""
        self._background.run(self._tell(_event(kind, item), path))

    def label(self, node: str, **labels: str) -> None:
        """Change the labels of a node to nvidia.com/gpu.deploy.<key>=<value>."""
        self.nodes[node] = {f"nvidia.com/gpu.deploy.{key}": value for key, value in labels.items()}
        self.tell("MODIFIED", _node(node, self.nodes[node]), NODES)

    def end_watches(self) -> None:
        """End every watch."""
        self._background.run(self._tell(None))

    async def _tell(self, line: bytes | None, path: str = "") -> None:
        for queue, watched in self._watches.items():
            if path in ("", watched):
                queue.put_nowait(line)

    def stop(self) -> None:
        """Answer no more."""
        self._background.run(self._stop())

    async def _stop(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()

    async def _start(self, tls: ssl.SSLContext | None, socket: str) -> None:
        self._server = HTTPServer(self._respond, ssl_options=tls)
        if socket:
            self._server.add_socket(bind_unix_socket(socket))
            self.port = 0
            return
        sockets = bind_sockets(0, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)

    def _respond(self, request: HTTPServerRequest) -> None:
        self.requests.append(request.uri or "")
        asyncio.ensure_future(self._answer(request))  # noqa: RUF006

    async def _answer(self, request: HTTPServerRequest) -> None:
        watching = request.arguments.get("watch") == [b"true"]
        status = self.watch_status if watching else self.status
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            status = 401
        if request.path == NODES and not watching:
            status = 403
        if status == 0:
            await asyncio.sleep(3600)
        if status != 200:
            await _send(request, status, b'{"kind":"Status","message":"refused"}')
        elif watching:
            await self._watch(request)
        else:
            page = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": self.pods}
            await _send(request, 200, self.page if self.page is not None else json.dumps(page).encode())

    async def _watch(self, request: HTTPServerRequest) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._watches[queue] = request.path
        if request.path == NODES:
            for name, labels in self.nodes.items():
                if request.arguments["fieldSelector"] == [f"metadata.name={name}".encode()]:
                    queue.put_nowait(_event("ADDED", _node(name, labels)))
        connection = request.connection
        assert connection is not None
        headers = HTTPHeaders({"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        try:
            await connection.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), headers)
            while not self.watches_end and (line := await queue.get()) is not None:
                await connection.write(line)
            connection.finish()
        except Exception:  # noqa: BLE001  whoever watched went away
            pass
        finally:
            self._watches.pop(queue, None)


def _event(kind: str, item: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def _node(name: str, labels: Mapping[str, str]) -> Mapping[str, Any]:
    return {"kind": "PartialObjectMetadata", "metadata": {"name": name, "labels": labels}}


async def _send(request: HTTPServerRequest, status: int, body: bytes) -> None:
    connection = request.connection
    assert connection is not None
    headers = HTTPHeaders({"Content-Type": "application/json", "Content-Length": str(len(body))})
    await connection.write_headers(ResponseStartLine("HTTP/1.1", status, "x"), headers, body)
    connection.finish()


def pod_object(
    namespace: str,
    name: str,
    uid: str,
    containers: Mapping[str, str],
    *,
    owner: tuple[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "Running",
) -> dict[str, Any]:
    """A v1.Pod in JSON; containers are name -> id."""
    references: Sequence[Mapping[str, Any]] = (
        [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    )
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": references,
        },
        "spec": {"containers": [{"name": c, "env": [{"name": "S", "value": "canary"}]} for c in containers]},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": c, "containerID": f"containerd://{number}"} for c, number in containers.items()
            ],
        },
    }
