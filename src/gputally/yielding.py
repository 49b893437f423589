"""Who may tell us to let go of the GPUs, so that they can be reset: a signal, a request, a node's label."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, quote

from gputally.config import Config, Wrong
from gputally.machine import Access, Machine
from gputally.model import Unreadable
from gputally.outputs.http import Answer, Request, Respond
from gputally.owners.discovery import api
from gputally.owners.inquiry import Inquiry
from gputally.owners.pod_json import parse
from gputally.setting_sources import yield_time
from gputally.sources.nvml import NvmlSource

log = logging.getLogger(__name__)

YIELD, RESUME = "/-/yield", "/-/resume"
COMMANDS = frozenset({YIELD, RESUME})
PAUSED = "paused-"
"""How the label's value begins while whoever manages the GPUs wants everybody to let go of them."""
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Of a node we need the labels; all of it would be a hundred times as much."""
WATCH_SECONDS = 300


class Yielding:
    """The rest of the GPUs: begun and ended by whoever may, and over after a time in any case."""

    def __init__(self, nvml: NvmlSource, seconds: float) -> None:
        self._nvml = nvml
        self.seconds = seconds
        """How long a rest is where nobody says."""
        self._paused = False

    def turn(self) -> None:
        """SIGUSR2: begin a rest, or end it."""
        if self._nvml.resting:
            self.end("SIGUSR2")
        else:
            self.begin("SIGUSR2", self.seconds)

    def begin(self, who: str, seconds: float) -> None:
        """Let go of all GPUs for so long."""
        log.info("%s: letting go of the GPUs for %g s", who, seconds)
        self._nvml.rest(seconds)

    def end(self, who: str) -> None:
        """Take up the GPUs again."""
        if self._nvml.resting:
            log.info("%s: taking up the GPUs again", who)
        self._nvml.rest(None)

    def heed(self, key: str, value: str) -> None:
        """The node's label: only a change of it begins or ends a rest; a time that is over stays so."""
        paused = value.startswith(PAUSED)
        if paused == self._paused:
            return
        self._paused = paused
        who = f"node label {key}={value}"
        if paused:
            self.begin(who, self.seconds)
        else:
            self.end(who)


def commanded(respond: Respond, yielding: Yielding) -> Respond:
    """The same answers, and two commands for whoever is on this computer or in this pod."""

    def answer(request: Request) -> Answer:
        return _command(request, yielding) if request.path in COMMANDS else respond(request)

    return answer


def _command(request: Request, yielding: Yielding) -> Answer:
    if request.method != "POST":
        return Answer(405, b"only POST is allowed\n", headers=(("Allow", "POST"),))
    # A browser says where a page that posts is from: no page has any business here.
    if not _is_loopback(request.peer) or "Origin" in request.headers:
        return Answer(403, b"only from the loopback address, and from no web page\n")
    who = f"POST {request.path}"
    if request.path == RESUME:
        yielding.end(who)
        return Answer(202, b"taking up the GPUs again\n")
    try:
        seconds = _seconds(request.query, yielding.seconds)
    except ValueError as error:
        return Answer(400, f"for= must be {error}\n".encode())
    yielding.begin(who, seconds)
    return Answer(202, f"letting go of the GPUs for {seconds:g} s; POST {RESUME} ends it\n".encode())


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _seconds(query: str, otherwise: float) -> float:
    asked = parse_qs(query, keep_blank_values=True, max_num_fields=8).get("for")
    return otherwise if asked is None else yield_time(asked[-1])


def node_inquiry(config: Config, machine: Machine, yielding: Yielding) -> tuple[Inquiry, ...]:
    """Who watches the node's label, where one is to be heeded."""
    key = config.kubernetes_pause_label
    if not key:
        return ()
    # Pods need not be asked for there: "off" is about them.
    url = api(machine, "auto" if config.kubernetes_api == "off" else config.kubernetes_api)
    node = config.kubernetes_node or machine.variable("NODE_NAME")
    if not url or not node:
        raise Wrong("--kubernetes.pause-label needs a cluster, or --kubernetes.api, and --kubernetes.node")
    access = Access(
        token_file=config.kubernetes_token_file or "",
        ca_file=config.kubernetes_ca_file or "",
        accept=METADATA,
    )
    return (Inquiry(machine.clock, NodeLabel(machine, url, node, key, access, yielding)),)


class NodeLabel:
    """Watches one label of our own node: a watch begins with how things are, so nothing need be listed."""

    name = "node"

    def __init__(
        self, machine: Machine, url: str, node: str, key: str, access: Access, yielding: Yielding
    ) -> None:
        self._machine = machine
        self._node = node
        self._key = key
        self._access = access
        self._yielding = yielding
        self._url = (
            f"{url.rstrip('/')}/api/v1/nodes?fieldSelector={quote(f'metadata.name={node}')}"
            f"&watch=true&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        )
        self._events: AsyncIterator[bytes] | None = None

    async def ask(self) -> None:
        """Begin to watch, and hear how the label is."""
        self._events = self._machine.lines(self._url, self._access)
        try:
            async with asyncio.timeout(self._access.seconds):
                while not self._take(await anext(self._events)):
                    pass
        except TimeoutError:
            raise Unreadable(f"node {self._node}: the API server tells nothing of it") from None
        except StopAsyncIteration:
            raise Unreadable(f"node {self._node}: the watch ended before it told anything") from None

    async def follow(self, hurry: asyncio.Event) -> None:
        """Watch until the server ends it."""
        assert self._events is not None
        began = self._machine.clock.monotonic()
        async for line in self._events:
            self._take(line)
        if self._machine.clock.monotonic() - began < 1.0:
            raise Unreadable("the watch ended as soon as it began")

    def _take(self, line: bytes) -> bool:
        """Heed one event; tells whether it was one about the node."""
        if not line.strip():
            return False
        event: Any = parse(line)
        try:
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise Unreadable(f"watch: {item.get('message', 'error')}", item.get("code"))
            if kind == "BOOKMARK" or item["metadata"]["name"] != self._node:
                return False
            labels = item["metadata"].get("labels") or {}
            value = "" if kind == "DELETED" else str(labels.get(self._key, ""))
        except (KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"not an event of a watch: {error}") from None
        self._yielding.heed(self._key, value)
        return True
