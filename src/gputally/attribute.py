"""Shares of one tick: what each GPU used and what each of its processes did; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gputally.model import Device, ProcessKey, Snapshot

SPARE_UJ = 200_000
CEILING = 1.5
"""A counter that ran more than this many times faster than the power limit allows is not believed."""


@dataclass(frozen=True)
class Base:
    """Where a GPU's energy counter stood when it was last read."""

    energy_uj: int | None
    read_at: float


@dataclass(frozen=True)
class Memory:
    """What one tick hands to the next."""

    bases: Mapping[str, Base] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuShare:
    """What a GPU used since its base; claimed, or set aside because the counter cannot be believed."""

    uuid: str
    energy_uj: int = 0
    discarded_uj: int = 0
    resets: int = 0
    activity_seconds: float | None = None


@dataclass(frozen=True)
class ProcessShare:
    """What a process did on a GPU; `key` is None where the process could not be read."""

    key: ProcessKey | None
    uuid: str
    busy_us: int


@dataclass(frozen=True)
class Shares:
    """All that one tick gives to the ledger."""

    gpus: tuple[GpuShare, ...] = ()
    processes: tuple[ProcessShare, ...] = ()


def attribute(now: Snapshot, memory: Memory) -> tuple[Shares, Memory]:
    """Shares since the memory was made; a GPU that was not read anew has none."""
    read = [d for d in now.devices if d.read_at is not None and _is_new(d, memory)]
    shares = Shares(
        gpus=tuple(_gpu(device, memory.bases.get(device.uuid)) for device in read),
        processes=tuple(share for device in read for share in _processes(device, now)),
    )
    bases = {d.uuid: _base(d, memory.bases.get(d.uuid)) for d in read}
    return shares, Memory({**memory.bases, **bases})


def _is_new(device: Device, memory: Memory) -> bool:
    base = memory.bases.get(device.uuid)
    return base is None or base.read_at != device.read_at


def _base(device: Device, before: Base | None) -> Base:
    """A counter that fell silent keeps its mark, so that nothing is lost when it speaks again."""
    assert device.read_at is not None
    if device.energy_uj is None and before is not None and before.energy_uj is not None:
        return Base(before.energy_uj, before.read_at)
    return Base(device.energy_uj, device.read_at)


def _gpu(device: Device, base: Base | None) -> GpuShare:
    share = GpuShare(device.uuid, activity_seconds=device.activity_seconds)
    if base is None or base.energy_uj is None or device.energy_uj is None or device.read_at is None:
        return share
    used = device.energy_uj - base.energy_uj
    if used < 0:
        return GpuShare(device.uuid, resets=1, activity_seconds=device.activity_seconds)
    if used > _most(device, device.read_at - base.read_at):
        return GpuShare(device.uuid, discarded_uj=used, activity_seconds=device.activity_seconds)
    return GpuShare(device.uuid, energy_uj=used, activity_seconds=device.activity_seconds)


def _most(device: Device, seconds: float) -> float:
    """The most a GPU can have used, by its power limit; no bound where it tells none."""
    limit = device.power_limit_max_watts or device.power_limit_watts
    return float("inf") if limit is None else CEILING * limit * seconds * 1e6 + SPARE_UJ


def _processes(device: Device, now: Snapshot) -> Iterable[ProcessShare]:
    for activity in device.activities or ():
        process = now.processes.get(activity.pid)
        busy_us = round(activity.sm_ratio * (device.activity_seconds or 0.0) * 1e6)
        yield ProcessShare(process.key if process else None, device.uuid, busy_us)
