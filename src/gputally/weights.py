"""How much each process of a GPU weighs in one tick, and how that is known; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gputally.model import Device, Instance, ProcessKey, Snapshot


@dataclass(frozen=True)
class Part:
    """A process that weighs something."""

    key: ProcessKey
    mig: str
    weight: int


@dataclass(frozen=True)
class Weighed:
    """Everyone on one GPU in one tick."""

    parts: tuple[Part, ...] = ()
    by: str = "nothing"
    """activity (samples of each), instance (MIG), alone, presence (they hold a context), nothing."""
    unknown: int = 0
    """Weight of processes that could not be read."""
    holders: tuple[tuple[ProcessKey, str], ...] = ()
    busy: tuple[tuple[ProcessKey, str, int], ...] = ()
    empty: bool = False
    """Surely nobody holds a context."""


def weigh(device: Device, now: Snapshot) -> Weighed:
    """Weights by activity where it is known; else by MIG slices, or by presence alone."""
    holders, hidden = _holders(device, now)
    empty = device.holders == () and not device.activities
    if device.instances is not None:
        return _by_instance(device, device.instances, holders, hidden, empty)
    busy, unknown = _activity(device, now)
    present = (*holders, *((key, "") for key, _ in busy if (key, "") not in holders))
    told = tuple((key, "", busy_us) for key, busy_us in busy)
    if len(present) == 1 and not hidden and not unknown:
        return Weighed((Part(*present[0], 1),), "alone", 0, present, told)
    if busy or unknown:
        parts = tuple(Part(key, "", busy_us) for key, busy_us in busy)
        return Weighed(parts, "activity", unknown, present, told)
    parts = tuple(Part(key, mig, 1) for key, mig in present)
    return Weighed(parts, "presence" if parts else "nothing", hidden, present, told, empty)


def _holders(device: Device, now: Snapshot) -> tuple[tuple[tuple[ProcessKey, str], ...], int]:
    """Processes that hold a context, and how many of them could not be read."""
    found = [(now.processes.get(h.pid), h.mig) for h in device.holders or ()]
    return tuple((p.key, mig) for p, mig in found if p is not None), sum(p is None for p, _ in found)


def _activity(device: Device, now: Snapshot) -> tuple[list[tuple[ProcessKey, int]], int]:
    """Busy microseconds of each process, and of those that could not be read together."""
    busy: dict[ProcessKey, int] = {}
    unknown = 0
    scale = (device.activity_seconds or 0.0) * 1e6
    for activity in device.activities or ():
        process = now.processes.get(activity.pid)
        busy_us = round(activity.sm_ratio * scale)
        if process is None:
            unknown += busy_us
        elif busy_us:
            busy[process.key] = busy.get(process.key, 0) + busy_us
    return list(busy.items()), unknown


def _by_instance(
    device: Device,
    instances: tuple[Instance, ...],
    holders: tuple[tuple[ProcessKey, str], ...],
    hidden: int,
    empty: bool,
) -> Weighed:
    """An instance weighs its activity x its slices, or its slices alone; its processes share that equally."""
    if len(holders) == 1 and not hidden:
        return Weighed((Part(*holders[0], 1),), "alone", 0, holders)
    members: dict[str, list[ProcessKey]] = {}
    for key, mig in holders:
        members.setdefault(mig, []).append(key)
    slices = {i.uuid: i.slices or 1 for i in instances}
    active = {i.uuid: i.utilization_ratio for i in instances}
    known = all(active.get(mig) is not None for mig in members) and any(active.get(mig) for mig in members)
    parts = tuple(
        Part(key, mig, round(1e6 * slices.get(mig, 1) * ((active[mig] or 0.0) if known else 1.0) / len(keys)))
        for mig, keys in members.items()
        for key in keys
    )
    parts = tuple(part for part in parts if part.weight)
    return Weighed(parts, "instance" if parts else "nothing", hidden, holders, (), empty)
