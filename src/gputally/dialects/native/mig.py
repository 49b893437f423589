"""Rows about MIG instances; energy is never repeated per instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputally.dialects.native.scopes import INSTANCE
from gputally.metrics import GAUGE, INFO, Metric
from gputally.model import Device, Instance

Pair = tuple[Device, Instance]


def _info(pair: Pair) -> Mapping[Any, int]:
    _, part = pair
    slices = "" if part.slices is None else str(part.slices)
    return {(str(part.gpu_instance), str(part.compute_instance), part.profile or "", slices): 1}


def _processes(pair: Pair) -> int | None:
    device, part = pair
    return None if device.holders is None else sum(h.mig == part.uuid for h in device.holders)


def _memory(part: str) -> Callable[[Pair], int | None]:
    return lambda pair: getattr(pair[1], f"memory_{part}_bytes")


_MEMORY = {
    "total": "Memory of the instance.",
    "used": "Memory of the instance in use.",
    "free": "Memory of the instance nobody has.",
    "reserved": "Memory of the instance that the driver and firmware keep.",
}

MIG_METRICS = (
    Metric(
        INSTANCE,
        "gputally_mig_info",
        INFO,
        "What a MIG instance is: its numbers, its profile, and its compute slices.",
        _info,
        ("gi", "ci", "profile", "slices"),
        "nvmlDeviceGetMigDeviceHandleByIndex, …GpuInstanceId, …ComputeInstanceId, …Name, …Attributes_v2",
        "Ampere",
        "not in MIG mode, or our rights do not show the instance",
    ),
    *(
        Metric(
            INSTANCE,
            f"gputally_mig_memory_{part}_bytes",
            GAUGE,
            help,
            _memory(part),
            source="nvmlDeviceGetMemoryInfo_v2 of the instance",
            since="Ampere",
            absent="our rights do not allow it",
        )
        for part, help in _MEMORY.items()
    ),
    Metric(
        INSTANCE,
        "gputally_mig_utilization_ratio",
        GAUGE,
        "Part of the time since the last interval in which a kernel ran on the instance.",
        lambda pair: pair[1].utilization_ratio,
        source="nvmlGpmMigSampleGet and nvmlGpmMetricsGet 1",
        since="Hopper",
        absent="the GPU has no such meters",
    ),
    Metric(
        INSTANCE,
        "gputally_mig_processes",
        GAUGE,
        "Processes that hold a context on the instance.",
        _processes,
        source="nvmlDeviceGetComputeRunningProcesses and its like, of the GPU or of the instance",
        since="Ampere",
        absent="the lists cannot be read",
    ),
)
