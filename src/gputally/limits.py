"""What workloads may use, GPUs and their memory, by whoever says so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gputally.machine.masks import HAMI
from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Owner, Snapshot
from gputally.tally import Limit, Use

Place = tuple[Owner, str, str]


def held(snapshot: Snapshot) -> list[Place]:
    """(owner, GPU, MIG instance) of everybody who holds a context and whom we can name."""
    found = set()
    for device in snapshot.devices:
        for holder in device.holders or ():
            process = snapshot.processes.get(holder.pid)
            owner = UNKNOWN if process is None else snapshot.owners[process.key]
            if owner not in (PENDING, UNNAMED, UNKNOWN):
                found.add((owner, device.uuid, holder.mig))
    return sorted(found, key=lambda use: (use[1], use[2], tuple(use[0])))


class Rights:
    """Uses and limits; worked out anew only when something changed that they are made of."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._rights: tuple[tuple[Use, ...], tuple[Limit, ...]] = ((), ())

    def read(
        self, snapshot: Snapshot, fresh: Mapping[str, Device], there: Mapping[Place, Any]
    ) -> tuple[tuple[Use, ...], tuple[Limit, ...]]:
        """With those who are there, where GPUs answer."""
        indexes = {device.uuid: device.index for device in snapshot.devices}
        sizes = {uuid: (device.memory_total_bytes, device.instances) for uuid, device in fresh.items()}
        of = (snapshot.grants, snapshot.details, snapshot.vgpu_ratio, there, indexes, sizes)
        if of != self._of:
            self._of, self._rights = of, (tuple(uses(snapshot)), limits(snapshot, fresh))
        return self._rights


def uses(snapshot: Snapshot) -> Iterator[Use]:
    """Every grant, and every use without one; an init container may use what its pod will have."""
    if snapshot.grants is None:
        return
    indexes = {device.uuid: device.index for device in snapshot.devices}
    for grant in snapshot.grants:
        if grant.uuid in indexes:
            yield Use(grant.owner, indexes[grant.uuid], grant.uuid, grant.mig, granted=True)
    granted = {(g.owner.namespace, g.owner.pod, g.uuid, g.mig) for g in snapshot.grants}
    for owner, uuid, mig in held(snapshot):
        pod = (owner.namespace, owner.pod)
        # Who was given a device that we do not know may well be using just that one.
        if (*pod, uuid, mig) not in granted and (*pod, "", "") not in granted:
            yield Use(owner, indexes[uuid], uuid, mig, granted=False)


def limits(snapshot: Snapshot, fresh: Mapping[str, Device]) -> tuple[Limit, ...]:
    """Limits of everybody who was granted a GPU or is on one, each by its method."""
    granted = dict.fromkeys((grant.owner, grant.uuid, grant.mig) for grant in snapshot.grants or ())
    if not granted and not _told(snapshot, fresh):
        return ()
    sharers = Counter((uuid, mig) for _, uuid, mig in granted)
    found = []
    for place in dict.fromkeys((*granted, *held(snapshot))):
        owner, uuid, mig = place
        device = fresh.get(uuid)
        if device is None:
            continue
        shared = sharers[uuid, mig] if place in granted else 0
        methods = _of_instance(device, mig) if mig else _of_gpu(device, owner, shared, snapshot)
        found += [Limit(owner, device.index, uuid, mig, method, limit) for method, limit in methods]
    return tuple(found)


def _told(snapshot: Snapshot, fresh: Mapping[str, Device]) -> bool:
    """Whether anybody says how much those who were granted nothing may use."""
    return (
        snapshot.vgpu_ratio is not None
        or any(device.instances for device in fresh.values())
        or any(HAMI in detail.annotations for detail in snapshot.details.values())
    )


def _of_instance(device: Device, mig: str) -> Iterator[tuple[str, int]]:
    for instance in device.instances or ():
        if instance.uuid == mig and instance.memory_total_bytes is not None:
            yield "mig", instance.memory_total_bytes


def _of_gpu(device: Device, owner: Owner, shared: int, snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    total = device.memory_total_bytes
    detail = snapshot.details.get(owner)
    noted = hami_bytes(detail.annotations.get(HAMI, ""), device.uuid) if detail is not None else None
    if noted is not None:
        yield "hami", noted
    if total is None or device.instances is not None:
        return
    if snapshot.vgpu_ratio is not None:
        yield "ratio", round(total / snapshot.vgpu_ratio)
    if shared > 1 and noted is None:
        yield "replicas", total // shared


def hami_bytes(note: str, uuid: str) -> int | None:
    """What the note allows on this GPU; None where it says nothing of it, or different things.

    It lists containers without their names, so of containers that differ nobody can say which is which.
    """
    if not note:
        return None
    said = set()
    for container in note[:65_536].split(";"):
        mebibytes = [_mebibytes(device, uuid) for device in container.split(":")]
        if any(mebibytes):
            said.add(sum(mebibytes))
    return said.pop() * 2**20 if len(said) == 1 else None


def _mebibytes(device: str, uuid: str) -> int:
    match = re.fullmatch(r"([^,\[]+)(?:\[[^,]*\])?,[^,]*,(\d{1,9}),\d{1,9}", device.strip(), re.ASCII)
    return int(match[2]) if match and match[1] == uuid else 0
