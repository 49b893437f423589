"""What a whole GPU used since it was last read: the hardware's counter where it can be believed; pure."""

from __future__ import annotations

from typing import NamedTuple

from gputally.model import Device

CEILING = 1.5
SPARE_UJ = 200_000
"""More than CEILING x the power limit x the time + SPARE_UJ is not believed of a counter."""
STILL_FOR = 5.0
"""Seconds after which a counter that stands still while power flows counts as frozen."""


class Meter(NamedTuple):
    """Where a GPU's energy counter stood when it was last read."""

    read_at: float
    epoch: int
    partitioned: bool
    energy_uj: int | None
    moved_at: float
    integrating: bool = False
    """The counter is frozen or absent, and power stands in for it."""


class Used(NamedTuple):
    """What a GPU used; claimed, or set aside because the counter cannot be believed."""

    seconds: float = 0.0
    energy_uj: int = 0
    discarded_uj: int = 0
    resets: int = 0
    relaid: bool = False
    """Its MIG layout changed in this time, so nobody can say whose it was."""
    integrated: bool = False


def start(device: Device) -> Meter:
    """A first reading, from which the next one is counted."""
    assert device.read_at is not None
    return Meter(
        read_at=device.read_at,
        epoch=device.epoch,
        partitioned=device.instances is not None,
        energy_uj=device.energy_uj,
        moved_at=device.read_at,
        integrating=device.energy_uj is None,
    )


def read(device: Device, before: Meter) -> tuple[Used, Meter]:
    """What was used since the meter was read, and the meter as it stands now."""
    after = start(device)
    seconds = after.read_at - before.read_at
    if before.integrating and device.energy_uj == before.energy_uj:
        return _integrate(device, seconds), before._replace(read_at=after.read_at, epoch=after.epoch)
    if before.integrating or before.energy_uj is None:
        return Used(seconds), after  # it moves again: what it says of the time before was integrated
    if device.energy_uj is None or device.energy_uj == before.energy_uj:
        return _still(device, before, after)
    return _count(device, before, after), after


def _count(device: Device, before: Meter, after: Meter) -> Used:
    assert device.energy_uj is not None
    assert before.energy_uj is not None
    used, seconds = device.energy_uj - before.energy_uj, after.read_at - before.read_at
    relaid = after.epoch != before.epoch and (after.partitioned or before.partitioned)
    if used < 0 or (after.epoch != before.epoch and not relaid):
        return Used(seconds, resets=1)
    if used > _most(device, seconds):
        return Used(seconds, discarded_uj=used)
    return Used(seconds, used, relaid=relaid)


def _still(device: Device, before: Meter, after: Meter) -> tuple[Used, Meter]:
    """A counter that stands still; it keeps its mark, so nothing is lost should it go on."""
    frozen = after.read_at - before.moved_at >= STILL_FOR and bool(device.power_watts)
    if frozen:
        seconds = after.read_at - before.read_at
        return _integrate(device, seconds), before._replace(read_at=after.read_at, integrating=True)
    if device.energy_uj is None:
        return Used(), before
    # Standing still is a reading too: nothing was used.
    return Used(after.read_at - before.read_at), before._replace(read_at=after.read_at)


def _integrate(device: Device, seconds: float) -> Used:
    if device.power_watts is None or seconds <= 0:
        return Used(seconds, integrated=True)
    return Used(seconds, round(device.power_watts * seconds * 1e6), integrated=True)


def _most(device: Device, seconds: float) -> float:
    """The most a GPU can have used, by its power limit; no bound where it tells none."""
    limit = device.power_limit_max_watts or device.power_limit_watts
    return float("inf") if limit is None else CEILING * limit * seconds * 1e6 + SPARE_UJ
