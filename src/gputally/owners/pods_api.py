"""The kubelet's own Pods API (Kubernetes 1.37+): whole pods over a local socket, with a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gputally.machine import Machine
from gputally.machine.messages import DELETED, LIST_PODS, POD_EVENT, PODS, WATCH_PODS
from gputally.machine.wire import decode
from gputally.owners.inquiry import check_watch
from gputally.owners.pods import Pod, Pods, from_object

RESYNC = 300.0
"""Seconds after which the whole list is asked for again, whatever the watch told."""


class PodsApi:
    """Holds the pods that the kubelet knows."""

    name = "pods_api"
    tells_workload = True

    def __init__(self, machine: Machine, socket: Callable[[], Awaitable[str]]) -> None:
        self._machine = machine
        self._socket = socket
        self._pods: dict[str, Pod] = {}
        self.pods = Pods()

    async def ask(self) -> None:
        """List."""
        answer = decode(await self._machine.rpc(await self._socket(), LIST_PODS, b""), PODS)
        self._pods = {pod.uid: pod for pod in map(from_object, answer["pods"])}
        self.pods = self.pods.renewed(self._pods.values())

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
        if not pod.uid:
            return
        if event["type"] == DELETED:
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod
        self.pods = self.pods.renewed(self._pods.values())
