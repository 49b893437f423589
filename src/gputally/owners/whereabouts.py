"""Where the kubelet of this node keeps its things, and where its runtime listens, by its own command line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.owners.runtime_socket import FLAGS, Endpoint, endpoint, flags_of

log = logging.getLogger(__name__)

KUBELETS = ("kubelet", "kubelite", "k3s-agent", "k3s-server", "k3s", "rke2", "k0s")
"""The best first: RKE2 and k0s run a kubelet of its own name beside themselves."""
ROOTS = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/data/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
)
DEADLINE = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 600.0
"""Seconds between two looks for what was not there, twice as many each time: each walks through /proc."""


@dataclass(frozen=True)
class _Seen:
    """What one look saw."""

    root: str
    is_told: bool
    """By a kubelet's command line; else the folder is a guess."""
    runtime: Endpoint | None = None
    why: str = ""
    """Why there is no runtime."""


class Kubelet:
    """Looks in a lane, since some of it is on disks; what the kubelet told is not looked for again."""

    def __init__(
        self, machine: Machine, root: str = "", *, find_runtime: bool = False, deadline: float = DEADLINE
    ) -> None:
        self._machine = machine
        self._given = root.rstrip("/")
        self._find_runtime = find_runtime
        self._deadline = deadline
        self._lane = Lane("kubelet")
        self._turn = asyncio.Lock()
        self._seen: _Seen | None = None
        self._look_at = 0.0
        self._pause = FIRST_PAUSE

    @property
    def is_there(self) -> bool:
        """A kubelet runs here, or was said to, as far as anybody has looked."""
        return bool(self._given or (self._seen and self._seen.root))

    async def root(self) -> str:
        """Its folder."""
        if self._given:
            return self._given
        try:
            seen = await self._look(again=self._seen is not None and not self._seen.is_told)
        except Unreadable:
            if self._seen is None:
                raise
            seen = self._seen  # a guess is better than nothing
        return seen.root or ROOTS[0]

    async def runtime(self, *, again: bool = False) -> Endpoint:
        """Where its runtime listens; `again` if there was no answer where it was found."""
        seen = await self._look(again=again or self._seen is None or self._seen.runtime is None)
        if seen.runtime is None:
            raise Unreadable(seen.why)
        return seen.runtime

    async def _look(self, *, again: bool) -> _Seen:
        """What was seen, by a new look where one is wanted and due."""
        async with self._turn:
            now = self._machine.clock.monotonic()
            if self._seen is None or (again and now >= self._look_at):
                self._look_at, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)
                before, self._seen = self._seen, await self._lane.ask(self._see, self._deadline)
                self._log(before)
            return self._seen

    def _see(self) -> _Seen:
        found: Mapping[str, str] | None = None
        with suppress(Unreadable):
            found = flags_of(self._machine, self._machine.flags(KUBELETS, FLAGS))
        root = self._root(found)
        if not self._find_runtime:
            return _Seen(root, found is not None)
        try:
            return _Seen(root, found is not None, endpoint(self._machine, found or {}))
        except Unreadable as error:
            return _Seen(root, found is not None, why=str(error))

    def _root(self, flags: Mapping[str, str] | None) -> str:
        if flags and flags.get("root-dir"):
            return flags["root-dir"].rstrip("/")
        for root in ROOTS:
            try:
                self._machine.folder(f"{root}/pod-resources")
            except Unreadable:
                continue
            return root
        return "" if flags is None else ROOTS[0]

    def _log(self, before: _Seen | None) -> None:
        runtime = None if self._seen is None else self._seen.runtime
        if runtime is not None and (before is None or before.runtime != runtime):
            log.info("the container runtime is at %s", runtime)
