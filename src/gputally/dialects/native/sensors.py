"""Rows about whole GPUs: what their sensors read; withdrawn when a GPU does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from gputally.dialects.native.scopes import DEVICE
from gputally.metrics import GAUGE, Metric
from gputally.model import Device
from gputally.sources.nvml_fields import COMPUTE_MODES
from gputally.sources.nvml_values import RECOVERY_ACTIONS


def _sensor(
    name: str,
    help: str,
    value: str | Callable[[Device], Any],
    source: str,
    since: str = "",
    absent: str = "the GPU or its driver does not tell it",
    by: tuple[str, ...] = (),
) -> Metric:
    return Metric(DEVICE, f"gputally_gpu_{name}", GAUGE, help, value, by, source, since, absent)


def _one_of(words: Mapping[int, str], attribute: str) -> Callable[[Device], Mapping[str, int] | None]:
    none = dict.fromkeys(words.values(), 0)
    told = {word: {**none, word: 1} for word in none}

    def states(device: Device) -> Mapping[str, int] | None:
        now = getattr(device, attribute)
        return None if now is None else told.get(now, none)

    return states


_PID = attrgetter("pid")
_MIG = "in MIG mode, or the driver does not tell it"
_BATCH = "nvmlDeviceGetFieldValues"

SENSOR_METRICS = (
    _sensor(
        "utilization_ratio",
        "Part of the driver's last sampling period in which a kernel ran; not the part of the GPU in use.",
        "utilization_ratio",
        "nvmlDeviceGetUtilizationRates",
        "Fermi",
        _MIG,
    ),
    _sensor(
        "memory_utilization_ratio",
        "Part of the driver's last sampling period in which GPU memory was read or written.",
        "memory_utilization_ratio",
        "nvmlDeviceGetUtilizationRates",
        "Fermi",
        _MIG,
    ),
    _sensor(
        "encoder_utilization_ratio",
        "Part of time the video encoder was busy.",
        "encoder_utilization_ratio",
        "nvmlDeviceGetEncoderUtilization",
        "Kepler",
        _MIG,
    ),
    _sensor(
        "decoder_utilization_ratio",
        "Part of time the video decoder was busy.",
        "decoder_utilization_ratio",
        "nvmlDeviceGetDecoderUtilization",
        "Kepler",
        _MIG,
    ),
    _sensor(
        "jpeg_utilization_ratio",
        "Part of time the JPEG decoder was busy.",
        "jpeg_utilization_ratio",
        "nvmlDeviceGetJpgUtilization",
        "Turing",
        _MIG,
    ),
    _sensor(
        "ofa_utilization_ratio",
        "Part of time the optical flow accelerator was busy.",
        "ofa_utilization_ratio",
        "nvmlDeviceGetOfaUtilization",
        "Turing",
        _MIG,
    ),
    _sensor(
        "activity_ratio",
        "How much of a part of the GPU was in use since the last interval, by the GPU's own meters.",
        "activity_ratio",
        "nvmlGpmMetricsGet 1, 2, 3, 5, 10, 11, 12, 13, or DCGM 1001 to 1008",
        "Hopper; from DCGM Volta",
        "the GPU has no such meters or is in MIG mode, and DCGM does not tell it",
        by=("part",),
    ),
    _sensor("memory_total_bytes", "Memory of the GPU.", "memory_total_bytes", "nvmlDeviceGetMemoryInfo_v2"),
    _sensor(
        "memory_used_bytes",
        "Memory in use; with reserved memory where the driver does not tell that apart.",
        "memory_used_bytes",
        "nvmlDeviceGetMemoryInfo_v2, before driver 510 nvmlDeviceGetMemoryInfo",
    ),
    _sensor("memory_free_bytes", "Memory nobody has.", "memory_free_bytes", "nvmlDeviceGetMemoryInfo_v2"),
    _sensor(
        "memory_reserved_bytes",
        "Memory the driver and firmware keep.",
        "memory_reserved_bytes",
        "nvmlDeviceGetMemoryInfo_v2",
        "driver 510",
        "the driver counts it as used",
    ),
    _sensor(
        "power_watts",
        "Power the GPU draws; a 1 s average on Ampere (except GA100) and newer.",
        "power_watts",
        "nvmlDeviceGetPowerUsage",
        "Kepler",
    ),
    _sensor(
        "power_limit_watts",
        "Power limit in force.",
        "power_limit_watts",
        "nvmlDeviceGetEnforcedPowerLimit, asked every 30 s",
    ),
    _sensor(
        "power_limit_default_watts",
        "Power limit after the driver is loaded.",
        "power_limit_default_watts",
        "nvmlDeviceGetPowerManagementDefaultLimit, once per driver",
    ),
    _sensor(
        "power_limit_min_watts",
        "Lowest power limit that can be set.",
        "power_limit_min_watts",
        "nvmlDeviceGetPowerManagementLimitConstraints, once per driver",
    ),
    _sensor(
        "power_limit_max_watts",
        "Highest power limit that can be set.",
        "power_limit_max_watts",
        "nvmlDeviceGetPowerManagementLimitConstraints, once per driver",
    ),
    _sensor(
        "temperature_celsius",
        "Temperature by sensor.",
        "temperature_celsius",
        f"nvmlDeviceGetTemperature; sensor memory: {_BATCH} 82",
        absent="there is no such sensor",
        by=("sensor",),
    ),
    _sensor(
        "temperature_threshold_celsius",
        "Temperature at which the GPU slows down or shuts down, and the highest it should have.",
        "temperature_threshold_celsius",
        "nvmlDeviceGetTemperatureThreshold 0, 1, 2, 3, once per driver",
        by=("threshold",),
    ),
    _sensor(
        "clock_hertz",
        "Clock frequency now.",
        "clock_hertz",
        "nvmlDeviceGetClockInfo 0, 1, 2, 3",
        by=("clock",),
    ),
    _sensor(
        "clock_max_hertz",
        "Highest clock frequency the GPU can run.",
        "clock_max_hertz",
        "nvmlDeviceGetMaxClockInfo 0, 1, 2, 3, once per driver",
        by=("clock",),
    ),
    _sensor(
        "performance_state",
        "Performance state: 0 is the fastest, 15 the slowest.",
        "performance_state",
        "nvmlDeviceGetPerformanceState",
    ),
    _sensor(
        "fan_speed_ratio",
        "Fan speed the GPU asks for, as a part of the fastest that is quiet; it may be more than 1.",
        "fan_speed_ratio",
        "nvmlDeviceGetFanSpeed",
        absent="the board has no fan of its own",
    ),
    _sensor(
        "throttle_active",
        "1 while this reason holds the clocks down.",
        "throttle_active",
        "nvmlDeviceGetCurrentClocksEventReasons, before driver 535 …ThrottleReasons",
        by=("reason",),
    ),
    _sensor(
        "pcie_link_generation",
        "PCIe generation the link runs at; it falls when the GPU is idle.",
        "pcie_link_generation",
        "nvmlDeviceGetCurrPcieLinkGeneration, asked every 30 s",
        absent="a vGPU, or not on PCIe",
    ),
    _sensor(
        "pcie_link_width",
        "PCIe lanes in use.",
        "pcie_link_width",
        "nvmlDeviceGetCurrPcieLinkWidth, asked every 30 s",
        absent="a vGPU, or not on PCIe",
    ),
    _sensor(
        "pcie_bytes_per_second",
        "PCIe traffic: in a sample of 20 ms with --nvml.pcie-throughput, else over DCGM's last period.",
        "pcie_bytes_per_second",
        "nvmlDeviceGetPcieThroughput, or DCGM 1009, 1010",
        "Maxwell; from DCGM Volta",
        "it is not asked for, or the driver does not tell it",
        by=("direction",),
    ),
    _sensor(
        "retired_pages",
        "Memory pages taken out of use.",
        "retired_pages",
        f"{_BATCH} 29, 30, asked every 30 s",
        "Kepler to Turing",
        "the GPU remaps rows in place of it, or has no ECC",
        by=("cause",),
    ),
    _sensor(
        "retired_pages_pending",
        "1 if pages wait for a reboot to be retired.",
        "retired_pages_pending",
        f"{_BATCH} 31, asked every 30 s",
        "Kepler to Turing",
        "the GPU remaps rows in place of it, or has no ECC",
    ),
    _sensor(
        "remapped_rows",
        "Memory rows replaced by spare ones.",
        "remapped_rows",
        f"{_BATCH} 142, 143, asked every 30 s",
        "Ampere",
        "the GPU retires pages in place of it, or has no ECC",
        by=("cause",),
    ),
    _sensor(
        "remapped_rows_pending",
        "1 if rows wait for a reset to be remapped.",
        "remapped_rows_pending",
        f"{_BATCH} 144, asked every 30 s",
        "Ampere",
        "the GPU retires pages in place of it, or has no ECC",
    ),
    _sensor(
        "remapped_rows_failed",
        "1 if a row could not be remapped: the GPU should be replaced.",
        "remapped_rows_failed",
        f"{_BATCH} 145, asked every 30 s",
        "Ampere",
        "the GPU retires pages in place of it, or has no ECC",
    ),
    _sensor(
        "mode_enabled",
        "1 if the mode is on.",
        "mode_enabled",
        "nvmlDeviceGetPersistenceMode, …AccountingMode, …EccMode, asked every 30 s; …MigMode",
        absent="the GPU does not have that mode",
        by=("mode",),
    ),
    _sensor(
        "compute_mode",
        "1 for the compute mode the GPU is in, 0 for the others.",
        _one_of(COMPUTE_MODES, "compute_mode"),
        "nvmlDeviceGetComputeMode, asked every 30 s",
        by=("mode",),
    ),
    _sensor(
        "recovery_action",
        "1 for what the driver says must be done to mend the GPU.",
        _one_of({**RECOVERY_ACTIONS, -1: "unknown"}, "recovery_action"),
        f"{_BATCH} 230, asked every 30 s",
        "driver 570",
        by=("action",),
    ),
    _sensor(
        "permission_denied",
        "1 for a call that our rights do not allow; what it would tell is missing.",
        lambda device: dict.fromkeys(device.denied, 1),
        "return code 4 of any call",
        absent="nothing is denied",
        by=("call",),
    ),
    _sensor(
        "processes",
        "Processes that hold a context on the GPU.",
        lambda device: None if device.holders is None else len(set(map(_PID, device.holders))),
        "nvmlDeviceGetComputeRunningProcesses, …Graphics…, …MPSCompute…",
        absent="the lists cannot be read or are not plausible",
    ),
)
