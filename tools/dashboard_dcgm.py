"""For those who come from dcgm-exporter: its names, its panels."""

from __future__ import annotations

from tools.dashboard_parts import Board, Panel, Variable, table

_AT = 'cluster=~"$cluster", instance=~"$node"'
# Exporters before and after 4.6 write the node's name with a capital and without.
_HOST = "instance, Hostname, hostname"
_LEGEND = "{{Hostname}}{{hostname}} {{instance}} GPU {{gpu}}"
_SMI = "nvidia-smi {{instance}} GPU {{gpu_id}}"


def _dcgm(field: str, factor: str = "") -> tuple[str, str]:
    return f'max by ({_HOST}, gpu) (DCGM_FI_DEV_{field}{{{_AT}, gpu=~"$gpu"}}){factor}', _LEGEND


def _smi(name: str, factor: str = "") -> tuple[str, str]:
    return f'max by (instance, gpu_id) (nvidia_smi_{name}{{{_AT}, gpu_id=~"$gpu"}}){factor}', _SMI


DCGM = Board(
    "gpu-dcgm-dashboard",
    "gpu-dcgm-dashboard",
    "GPU Monitoring (DCGM)",
    "GPUs by the names of dcgm-exporter, served by gputally's dialect `dcgm` or by dcgm-exporter itself.",
    (
        Variable("cluster", "label_values(DCGM_FI_DEV_GPU_TEMP, cluster)"),
        Variable("node", 'label_values(DCGM_FI_DEV_GPU_TEMP{cluster=~"$cluster"}, instance)'),
        Variable("gpu", f"label_values(DCGM_FI_DEV_GPU_TEMP{{{_AT}}}, gpu)"),
    ),
    (
        Panel(
            "GPU Temperature",
            "celsius",
            "Temperature of the GPU.",
            (_dcgm("GPU_TEMP"), _smi("temperature_celsius")),
        ),
        Panel(
            "Power Usage", "watt", "Power the GPU draws.", (_dcgm("POWER_USAGE"), _smi("power_usage_watts"))
        ),
        Panel(
            "GPU Utilization",
            "percent",
            "Part of time in which a kernel ran: by DCGM, and by nvidia-smi where a sidecar tells it.",
            (_dcgm("GPU_UTIL"), _smi("gpu_utilization_percent")),
        ),
        Panel(
            "Memory Utilization",
            "percent",
            "Part of time in which GPU memory was read or written; not how full it is.",
            (_dcgm("MEM_COPY_UTIL"), _smi("memory_utilization_percent")),
        ),
        Panel(
            "Memory Usage",
            "bytes",
            "GPU memory in use.",
            (_dcgm("FB_USED", " * 1024 * 1024"), _smi("memory_used_bytes")),
        ),
        Panel(
            "Clock Speeds",
            "hertz",
            "Clocks of the multiprocessors and of the memory.",
            (
                (_dcgm("SM_CLOCK", " * 1e6")[0], f"{_LEGEND} SM"),
                (_dcgm("MEM_CLOCK", " * 1e6")[0], f"{_LEGEND} memory"),
            ),
        ),
        table(
            "Exporter Status",
            "short",
            "1 where the last scrape succeeded.",
            'max by (job, instance, node) (up{job=~".*(dcgm|gputally).*"})',
            "Up",
        ),
    ),
)
