"""What NVML is asked about a GPU: one row per call, converted to base units here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import index
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

_BLANKS = frozenset((None, 2**32 - 1, 2**64 - 1))
"""NVML's marks for 'not available', and ours."""


Put = Callable[[Values, Any], None]
"""Adds a raw answer to the values; one that is not as it should be raises."""


@dataclass(frozen=True, eq=False)
class Field:
    """One question to a GPU; the first of `calls` that its driver knows is the one asked."""

    calls: tuple[tuple[Any, ...], ...]
    put: Put


@dataclass(frozen=True, eq=False)
class FieldValue:
    """One number of the batch that nvmlDeviceGetFieldValues answers; `instead` where it cannot."""

    id: int
    put: Put
    scope: int = 0
    instead: Field | None = None
    """Asked seldom."""
    slow: bool = False
    """What it tells hardly ever changes: asked seldom, and kept meanwhile."""


def row(put: Put, *calls: tuple[Any, ...] | str) -> Field:
    """A row of the tables below."""
    return Field(tuple((call,) if isinstance(call, str) else call for call in calls), put)


def number(raw: Any) -> Any:
    """The number; NVML's marks for 'not available' are none."""
    return None if raw in _BLANKS else +raw  # a text has no sign: it raises


def ratio(percent: Any) -> float | None:
    """A percentage as a ratio; more than all is no reading."""
    return percent / 100 if percent is not None and 0 <= percent <= 100 else None


def fan_ratio(percent: Any) -> float | None:
    """The same of a fan, whose whole is what is thought quiet enough: NVIDIA says that it may run faster."""
    return None if percent in _BLANKS or percent < 0 else float(percent / 100)


def named(name: str, scale: float = 1) -> Put:
    """The number itself, in base units."""

    def put(values: Values, raw: Any) -> None:
        values[name] = None if raw in _BLANKS else +raw * scale

    return put


def entry(name: str, key: Any, scale: float = 1) -> Put:
    """The number as one part of a mapping."""

    def put(values: Values, raw: Any) -> None:
        parts = values.setdefault(name, {})
        if raw not in _BLANKS:
            parts[key] = +raw * scale

    return put


def flag(name: str) -> Put:
    """Yes or no."""
    return one(name, lambda raw: None if raw in _BLANKS else bool(raw))


def one(name: str, understood: Callable[[Any], Any]) -> Put:
    """What the answer means, under one name."""

    def put(values: Values, raw: Any) -> None:
        values[name] = understood(raw)

    return put


def _text(name: str) -> Put:
    return one(name, lambda raw: str(raw).strip() or None)


def _model(values: Values, raw: Any) -> None:
    values["model"] = str(raw).strip() or None
    values["energy_scope"] = "module" if any(name in str(raw) for name in MODULES) else "gpu"


_MEMORY = {f"memory_{part}_bytes": part for part in ("total", "used", "free", "reserved")}


def _memory(values: Values, raw: Any) -> None:
    told = map(number, map(raw.get, _MEMORY.values()))
    values.update(zip(_MEMORY, told, strict=True))


def _energy(values: Values, raw: Any) -> None:
    values["energy_uj"] = None if raw in _BLANKS else index(raw) * 1000  # exact, or it is no reading


def _utilization(values: Values, raw: Any) -> None:
    values["utilization_ratio"] = ratio(raw["gpu"])
    values["memory_utilization_ratio"] = ratio(raw["memory"])


@lru_cache(64)
def _throttle(raw: int) -> Mapping[str, bool]:
    return {name: bool(raw & bit) for bit, name in THROTTLE_REASONS.items()}


def _engine(name: str) -> Put:
    return one(f"{name}_utilization_ratio", lambda raw: ratio(raw[0]))


def _limits(values: Values, raw: Any) -> None:
    named("power_limit_min_watts", 1e-3)(values, raw[0])
    named("power_limit_max_watts", 1e-3)(values, raw[1])


def _mode(name: str, place: int | None = None) -> Put:
    def put(values: Values, raw: Any) -> None:
        values.setdefault("mode_enabled", {})[name] = bool(raw if place is None else raw[place])

    return put


_CLOCKS = (("graphics", 0), ("sm", 1), ("memory", 2), ("video", 3))
_THRESHOLDS = (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("gpu_max", 3))

FIELD_VALUES = "nvmlDeviceGetFieldValues"
SAMPLES = "nvmlDeviceGetProcessUtilization"

MPS_CLIENTS = "nvmlDeviceGetMPSComputeRunningProcesses"
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    MPS_CLIENTS,
)

ENERGY = (row(_energy, "nvmlDeviceGetTotalEnergyConsumption"),)
"""Every tick, and the utilization samples with it."""
MODE_AND_ENERGY = (row(_mode("mig", 0), "nvmlDeviceGetMigMode"), *ENERGY)
"""The same at an interval: what else is asked depends on the mode."""

MEMORY = row(_memory, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")

INFO = (
    row(_model, "nvmlDeviceGetName"),
    row(one("architecture", ARCHITECTURES.get), "nvmlDeviceGetArchitecture"),
    row(one("pci_bus_id", lambda raw: raw["busId"]), "nvmlDeviceGetPciInfo"),
    row(_text("serial"), "nvmlDeviceGetSerial"),
    row(_text("vbios_version"), "nvmlDeviceGetVbiosVersion"),
    row(
        one("compute_capability", lambda raw: f"{raw[0]}.{raw[1]}"),
        "nvmlDeviceGetCudaComputeCapability",
    ),
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
    row(entry("temperature_celsius", "gpu"), ("nvmlDeviceGetTemperature", 0)),
    *(
        row(entry("clock_hertz", name, 1_000_000), ("nvmlDeviceGetClockInfo", clock))
        for name, clock in _CLOCKS
    ),
    row(
        one("performance_state", lambda raw: raw if 0 <= raw <= 15 else None),
        "nvmlDeviceGetPerformanceState",
    ),
    row(
        one("throttle_active", _throttle),
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    ),
    row(one("fan_speed_ratio", fan_ratio), "nvmlDeviceGetFanSpeed"),
)
"""Every interval, each by a call of its own; nvml_values.py has what comes in one batch."""

SELDOM = (
    row(named("power_limit_watts", 1e-3), "nvmlDeviceGetEnforcedPowerLimit"),
    row(named("pcie_link_generation"), "nvmlDeviceGetCurrPcieLinkGeneration"),
    row(named("pcie_link_width"), "nvmlDeviceGetCurrPcieLinkWidth"),
    row(_mode("persistence"), "nvmlDeviceGetPersistenceMode"),
    row(_mode("accounting"), "nvmlDeviceGetAccountingMode"),
    row(_mode("ecc", 0), "nvmlDeviceGetEccMode"),
    row(one("compute_mode", COMPUTE_MODES.get), "nvmlDeviceGetComputeMode"),
)
"""What hardly ever changes: asked seldom, and kept meanwhile."""

PCIE_THROUGHPUT = tuple(
    row(entry("pcie_bytes_per_second", name, 1000), ("nvmlDeviceGetPcieThroughput", direction))
    for name, direction in (("transmit", 0), ("receive", 1))
)
"""Only where it is wanted: each call takes the driver 20 ms."""
