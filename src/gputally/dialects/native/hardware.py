"""Rows about whole GPUs: what they count; kept as it was while a GPU does not answer."""

from __future__ import annotations

from collections.abc import Callable

from gputally.dialects.native.scopes import GPU
from gputally.metrics import COUNTER, GAUGE, Metric
from gputally.tally import Gpu

_BATCH = "nvmlDeviceGetFieldValues"


def _counter(
    name: str,
    help: str,
    value: str | Callable[[Gpu], int | None],
    source: str,
    since: str = "",
    absent: str = "the GPU or its driver does not tell it",
    by: tuple[str, ...] = (),
) -> Metric:
    read = f"device.counters.{value}" if isinstance(value, str) else value
    return Metric(GPU, f"gputally_gpu_{name}", COUNTER, help, read, by, source, since, absent)


def _entry(value: str, key: str) -> Callable[[Gpu], int | None]:
    return lambda gpu: getattr(gpu.device.counters, value).get(key)


HARDWARE_METRICS = (
    _counter(
        "throttle_seconds_total",
        "Time in which this reason held the clocks down, since the driver was loaded.",
        "throttle_seconds",
        f"{_BATCH} 74 to 79 and 269 to 271, or nvmlDeviceGetViolationStatus, asked every 30 s",
        "Kepler; sw_thermal, hw_thermal and hw_power_brake driver 570",
        by=("reason",),
    ),
    _counter(
        "pcie_transmit_bytes_total",
        "Bytes the GPU sent over PCIe; the hardware's counter may wrap.",
        _entry("pcie_bytes", "transmit"),
        f"{_BATCH} 197",
        "driver 535",
        "a vGPU, or an older driver",
    ),
    _counter(
        "pcie_receive_bytes_total",
        "Bytes the GPU received over PCIe; the hardware's counter may wrap.",
        _entry("pcie_bytes", "receive"),
        f"{_BATCH} 198",
        "driver 535",
        "a vGPU, or an older driver",
    ),
    _counter(
        "pcie_replays_total",
        "PCIe packets sent again.",
        "pcie_replays",
        f"{_BATCH} 94, or nvmlDeviceGetPcieReplayCounter, asked every 30 s",
        "Kepler",
    ),
    _counter(
        "nvlink_transmit_bytes_total",
        "Bytes the GPU sent over all its NVLinks.",
        _entry("nvlink_bytes", "transmit"),
        f"{_BATCH} 138",
        "Ampere",
        "no NVLink",
    ),
    _counter(
        "nvlink_receive_bytes_total",
        "Bytes the GPU received over all its NVLinks.",
        _entry("nvlink_bytes", "receive"),
        f"{_BATCH} 139",
        "Ampere",
        "no NVLink",
    ),
    _counter(
        "nvlink_errors_total",
        "Errors on all NVLinks of the GPU.",
        "nvlink_errors",
        f"{_BATCH} 38, 45, 52, 59, 160, asked every 30 s",
        "Pascal; ecc_data Ampere",
        "no NVLink",
        by=("error",),
    ),
    _counter(
        "ecc_errors_total",
        "ECC errors: volatile since the driver was loaded, aggregate over the GPU's life.",
        "ecc_errors",
        f"{_BATCH} 3, 4, 5, 6, or nvmlDeviceGetTotalEccErrors, asked every 30 s",
        "Kepler",
        "no ECC, or it is off",
        by=("kind", "scope"),
    ),
    Metric(
        GPU,
        "gputally_gpu_xid_errors_total",
        COUNTER,
        "Xid errors that the driver reported since gputally was started.",
        lambda gpu: {str(number): xid.count for number, xid in gpu.device.xids.items()},
        by=("xid",),
        source="nvmlEventSetWait",
        since="Kepler",
        absent="none since gputally was started",
    ),
    Metric(
        GPU,
        "gputally_gpu_xid_last_timestamp_seconds",
        GAUGE,
        "When the driver last reported this Xid.",
        lambda gpu: {str(number): xid.last_time for number, xid in gpu.device.xids.items()},
        by=("xid",),
        source="nvmlEventSetWait",
        since="Kepler",
        absent="none since gputally was started",
    ),
)
