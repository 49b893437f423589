"""Rows about who uses GPUs: workloads, and single processes where those are wanted."""

from __future__ import annotations

from gputally.dialects.native.scopes import NAMESPACE, PROCESS, WORKLOAD
from gputally.metrics import COUNTER, GAUGE, Metric

WORKLOAD_METRICS = (
    Metric(
        WORKLOAD,
        "gputally_workload_memory_used_bytes",
        GAUGE,
        "GPU memory of the workload's processes.",
        "memory_used_bytes",
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_sm_utilization_ratio",
        GAUGE,
        "Part of the time since the last interval in which the driver's samples saw the workload busy.",
        "sm_utilization_ratio",
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_sm_busy_seconds_total",
        COUNTER,
        "Time in which the driver's samples saw the workload busy on the GPU.",
        "sm_busy_us",
        millionths=True,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_energy_joules_total",
        COUNTER,
        "Energy above idle of the GPU that is charged to the workload: all of it while it was alone, "
        "divided by activity while others were active too.",
        "energy_uj",
        millionths=True,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_estimated_energy_joules_total",
        COUNTER,
        "The part of the workload's energy that was divided between several active processes.",
        "estimated_uj",
        millionths=True,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_idle_energy_joules_total",
        COUNTER,
        "Idle energy of the GPU that the idle policy charges to the workload; not in its other energy.",
        "idle_uj",
        millionths=True,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_processes",
        GAUGE,
        "Processes of the workload that hold a context on the GPU.",
        "processes",
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_start_time_seconds",
        GAUGE,
        "When the oldest of its processes started.",
        "start_time_seconds",
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_active",
        GAUGE,
        "1 while it holds a context on the GPU; 0 after it ended, while its totals are still shown.",
        "active",
    ),
)

NAMESPACE_METRICS = (
    Metric(
        NAMESPACE,
        "gputally_namespace_energy_joules_total",
        COUNTER,
        "Energy above idle charged to workloads of the namespace, also to those that are gone.",
        "energy_uj",
        millionths=True,
    ),
    Metric(
        NAMESPACE,
        "gputally_namespace_idle_energy_joules_total",
        COUNTER,
        "Idle energy that the idle policy charges to workloads of the namespace.",
        "idle_uj",
        millionths=True,
    ),
    Metric(
        NAMESPACE,
        "gputally_namespace_sm_busy_seconds_total",
        COUNTER,
        "Time in which the driver's samples saw workloads of the namespace busy.",
        "sm_busy_us",
        millionths=True,
    ),
)

PROCESS_METRICS = (
    Metric(
        PROCESS,
        "gputally_process_memory_used_bytes",
        GAUGE,
        'GPU memory of the process; process="other" is all that have no series of their own.',
        "memory_used_bytes",
    ),
    Metric(
        PROCESS,
        "gputally_process_sm_busy_seconds_total",
        COUNTER,
        "Time in which the driver's samples saw the process busy, since it has a series.",
        "sm_busy_us",
        millionths=True,
    ),
    Metric(
        PROCESS,
        "gputally_process_energy_joules_total",
        COUNTER,
        "Energy above idle charged to the process since it has a series.",
        "energy_uj",
        millionths=True,
    ),
    Metric(
        PROCESS,
        "gputally_process_start_time_seconds",
        GAUGE,
        "When the process started.",
        "start_time_seconds",
    ),
    Metric(
        PROCESS,
        "gputally_process_dcgm_gpu_energy_joules",
        GAUGE,
        "DCGM's number for the process: energy of the whole GPU while the process lived, from DCGM's first "
        "sample of it; do not add up: processes that share a GPU are each told all of it.",
        "dcgm_gpu_energy_joules",
    ),
)
