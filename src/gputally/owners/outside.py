"""Everybody outside who names owners or grants devices to them, started and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gputally.counted import NO_LOSSES
from gputally.machine.masks import ALLOCATIONS
from gputally.model import (
    PENDING,
    UNKNOWN,
    UNNAMED,
    Detail,
    Device,
    Grant,
    Health,
    Losses,
    Owner,
    Process,
    ProcessKey,
)
from gputally.owners.cgroup import parse
from gputally.owners.docker import ContainerNames
from gputally.owners.grants import Grants
from gputally.owners.host import Identify
from gputally.owners.identity import Identity
from gputally.owners.inquiry import Inquiry
from gputally.owners.names import PodNames


@dataclass(frozen=True)
class Shown:
    """What of a pod is shown on its info row."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    node: str = ""


NOTHING_MORE = Shown()


class Outside:
    """Names processes by what the parties last answered; never waits for them."""

    name = "outside"

    def __init__(
        self,
        identify: Identify = parse,
        inquiries: Sequence[Inquiry] = (),
        pods: PodNames | None = None,
        grants: Grants | None = None,
        engines: Sequence[ContainerNames] = (),
        shown: Shown = NOTHING_MORE,
        granting: Inquiry | None = None,
    ) -> None:
        self._identify = identify
        self._inquiries = inquiries
        self._pods = pods
        self._grants = grants
        self._engines = engines
        self._shown = shown
        self._granting = granting
        self.grants: tuple[Grant, ...] | None = None
        self.details: Mapping[Owner, Detail] = {}
        self._told: tuple[object, ...] = ()
        self._grounds: tuple[object, ...] = ()
        """What the newest details follow from."""
        self._known: dict[str, Detail] = {}
        """Of each cgroup, as long as the parties tell the same."""

    def start(self) -> None:
        """Let every party be asked from now on."""
        for inquiry in self._inquiries:
            inquiry.start()

    async def stop(self) -> None:
        """Ask nobody any more."""
        await asyncio.gather(*(inquiry.stop() for inquiry in self._inquiries))

    async def refresh(self) -> None:
        """Ask everybody once, for commands that look only once."""
        await asyncio.gather(*(inquiry.only() for inquiry in self._inquiries))

    def hurry(self) -> None:
        """Somebody has no name yet."""
        for inquiry in self._inquiries:
            inquiry.hurry()

    def health(self) -> tuple[Health, ...]:
        """How each party is."""
        told = [inquiry.health for inquiry in self._inquiries]
        return tuple([health for health in told if health is not None])

    def refine(self, process: Process, owner: Owner) -> Owner:
        """The owner under the names that the parties give it."""
        identity = self._identify(process.cgroup)
        if identity.conflict or owner is PENDING:
            return owner
        if identity.kind == "pod":
            return owner if self._pods is None else self._pods.name(identity)
        named = (engine.named(identity, owner) for engine in self._engines)
        return next((better for better in named if better is not None), owner)

    def look(
        self, devices: Sequence[Device], processes: Mapping[int, Process], owners: Mapping[ProcessKey, Owner]
    ) -> None:
        """Who was granted what, and what more is known of everybody: put together anew where that changed."""

        def users() -> set[tuple[Owner, str]]:
            held = [(device.uuid, holder.pid) for device in devices for holder in device.holders or ()]
            return {(owners[processes[pid].key], uuid) for uuid, pid in held if pid in processes}

        self.grants = None if self._grants is None else self._grants.read(devices, users)
        told = () if self._pods is None else self._pods.state
        if told != self._told:
            self._told, self._known = told, {}
            if self._granting is not None:  # with pods that come and go, what they were given does
                self._granting.hurry()
        grounds = (processes, owners, self.grants, told)
        if grounds != self._grounds:
            self._grounds = grounds
            self.details = self._details(processes.values(), owners)

    def _details(
        self, processes: Collection[Process], owners: Mapping[ProcessKey, Owner]
    ) -> dict[Owner, Detail]:
        """More about owners of processes, by the youngest of each, and about those with grants."""
        before, self._known = self._known, {}
        found: dict[Owner, Detail] = {}
        for process in sorted(processes, key=lambda process: process.key.start):
            identity, owner = self._identify(process.cgroup), owners[process.key]
            if identity.container_id is not None and owner not in (PENDING, UNNAMED, UNKNOWN):
                detail = before.get(process.cgroup) or self._detail(identity)
                found[owner] = self._known[process.cgroup] = detail
        for grant in self.grants or ():
            if grant.owner not in found and (detail_of := self._detail_of(grant.owner)) is not None:
                found[grant.owner] = detail_of
        return found

    def losses(self) -> Losses:
        """What could not be understood since the question before."""
        losses = {} if self._grants is None else self._grants.losses()
        return Losses(losses) if losses else NO_LOSSES

    def _detail(self, identity: Identity) -> Detail:
        if identity.within is not None:  # its uid and id may be a pod's of ours, whose row they would join
            return Detail()
        found = None if self._pods is None or identity.kind != "pod" else self._pods.find(identity)
        uid, container = identity.pod_uid or "", identity.container_id or ""
        node = self._shown.node if identity.kind == "pod" else ""
        if found is None:
            return Detail(uid, container, node=node)
        whole = found.whole or found.pod
        labels = {key: whole.labels.get(key, "") for key in self._shown.labels}
        notes = {key: whole.annotations.get(key, "") for key in self._shown.annotations}
        notes |= {key: whole.annotations[key] for key in ALLOCATIONS if key in whole.annotations}
        return Detail(found.uid, container, labels, notes, node)

    def _detail_of(self, owner: Owner) -> Detail | None:
        pod = None if self._pods is None else self._pods.pod(owner.namespace, owner.pod)
        if pod is None:
            return None
        number = next((key for key, name in pod.containers.items() if name == owner.container), None)
        return self._detail(Identity("pod", pod.alias or pod.uid, number))
