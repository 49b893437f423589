"""Rows about gputally itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputally import __version__
from gputally.dialects.native.scopes import CALL, EXPORTER, SOURCE
from gputally.metrics import COUNTER, GAUGE, INFO, Metric
from gputally.model import LIBRARY_MISMATCH, YIELDED, Health
from gputally.tally import Tally


def _up(tally: Tally) -> int:
    return int(any(health.up for health in tally.snapshot.health if health.about == "gpus"))


def _build(tally: Tally) -> Mapping[Any, int]:
    return {(__version__, tally.machine): 1}


def _host_pid(tally: Tally) -> Mapping[str, int] | None:
    mode = tally.snapshot.host_pid
    return None if mode is None else {name: int(name == mode) for name in ("yes", "nested", "no")}


def _age(pair: tuple[Health, float]) -> float | None:
    health, now = pair
    return None if health.succeeded_at is None else now - health.succeeded_at


def _has_code(code: int) -> Callable[[Tally], int]:
    return lambda tally: int(any(health.code == code for health in tally.snapshot.health))


EXPORTER_METRICS = (
    Metric(EXPORTER, "gputally_up", GAUGE, "1 if at least one source of GPU data answers.", _up),
    Metric(
        EXPORTER,
        "gputally_build_info",
        INFO,
        "The running version, and the machine its numbers come from: local, recorded or simulated.",
        _build,
        by=("version", "machine"),
    ),
    Metric(
        SOURCE,
        "gputally_source_up",
        GAUGE,
        "1 if the source or resolver answered when it was last asked.",
        lambda pair: int(pair[0].up),
    ),
    Metric(
        SOURCE,
        "gputally_source_duration_seconds",
        GAUGE,
        "Time the source took at the newest interval.",
        lambda pair: pair[0].duration_seconds,
    ),
    Metric(SOURCE, "gputally_source_age_seconds", GAUGE, "Time since the source last answered.", _age),
    Metric(
        EXPORTER,
        "gputally_host_pid",
        GAUGE,
        "1 for how we see processes: yes (all of the host), nested (all of a node that is itself a container)"
        " or no (only our own: nothing is said of processes and workloads).",
        _host_pid,
        by=("mode",),
    ),
    Metric(
        EXPORTER,
        "gputally_processes",
        GAUGE,
        "Processes on GPUs by how they could be traced: mapped (to a container, job, unit or user), host (to"
        " this host alone), unnamed (to a pod whose name is not known), conflict (their cgroups contradict"
        " each other), hidden (there, but not to be read), exited (gone before they were read, or just"
        " ended), no_host_pid (not looked at: our PID namespace is not the host's).",
        "process_results",
        by=("result",),
    ),
    Metric(
        EXPORTER,
        "gputally_samples_dropped_total",
        COUNTER,
        "Readings thrown away because they cannot be true or are not of GPUs of this node.",
        "samples_dropped",
        by=("reason",),
    ),
    Metric(
        EXPORTER,
        "gputally_series_dropped_total",
        COUNTER,
        "Series not shown because a bound was reached or two had the same labels.",
        "series_dropped",
        by=("reason",),
    ),
    Metric(
        EXPORTER,
        "gputally_nvml_errors_total",
        COUNTER,
        "NVML calls that failed, by NVML's return code; unsupported calls are not failures.",
        "nvml_errors",
        by=("call", "code"),
    ),
    Metric(
        CALL,
        "gputally_nvml_calls_total",
        COUNTER,
        "NVML calls made about GPUs, added up every half minute.",
        lambda pair: pair[1].count,
    ),
    Metric(
        CALL,
        "gputally_nvml_call_seconds_total",
        COUNTER,
        "Time that NVML calls about GPUs took, added up every half minute.",
        lambda pair: round(pair[1].seconds * 1e6),
        millionths=True,
    ),
    Metric(
        EXPORTER,
        "gputally_nvml_library_mismatch",
        GAUGE,
        "1 if the NVML library is not of the driver that is loaded; only a restart helps.",
        _has_code(LIBRARY_MISMATCH),
    ),
    Metric(
        EXPORTER,
        "gputally_yielded",
        GAUGE,
        "1 while gputally holds no GPU because it was told to let go of them.",
        _has_code(YIELDED),
    ),
    Metric(
        EXPORTER,
        "gputally_stuck_calls",
        GAUGE,
        "Calls that have not returned within their deadline, by lane.",
        "snapshot.stuck",
        by=("lane",),
    ),
    Metric(
        EXPORTER,
        "gputally_faults_total",
        COUNTER,
        "Ticks that ended in an error of gputally itself; the log has it.",
        "faults",
    ),
    Metric(
        EXPORTER,
        "gputally_textfile_write_errors_total",
        COUNTER,
        "Textfiles that could not be written; the last good one stays.",
        "textfile_errors",
    ),
    Metric(
        EXPORTER,
        "gputally_snapshot_timestamp_seconds",
        GAUGE,
        "When these numbers were taken.",
        "snapshot.time",
    ),
    Metric(
        EXPORTER,
        "gputally_self_cpu_seconds_total",
        COUNTER,
        "CPU time the exporter used.",
        "snapshot.self_usage.cpu_seconds",
    ),
    Metric(
        EXPORTER,
        "gputally_self_resident_memory_bytes",
        GAUGE,
        "Memory the exporter holds.",
        "snapshot.self_usage.resident_bytes",
    ),
    Metric(
        EXPORTER,
        "gputally_self_open_fds",
        GAUGE,
        "File descriptors the exporter holds.",
        "snapshot.self_usage.open_fds",
    ),
    Metric(
        EXPORTER,
        "gputally_self_threads",
        GAUGE,
        "Threads of the exporter.",
        "snapshot.self_usage.threads",
    ),
)

BARE = ("gputally_up", "gputally_build_info", "gputally_faults_total")
BARE_METRICS = tuple(metric for metric in EXPORTER_METRICS if metric.name in BARE)
"""What can be said before the first reading and after the last."""
