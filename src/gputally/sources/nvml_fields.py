"""What NVML is asked about a GPU: one row per call, converted to base units here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputally.model import Pace

Values = dict[str, Any]
"""Attributes of a Device (or of its DeviceInfo, for rows read once)."""

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
}

THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}

_BLANKS = (2**32 - 1, 2**64 - 1)


@dataclass(frozen=True)
class Field:
    """One question to a GPU; the first of `calls` that its driver knows is the one asked."""

    pace: Pace
    calls: tuple[tuple[Any, ...], ...]
    values: Callable[[Any], Values]


def _field(pace: Pace, values: Callable[[Any], Values], *calls: tuple[Any, ...] | str) -> Field:
    return Field(pace, tuple((call,) if isinstance(call, str) else call for call in calls), values)


def number(raw: Any, scale: float = 1) -> Any:
    """The number in base units; NVML's marks for 'not available' are no numbers."""
    if raw is None or raw in _BLANKS:
        return None
    return raw if scale == 1 else raw * scale


def ratio(percent: Any) -> float | None:
    """A percentage as a ratio; more than all is no reading."""
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def _named(name: str, scale: float = 1) -> Callable[[Any], Values]:
    return lambda raw: {name: number(raw, scale)}


def _entry(name: str, key: str, scale: int = 1) -> Callable[[Any], Values]:
    return lambda raw: {name: {} if number(raw) is None else {key: raw * scale}}


def _text(name: str) -> Callable[[Any], Values]:
    return lambda raw: {name: str(raw).strip() or None}


def _memory(raw: Any) -> Values:
    return {f"memory_{part}_bytes": number(raw.get(part)) for part in ("total", "used", "free", "reserved")}


def _utilization(raw: Any) -> Values:
    return {"utilization_ratio": ratio(raw["gpu"]), "memory_utilization_ratio": ratio(raw["memory"])}


def _throttle(raw: Any) -> Values:
    return {"throttle_active": {name: bool(raw & bit) for bit, name in THROTTLE_REASONS.items()}}


def _architecture(raw: Any) -> Values:
    return {"architecture": ARCHITECTURES.get(raw)}


_CLOCKS = (("graphics", 0), ("sm", 1), ("memory", 2), ("video", 3))

ENERGY = _field(
    Pace.TICK,
    lambda raw: {"energy_uj": None if number(raw) is None else raw * 1000},
    "nvmlDeviceGetTotalEnergyConsumption",
)

INFO = (
    _field(Pace.ONCE, _text("model"), "nvmlDeviceGetName"),
    _field(Pace.ONCE, _architecture, "nvmlDeviceGetArchitecture"),
    _field(Pace.ONCE, lambda raw: {"pci_bus_id": raw["busId"]}, "nvmlDeviceGetPciInfo"),
    _field(Pace.ONCE, _text("serial"), "nvmlDeviceGetSerial"),
    _field(Pace.ONCE, _text("vbios_version"), "nvmlDeviceGetVbiosVersion"),
    _field(
        Pace.ONCE,
        lambda raw: {"compute_capability": f"{raw[0]}.{raw[1]}"},
        "nvmlDeviceGetCudaComputeCapability",
    ),
    _field(Pace.ONCE, _text("minor_number"), "nvmlDeviceGetMinorNumber"),
)

GAUGES = (
    _field(Pace.INTERVAL, _memory, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
    _field(Pace.INTERVAL, _utilization, "nvmlDeviceGetUtilizationRates"),
    _field(
        Pace.INTERVAL,
        lambda raw: {"encoder_utilization_ratio": ratio(raw[0])},
        "nvmlDeviceGetEncoderUtilization",
    ),
    _field(
        Pace.INTERVAL,
        lambda raw: {"decoder_utilization_ratio": ratio(raw[0])},
        "nvmlDeviceGetDecoderUtilization",
    ),
    _field(Pace.INTERVAL, _named("power_watts", 1e-3), "nvmlDeviceGetPowerUsage"),
    _field(Pace.INTERVAL, _named("power_limit_watts", 1e-3), "nvmlDeviceGetEnforcedPowerLimit"),
    _field(
        Pace.INTERVAL,
        lambda raw: {"power_limit_max_watts": number(raw[1], 1e-3)},
        "nvmlDeviceGetPowerManagementLimitConstraints",
    ),
    _field(Pace.INTERVAL, _entry("temperature_celsius", "gpu"), ("nvmlDeviceGetTemperature", 0)),
    *(
        _field(Pace.INTERVAL, _entry("clock_hertz", name, 1_000_000), ("nvmlDeviceGetClockInfo", clock))
        for name, clock in _CLOCKS
    ),
    *(
        _field(
            Pace.INTERVAL, _entry("clock_max_hertz", name, 1_000_000), ("nvmlDeviceGetMaxClockInfo", clock)
        )
        for name, clock in _CLOCKS
    ),
    _field(
        Pace.INTERVAL,
        lambda raw: {"performance_state": raw if 0 <= raw <= 15 else None},
        "nvmlDeviceGetPerformanceState",
    ),
    _field(
        Pace.INTERVAL,
        _throttle,
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
    _field(Pace.INTERVAL, lambda raw: {"fan_speed_ratio": ratio(raw)}, "nvmlDeviceGetFanSpeed"),
    _field(Pace.INTERVAL, lambda raw: {"accounting_mode": bool(raw)}, "nvmlDeviceGetAccountingMode"),
)

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)

SAMPLES = "nvmlDeviceGetProcessUtilization"
