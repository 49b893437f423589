"""Rows about GPUs that only DCGM's profiling fields tell; what NVML can tell too is with the sensors."""

from __future__ import annotations

from gputally.dialects.native.scopes import DEVICE
from gputally.metrics import GAUGE, Metric

PROFILING_METRICS = (
    Metric(
        DEVICE,
        "gputally_gpu_nvlink_bytes_per_second",
        GAUGE,
        "NVLink traffic; a rate over DCGM's last period, not a counter.",
        "nvlink_bytes_per_second",
        by=("direction",),
        source="DCGM 1011, 1012",
        since="Volta",
        absent="DCGM is not asked, or the GPU has no NVLink",
    ),
)
