"""The names of the nvidia-smi sidecar: the five that its document has, and the two that its code had."""

from __future__ import annotations

from gputally.dialects.dcgm.values import percent
from gputally.metrics import GAUGE, Metric, Scope

GPU = Scope(
    "nvidia_smi",
    ("gpu_id", "gpu_name"),
    lambda tally: [gpu.device for gpu in tally.gpus if gpu.fresh],
    lambda device: (str(device.index), device.info.model or ""),
)

METRICS = (
    Metric(
        GPU,
        "nvidia_smi_gpu_utilization_percent",
        GAUGE,
        "GPU utilization in percent.",
        lambda device: percent(device.utilization_ratio),
    ),
    Metric(
        GPU,
        "nvidia_smi_memory_utilization_percent",
        GAUGE,
        "Part of time in which GPU memory was read or written, in percent.",
        lambda device: percent(device.memory_utilization_ratio),
    ),
    Metric(
        GPU,
        "nvidia_smi_memory_used_bytes",
        GAUGE,
        "GPU memory in use, in bytes.",
        "memory_used_bytes",
    ),
    Metric(
        GPU,
        "nvidia_smi_memory_total_bytes",
        GAUGE,
        "Memory of the GPU, in bytes.",
        "memory_total_bytes",
    ),
    Metric(
        GPU,
        "nvidia_smi_temperature_celsius",
        GAUGE,
        "GPU temperature in degrees Celsius.",
        lambda device: device.temperature_celsius.get("gpu"),
    ),
    Metric(
        GPU,
        "nvidia_smi_power_usage_watts",
        GAUGE,
        "Power the GPU draws, in watts; the name in the document.",
        "power_watts",
    ),
    Metric(
        GPU,
        "nvidia_smi_power_draw_watts",
        GAUGE,
        "Power the GPU draws, in watts; the name in the code.",
        "power_watts",
    ),
)
