"""The kubelet's own Pods API (Kubernetes 1.37+): whole pods over a local socket, with a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gputally.machine import Machine
from gputally.machine.messages import DELETED, ENTRIES, LIST_PODS, POD, POD_EVENT, WATCH_PODS
from gputally.machine.wire import decode, pieces
from gputally.owners.inquiry import check_watch
from gputally.owners.pods import Pods, from_object

RESYNC = 300.0
"""Seconds after which the whole list is asked for again, whatever the watch told."""


class PodsApi:
    """Holds the pods that the kubelet knows."""

    name = "pods_api"
    tells_workload = True

    def __init__(self, machine: Machine, socket: Callable[[], Awaitable[str]]) -> None:
        self._machine = machine
        self._socket = socket
        self.pods = Pods()

    async def ask(self) -> None:
        """List."""
        answer = await self._machine.rpc(await self._socket(), LIST_PODS, b"")
        # One after the other: most of a pod is not kept, and that of all at once is much memory.
        self.pods = self.pods.renewed(from_object(decode(pod, POD)) for pod in pieces(answer, ENTRIES))

    async def follow(self, hurry: asyncio.Event) -> None:
        """Watch; the kubelet drops a watcher that is slow, who then lists again."""
        began = self._machine.clock.monotonic()
        try:
            async with asyncio.timeout(RESYNC):
                async for message in self._machine.stream(await self._socket(), WATCH_PODS, b""):
                    self._take(decode(message, POD_EVENT))
        except TimeoutError:
            return
        check_watch(self._machine.clock.monotonic() - began)

    def _take(self, event: Mapping[str, Any]) -> None:
        pod = from_object(event["pod"])
        if pod.uid:
            self.pods = self.pods.changed(pod, gone=event["type"] == DELETED)
