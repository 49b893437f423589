"""The kubelet's /pods over HTTPS, for which the permission nodes/pods is enough."""

from __future__ import annotations

import asyncio

from gputally.machine import Access, Machine
from gputally.model import Unreadable
from gputally.owners.inquiry import pause
from gputally.owners.pod_json import pod_list
from gputally.owners.pods import Pods

EVERY = 15.0
LEAST = 2.0


class KubeletPods:
    """Holds the pods that the kubelet tells of."""

    name = "kubelet"
    tells_workload = True

    def __init__(self, machine: Machine, url: str, access: Access) -> None:
        self._machine = machine
        self._url = f"{url.rstrip('/')}/pods"
        self._access = access
        self.pods = Pods()

    async def ask(self) -> None:
        """Get them all; a kubelet that just started has none, which is no reason to forget."""
        pods, _ = pod_list(await self._machine.get(self._url, self._access))
        if not pods and self.pods.by_uid:
            raise Unreadable(f"{self._url}: no pods, as just after a restart")
        self.pods = self.pods.renewed(pods)

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait for the next time."""
        await pause(EVERY, hurry, LEAST)
