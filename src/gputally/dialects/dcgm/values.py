"""Numbers of DCGM fields, in DCGM's units, from what is known of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputally.dialects.parties import Row

Value = Callable[[Row], float | int | None]
NS = 1_000_000_000


def mib(size: int | None) -> int | None:
    """Whole MiB."""
    return None if size is None else size >> 20


def percent(ratio: float | None) -> int | None:
    """Whole percent."""
    return None if ratio is None else round(100 * ratio)


def watts(row: Row) -> float | None:
    """The row's part of the GPU's power."""
    power = row.device.power_watts
    return None if power is None or row.power_ratio is None else round(power * row.power_ratio, 6)


def millijoules(row: Row) -> int | None:
    """The row's part of the GPU's energy."""
    return None if row.energy_uj is None else row.energy_uj // 1000


def last_xid(row: Row) -> int | None:
    """The number of the newest Xid; 0 while there was none."""
    xids = row.device.xids
    return max(xids, key=lambda number: xids[number].last_time) if xids else 0


def memory(name: str) -> Value:
    """Memory of the MIG instance, or of the whole GPU."""
    return reading(lambda row: mib(getattr(row.instance or row.device, f"memory_{name}_bytes")))


def utilization(name: str) -> Value:
    """Whole percent of time in which a part of the GPU was busy."""
    return reading(lambda row: percent(getattr(row.device, f"{name}_ratio")))


def clock(name: str) -> Value:
    """A clock, in MHz."""
    return reading(lambda row: _scaled(row.device.clock_hertz.get(name), 1_000_000))


def temperature(sensor: str) -> Value:
    """What a sensor says, in whole degrees Celsius."""
    return reading(lambda row: _whole(row.device.temperature_celsius.get(sensor)))


def violation(reason: str) -> Value:
    """Time for which clocks were held down, in nanoseconds."""
    return reading(lambda row: _times(row.device.counters.throttle_seconds.get(reason), NS))


def ecc(kind: str, scope: str) -> Value:
    """ECC errors of one kind."""
    return reading(lambda row: row.device.counters.ecc_errors.get((kind, scope)))


def nvlink_errors(error: str) -> Value:
    """NVLink errors of one kind."""
    return reading(lambda row: row.device.counters.nvlink_errors.get(error))


def remapped(cause: str) -> Value:
    """Rows of memory that were remapped for one cause."""
    return reading(lambda row: row.device.remapped_rows.get(cause))


def nvlink_megabytes(row: Row) -> int | None:
    """Traffic of all links in both directions, in MB as DCGM counts it."""
    told = row.device.counters.nvlink_bytes
    return sum(told.values()) // 1_000_000 if told else None


def profiled(field: int) -> Value:
    """A field that only DCGM can tell."""
    return reading(lambda row: _dcgm(row).get(field))


def _dcgm(row: Row) -> Mapping[int, float]:
    told: Mapping[int, float] = getattr(row.device, "dcgm_fields", {})
    return told


def reading(value: Callable[[Row], Any]) -> Value:
    """A reading of the hardware: on every row but that of what belongs to nobody."""
    return lambda row: None if row.is_rest else value(row)


def _scaled(number: int | None, unit: int) -> int | None:
    return None if number is None else number // unit


def _times(number: float | None, unit: int) -> int | None:
    return None if number is None else round(number * unit)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
