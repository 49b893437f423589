"""The container runtime's own list; its socket is as good as root, so it is asked only where wanted."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gputally.machine import Machine
from gputally.machine.messages import CRI_CONTAINERS, CRI_SANDBOXES, LIST_CONTAINERS, LIST_SANDBOXES
from gputally.machine.wire import as_mapping, decode
from gputally.owners.inquiry import pause
from gputally.owners.pods import Pod, Pods
from gputally.owners.runtime_socket import Endpoint

EVERY = 15.0
LEAST = 2.0


class Find(Protocol):
    """Tells where the runtime listens; `again` if there was no answer where it was found before."""

    async def __call__(self, *, again: bool = False) -> Endpoint:
        """The socket, or Unreadable."""


def named(socket: str) -> Find:
    """A socket that the settings name."""

    async def found(*, again: bool = False) -> Endpoint:
        return Endpoint(socket, "--cri.socket")

    return found


_UID, _CONTAINER = "io.kubernetes.pod.uid", "io.kubernetes.container.name"


class Cri:
    """Holds pods and containers as the runtime labelled them; pod labels are on the sandbox."""

    name = "cri"
    tells_workload = False

    def __init__(self, machine: Machine, find: Find) -> None:
        self._machine = machine
        self._find = find
        self._failed = False
        self.place = ""
        self.pods = Pods()

    async def ask(self) -> None:
        """List containers and sandboxes; after a failure the socket may be another one."""
        again, self._failed = self._failed, True
        found = await self._find(again=again)
        self.place = str(found)
        containers = decode(await self._machine.rpc(found.socket, LIST_CONTAINERS, b""), CRI_CONTAINERS)
        sandboxes = decode(await self._machine.rpc(found.socket, LIST_SANDBOXES, b""), CRI_SANDBOXES)
        names: dict[str, dict[str, str]] = {}
        for container in containers["containers"]:
            labels = as_mapping(container["labels"])
            names.setdefault(labels.get(_UID, ""), {})[container["id"]] = labels.get(_CONTAINER, "")
        pods = []
        for sandbox in sandboxes["items"]:
            meta, labels = sandbox["metadata"], as_mapping(sandbox["labels"])
            own = {key: value for key, value in labels.items() if not key.startswith("io.kubernetes.")}
            # The pause process has the sandbox's id: of the pod, of no container.
            ids = names.get(meta["uid"], {}) | {sandbox["id"]: ""}
            pods.append(Pod(meta["uid"], meta["namespace"], meta["name"], ids, labels=own))
        self.pods = self.pods.renewed(pods)
        self._failed = False

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait for the next time."""
        await pause(EVERY, hurry, LEAST)
