"""How much each process of a GPU weighs in one tick, and how that is known; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputally.model import Device, Holder, Instance, Process, ProcessKey, Snapshot

Seat = tuple[ProcessKey, str]
"""A process, in a MIG instance (empty without MIG)."""


class Seating(NamedTuple):
    """Who holds a context on a GPU; true for as long as it lists the same and they are the same processes."""

    listed: tuple[Holder, ...] | None = None
    processes: Mapping[int, Process] | None = None
    holders: tuple[Seat, ...] = ()
    hidden: int = 0
    """Holders that could not be read."""
    whole: Mapping[int, Seat] = {}
    """pid -> its seat, of those who hold one outside any MIG instance."""


class Weighed(NamedTuple):
    """Everyone on one GPU in one tick."""

    weights: Mapping[Seat, int] = {}
    """Those who weigh something."""
    by: str = "nothing"
    """activity (samples of each), instance (MIG), alone, presence (they hold a context), nothing."""
    unknown: int = 0
    """Weight of processes that could not be read."""
    holders: tuple[Seat, ...] = ()
    busy_us: Mapping[Seat, int] = {}
    empty: bool = False
    """Surely nobody holds a context."""


def seat(device: Device, now: Snapshot, before: Seating) -> Seating:
    """Who holds a context; worked out anew only when somebody came, went or became somebody else."""
    if before.processes is now.processes and before.listed == device.holders:
        return before
    found = [(now.processes.get(holder.pid), holder.mig) for holder in device.holders or ()]
    holders = tuple(dict.fromkeys((process.key, mig) for process, mig in found if process is not None))
    hidden = sum(process is None for process, _ in found)
    whole = {seat[0].pid: seat for seat in holders if not seat[1]}
    return Seating(device.holders, now.processes, holders, hidden, whole)


def weigh(device: Device, now: Snapshot, seating: Seating) -> Weighed:
    """Weights by activity where it is known; else by MIG slices, or by presence alone."""
    holders, hidden = seating.holders, seating.hidden
    empty = device.holders == () and not device.activities
    if device.instances is not None:
        return _by_instance(device.instances, holders, hidden, empty)
    busy_us, unknown, others = _activity(device, now, seating)
    present = (*holders, *others) if others else holders
    if len(present) == 1 and not hidden and not unknown:
        return Weighed({present[0]: 1}, "alone", 0, present, busy_us)
    if busy_us or unknown:
        return Weighed(busy_us, "activity", unknown, present, busy_us)
    by = "presence" if present else "nothing"
    return Weighed(dict.fromkeys(present, 1), by, hidden, present, busy_us, empty)


def _activity(device: Device, now: Snapshot, seating: Seating) -> tuple[dict[Seat, int], int, list[Seat]]:
    """Busy microseconds of each process, of those that could not be read together, and who is not listed."""
    if not device.activities:
        return {}, 0, []
    whole = seating.whole
    pids, _, ratios, *_ = zip(*device.activities, strict=True)
    scale = (device.activity_seconds or 0.0) * 1e6
    times = [round(ratio * scale) for ratio in ratios]
    busy = dict(zip([whole[pid] for pid in pids if pid in whole], times, strict=False))
    if len(busy) == len(times) and 0 not in times:  # everybody is known, and told of once
        return busy, 0, []
    busy.clear()
    others: list[Seat] = []
    unknown = 0
    for pid, busy_us in zip(pids, times, strict=True):
        if not busy_us:
            continue
        seat = whole.get(pid)
        if seat is None:
            process = now.processes.get(pid)
            if process is None:
                unknown += busy_us
                continue
            seat = (process.key, "")
            if seat not in busy:
                others.append(seat)
        busy[seat] = busy.get(seat, 0) + busy_us
    return busy, unknown, others


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
