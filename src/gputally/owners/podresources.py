"""What the kubelet allocated to whom: the pod-resources API, v1 or where that is missing v1alpha1."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gputally.machine import Machine
from gputally.machine.messages import LIST, LIST_V1, LIST_V1ALPHA1
from gputally.machine.wire import decode
from gputally.model import Claimed, Unreadable
from gputally.owners.inquiry import pause

EVERY = 5.0
EMPTY_FOR = 15.0
"""Seconds for which a list of nothing must be repeated to be believed: a kubelet that just started
answers with none."""
STALE_AFTER = 120.0
UNIMPLEMENTED = 12
DRA_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True)
class Allocation:
    """What one container was given, in the words of those who gave it."""

    namespace: str
    pod: str
    container: str
    ids: tuple[str, ...] = ()
    claimed: tuple[Claimed, ...] = ()
    """Devices by DRA."""


class PodResources:
    """Holds the newest list that can be believed."""

    name = "pod_resources"

    def __init__(self, machine: Machine, socket: Callable[[], str]) -> None:
        self._machine = machine
        self._socket = socket
        self._method = LIST_V1
        self._allocations: tuple[Allocation, ...] = ()
        self._listed_at: float | None = None
        self._told_at: float | None = None
        """When somebody was listed last."""
        self.version = 0
        """Counts the lists."""

    @property
    def allocations(self) -> tuple[Allocation, ...] | None:
        """Who has what; None where nobody has told for a while."""
        now = self._machine.clock.monotonic()
        is_known = self._listed_at is not None and now - self._listed_at <= STALE_AFTER
        return self._allocations if is_known else None

    async def ask(self) -> None:
        """List; a refusal keeps the list before."""
        answer = await self._list()
        now = self._machine.clock.monotonic()
        pods = answer["pod_resources"]
        self._listed_at = now
        if not pods and self._told_at is not None and now - self._told_at < EMPTY_FOR:
            return
        if pods:
            self._told_at = now
        self._allocations = tuple(_allocations(pods))
        self.version += 1

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait, however much of a hurry anybody is in: the kubelet's limit is shared by all who ask."""
        await pause(EVERY, hurry, EVERY)

    async def _list(self) -> Mapping[str, Any]:
        try:
            return decode(await self._machine.rpc(self._socket(), self._method, b""), LIST)
        except Unreadable as error:
            if error.code != UNIMPLEMENTED or self._method == LIST_V1ALPHA1:
                self._method = LIST_V1
                raise
        self._method = LIST_V1ALPHA1
        return decode(await self._machine.rpc(self._socket(), self._method, b""), LIST)


def _allocations(pods: Iterable[Mapping[str, Any]]) -> Iterable[Allocation]:
    for pod in pods:
        for container in pod["containers"]:
            ids = [number for devices in container["devices"] for number in _gpus(devices)]
            claims = [claimed for claim in container["dynamic_resources"] for claimed in _claimed(claim)]
            if ids or claims:
                yield Allocation(pod["namespace"], pod["name"], container["name"], tuple(ids), tuple(claims))


def _claimed(claim: Mapping[str, Any]) -> list[Claimed]:
    whose = (claim["claim_name"], claim["claim_namespace"])
    parts = [part for part in claim["claim_resources"] if part["driver_name"] == DRA_DRIVER]
    return [Claimed(*whose, part["driver_name"], part["pool_name"], part["device_name"]) for part in parts]


def _gpus(devices: Mapping[str, Any]) -> list[str]:
    """Ids that may be of GPUs: a network card has an index too, but under another resource's name."""
    resource = devices["resource_name"].lower()
    is_gpu = "gpu" in resource or resource.startswith("nvidia.com/")
    return [number for number in devices["device_ids"] if is_gpu or number.startswith(("GPU-", "MIG-"))]
