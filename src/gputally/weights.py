"""How much each process of a GPU weighs in one tick, and how that is known; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputally.model import Device, Instance, ProcessKey, Snapshot

Seat = tuple[ProcessKey, str]
"""A process, in a MIG instance (empty without MIG)."""


@dataclass(frozen=True)
class Weighed:
    """Everyone on one GPU in one tick."""

    weights: Mapping[Seat, int] = field(default_factory=dict)
    """Those who weigh something."""
    by: str = "nothing"
    """activity (samples of each), instance (MIG), alone, presence (they hold a context), nothing."""
    unknown: int = 0
    """Weight of processes that could not be read."""
    holders: tuple[Seat, ...] = ()
    busy_us: Mapping[Seat, int] = field(default_factory=dict)
    empty: bool = False
    """Surely nobody holds a context."""


def weigh(device: Device, now: Snapshot) -> Weighed:
    """Weights by activity where it is known; else by MIG slices, or by presence alone."""
    found = [(now.processes.get(holder.pid), holder.mig) for holder in device.holders or ()]
    holders = tuple([(process.key, mig) for process, mig in found if process is not None])
    hidden = len(found) - len(holders)
    empty = device.holders == () and not device.activities
    if device.instances is not None:
        return _by_instance(device.instances, holders, hidden, empty)
    busy_us, unknown = _activity(device, now)
    present = tuple(dict.fromkeys((*holders, *busy_us)))
    if len(present) == 1 and not hidden and not unknown:
        return Weighed({present[0]: 1}, "alone", 0, present, busy_us)
    if busy_us or unknown:
        return Weighed(busy_us, "activity", unknown, present, busy_us)
    by = "presence" if present else "nothing"
    return Weighed(dict.fromkeys(present, 1), by, hidden, present, busy_us, empty)


def _activity(device: Device, now: Snapshot) -> tuple[dict[Seat, int], int]:
    """Busy microseconds of each process, and of those that could not be read together."""
    busy: dict[Seat, int] = {}
    unknown = 0
    scale = (device.activity_seconds or 0.0) * 1e6
    processes = now.processes
    for activity in device.activities or ():
        process = processes.get(activity.pid)
        busy_us = round(activity.sm_ratio * scale)
        if process is None:
            unknown += busy_us
        elif busy_us:
            seat = (process.key, "")
            busy[seat] = busy.get(seat, 0) + busy_us
    return busy, unknown


def _by_instance(
    instances: tuple[Instance, ...], holders: tuple[Seat, ...], hidden: int, empty: bool
) -> Weighed:
    """An instance weighs its activity x its slices, or its slices alone; its processes share that equally."""
    if len(holders) == 1 and not hidden:
        return Weighed({holders[0]: 1}, "alone", 0, holders)
    members: dict[str, list[Seat]] = {}
    for seat in holders:
        members.setdefault(seat[1], []).append(seat)
    slices = {i.uuid: i.slices or 1 for i in instances}
    active = {i.uuid: i.utilization_ratio for i in instances}
    known = all(active.get(mig) is not None for mig in members) and any(active.get(mig) for mig in members)
    weights = {
        seat: round(1e6 * slices.get(mig, 1) * ((active[mig] or 0.0) if known else 1.0) / len(seats))
        for mig, seats in members.items()
        for seat in seats
    }
    weights = {seat: weight for seat, weight in weights.items() if weight}
    return Weighed(weights, "instance" if weights else "nothing", hidden, holders, {}, empty)
