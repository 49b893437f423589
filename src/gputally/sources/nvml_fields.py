"""What NVML is asked about a GPU: one row per call, converted to base units here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Values = dict[str, Any]
"""Attributes of a Device (or of its DeviceInfo, for rows of INFO)."""

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

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}

MODULES = ("GH200", "GB200", "GB300", "GB10")
"""Names of boards whose energy counter counts CPU and memory of the module too."""

_BLANKS = (2**32 - 1, 2**64 - 1)


@dataclass(frozen=True, eq=False)
class Field:
    """One question to a GPU; the first of `calls` that its driver knows is the one asked."""

    calls: tuple[tuple[Any, ...], ...]
    values: Callable[[Any], Values]
    slow: bool = False
    """What it tells hardly ever changes: asked seldom, and kept meanwhile."""


@dataclass(frozen=True, eq=False)
class FieldValue:
    """One number of the batch that nvmlDeviceGetFieldValues answers; `instead` where it cannot."""

    id: int
    values: Callable[[Any], Values]
    scope: int = 0
    instead: Field | None = None
    slow: bool = False


def row(values: Callable[[Any], Values], *calls: tuple[Any, ...] | str) -> Field:
    """A row of the tables below."""
    return Field(tuple((call,) if isinstance(call, str) else call for call in calls), values)


def slow(values: Callable[[Any], Values], *calls: tuple[Any, ...] | str) -> Field:
    """A row that is asked seldom."""
    return replace(row(values, *calls), slow=True)


def number(raw: Any, scale: float = 1) -> Any:
    """The number in base units; NVML's marks for 'not available' are no numbers."""
    if raw is None or raw in _BLANKS:
        return None
    return raw if scale == 1 else raw * scale


def ratio(percent: Any) -> float | None:
    """A percentage as a ratio; more than all is no reading."""
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def named(name: str, scale: float = 1) -> Callable[[Any], Values]:
    """The number itself."""
    return lambda raw: {name: number(raw, scale)}


def entry(name: str, key: Any, scale: float = 1) -> Callable[[Any], Values]:
    """The number as one part of a mapping."""
    return lambda raw: {name: {} if number(raw) is None else {key: raw * scale}}


def flag(name: str) -> Callable[[Any], Values]:
    """Yes or no."""
    return lambda raw: {name: None if number(raw) is None else bool(raw)}


def _text(name: str) -> Callable[[Any], Values]:
    return lambda raw: {name: str(raw).strip() or None}


def _model(raw: Any) -> Values:
    scope = "module" if any(name in str(raw) for name in MODULES) else "gpu"
    return {"model": str(raw).strip() or None, "energy_scope": scope}


def _memory(raw: Any) -> Values:
    return {f"memory_{part}_bytes": number(raw.get(part)) for part in ("total", "used", "free", "reserved")}


def _utilization(raw: Any) -> Values:
    return {"utilization_ratio": ratio(raw["gpu"]), "memory_utilization_ratio": ratio(raw["memory"])}


def _throttle(raw: Any) -> Values:
    return {"throttle_active": {name: bool(raw & bit) for bit, name in THROTTLE_REASONS.items()}}


def _engine(name: str) -> Callable[[Any], Values]:
    return lambda raw: {f"{name}_utilization_ratio": ratio(raw[0])}


def _limits(raw: Any) -> Values:
    low, high = (number(limit, 1e-3) for limit in raw)
    return {"power_limit_min_watts": low, "power_limit_max_watts": high}


def _mode(name: str, place: int | None = None) -> Callable[[Any], Values]:
    return lambda raw: {"mode_enabled": {name: bool(raw if place is None else raw[place])}}


_CLOCKS = (("graphics", 0), ("sm", 1), ("memory", 2), ("video", 3))
_THRESHOLDS = (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("gpu_max", 3))

FIELD_VALUES = "nvmlDeviceGetFieldValues"
SAMPLES = "nvmlDeviceGetProcessUtilization"

PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)

ENERGY = row(
    lambda raw: {"energy_uj": None if number(raw) is None else raw * 1000},
    "nvmlDeviceGetTotalEnergyConsumption",
)
"""Every tick, and the utilization samples with it."""

MEMORY = row(_memory, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
MIG_MODE = row(_mode("mig", 0), "nvmlDeviceGetMigMode")

INFO = (
    row(_model, "nvmlDeviceGetName"),
    row(lambda raw: {"architecture": ARCHITECTURES.get(raw)}, "nvmlDeviceGetArchitecture"),
    row(lambda raw: {"pci_bus_id": raw["busId"]}, "nvmlDeviceGetPciInfo"),
    row(_text("serial"), "nvmlDeviceGetSerial"),
    row(_text("vbios_version"), "nvmlDeviceGetVbiosVersion"),
    row(lambda raw: {"compute_capability": f"{raw[0]}.{raw[1]}"}, "nvmlDeviceGetCudaComputeCapability"),
    row(_text("minor_number"), "nvmlDeviceGetMinorNumber"),
    row(_text("pcie_link_generation_max"), "nvmlDeviceGetMaxPcieLinkGeneration"),
    row(_text("pcie_link_width_max"), "nvmlDeviceGetMaxPcieLinkWidth"),
)
"""Once per driver and GPU: labels of gputally_gpu_info."""

FIXED = (
    row(named("power_limit_default_watts", 1e-3), "nvmlDeviceGetPowerManagementDefaultLimit"),
    row(_limits, "nvmlDeviceGetPowerManagementLimitConstraints"),
    *(
        row(entry("clock_max_hertz", name, 1_000_000), ("nvmlDeviceGetMaxClockInfo", clock))
        for name, clock in _CLOCKS
    ),
    *(
        row(entry("temperature_threshold_celsius", name), ("nvmlDeviceGetTemperatureThreshold", which))
        for name, which in _THRESHOLDS
    ),
)
"""Once per driver and GPU: numbers that stay."""

GAUGES = (
    MEMORY,
    row(_utilization, "nvmlDeviceGetUtilizationRates"),
    row(_engine("encoder"), "nvmlDeviceGetEncoderUtilization"),
    row(_engine("decoder"), "nvmlDeviceGetDecoderUtilization"),
    row(_engine("jpeg"), "nvmlDeviceGetJpgUtilization"),
    row(_engine("ofa"), "nvmlDeviceGetOfaUtilization"),
    row(named("power_watts", 1e-3), "nvmlDeviceGetPowerUsage"),
    slow(named("power_limit_watts", 1e-3), "nvmlDeviceGetEnforcedPowerLimit"),
    row(entry("temperature_celsius", "gpu"), ("nvmlDeviceGetTemperature", 0)),
    *(
        row(entry("clock_hertz", name, 1_000_000), ("nvmlDeviceGetClockInfo", clock))
        for name, clock in _CLOCKS
    ),
    row(lambda raw: {"performance_state": raw if 0 <= raw <= 15 else None}, "nvmlDeviceGetPerformanceState"),
    row(
        _throttle,
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
    row(lambda raw: {"fan_speed_ratio": ratio(raw)}, "nvmlDeviceGetFanSpeed"),
    slow(named("pcie_link_generation"), "nvmlDeviceGetCurrPcieLinkGeneration"),
    slow(named("pcie_link_width"), "nvmlDeviceGetCurrPcieLinkWidth"),
    slow(_mode("persistence"), "nvmlDeviceGetPersistenceMode"),
    slow(_mode("accounting"), "nvmlDeviceGetAccountingMode"),
    slow(_mode("ecc", 0), "nvmlDeviceGetEccMode"),
    slow(lambda raw: {"compute_mode": COMPUTE_MODES.get(raw)}, "nvmlDeviceGetComputeMode"),
)
"""Every interval, each by a call of its own; nvml_values.py has what comes in one batch."""

PCIE_THROUGHPUT = tuple(
    row(entry("pcie_bytes_per_second", name, 1000), ("nvmlDeviceGetPcieThroughput", direction))
    for name, direction in (("transmit", 0), ("receive", 1))
)
"""Only where it is wanted: each call takes the driver 20 ms."""
