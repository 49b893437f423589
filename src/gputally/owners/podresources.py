"""What the kubelet allocated to whom: the pod-resources API, v1 or where that is missing v1alpha1."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputally.machine import Machine
from gputally.machine.messages import ENTRIES, LIST_V1, LIST_V1ALPHA1, POD_RESOURCES
from gputally.machine.wire import decode, pieces
from gputally.model import Claimed, Unreadable
from gputally.owners.inquiry import pause

EVERY = 30.0
LEAST = 5.0
"""Seconds between two lists: devices are given and taken with pods, and pods that come or go make us hurry.
The kubelet's limit is shared by all who ask."""
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

    def __init__(self, machine: Machine, socket: Callable[[], Awaitable[str]]) -> None:
        self._machine = machine
        self._socket = socket
        self._method = LIST_V1
        self._read: Mapping[bytes, tuple[Allocation, ...]] = {}
        """What each pod of the list before was read as: most come again, in another order."""
        self._allocations: tuple[Allocation, ...] = ()
        self._listed_at: float | None = None
        self._empty_since: float | None = None
        """When the first of a row of empty lists came that are not believed yet."""

    @property
    def allocations(self) -> tuple[Allocation, ...] | None:
        """Who has what, the same object until that changes; None where nobody has told for a while."""
        now = self._machine.clock.monotonic()
        is_known = self._listed_at is not None and now - self._listed_at <= STALE_AFTER
        return self._allocations if is_known else None

    async def ask(self) -> None:
        """List; a refusal keeps the list before, and so does an empty one until it is repeated."""
        try:
            pods = pieces(await self._list(), ENTRIES)
            read = {pod: self._read[pod] if pod in self._read else _allocations(pod) for pod in pods}
        except Unreadable:
            self._empty_since = None
            raise
        now = self._machine.clock.monotonic()
        self._listed_at = now
        self._empty_since = self._doubted_since(now) if self._read and not read else None
        if self._empty_since is None and read.keys() != self._read.keys():
            self._take(read)

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait for the next time, not for long while the list is doubted."""
        await pause(EVERY if self._empty_since is None else LEAST, hurry, LEAST)

    def _doubted_since(self, now: float) -> float | None:
        """When an empty list first came; None once it came for long enough to be believed."""
        since = now if self._empty_since is None else self._empty_since
        return since if now - since < EMPTY_FOR else None

    def _take(self, read: Mapping[bytes, tuple[Allocation, ...]]) -> None:
        self._read = read
        found = tuple(allocation for allocations in read.values() for allocation in allocations)
        if _unordered(found) != _unordered(self._allocations):
            self._allocations = found

    async def _list(self) -> bytes:
        try:
            return await self._machine.rpc(await self._socket(), self._method, b"")
        except Unreadable as error:
            if error.code != UNIMPLEMENTED or self._method == LIST_V1ALPHA1:
                self._method = LIST_V1
                raise
        self._method = LIST_V1ALPHA1
        return await self._machine.rpc(await self._socket(), self._method, b"")


def _unordered(allocations: Iterable[Allocation]) -> set[tuple[object, ...]]:
    """The same for the same devices: they too come in another order each time."""
    return {(a.namespace, a.pod, a.container, frozenset(a.ids), frozenset(a.claimed)) for a in allocations}


def _allocations(message: bytes) -> tuple[Allocation, ...]:
    pod = decode(message, POD_RESOURCES)
    return tuple(_given(pod))


def _given(pod: Mapping[str, Any]) -> Iterator[Allocation]:
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
