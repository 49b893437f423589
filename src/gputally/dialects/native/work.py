"""Rows about who uses GPUs: workloads, and single processes where those are wanted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gputally.dialects.native.scopes import GRANT, OWNER, PROCESS, WORKLOAD, micro
from gputally.metrics import COUNTER, GAUGE, INFO, Metric
from gputally.model import Detail, Owner

WORKLOAD_METRICS = (
    Metric(
        WORKLOAD,
        "gputally_workload_memory_used_bytes",
        GAUGE,
        "GPU memory of the workload's processes.",
        lambda use: use.memory_used_bytes,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_sm_utilization_ratio",
        GAUGE,
        "Part of the time since the last interval in which the driver's samples saw the workload busy.",
        lambda use: use.sm_utilization_ratio,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_sm_busy_seconds_total",
        COUNTER,
        "Time in which the driver's samples saw the workload busy on the GPU.",
        lambda use: micro(use.sm_busy_us),
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_processes",
        GAUGE,
        "Processes of the workload that hold a context on the GPU.",
        lambda use: use.processes,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_start_time_seconds",
        GAUGE,
        "When the oldest of its processes started.",
        lambda use: use.start_time_seconds,
    ),
    Metric(
        WORKLOAD,
        "gputally_workload_active",
        GAUGE,
        "1 while it holds a context on the GPU; 0 after it ended, while its totals are still shown.",
        lambda use: int(use.active),
    ),
    Metric(
        GRANT,
        "gputally_workload_granted",
        GAUGE,
        "1 for a device that Kubernetes allocated to the container; 0 where it is used without that.",
        lambda use: int(use.granted),
    ),
)


def info(labels: Sequence[str] = (), annotations: Sequence[str] = ()) -> Metric:
    """The row about an owner, with the pod labels and annotations that were chosen."""

    def value(pair: tuple[Owner, Detail]) -> dict[tuple[str, ...], int]:
        detail = pair[1]
        shown = [detail.labels.get(key, "") for key in labels]
        shown += [detail.annotations.get(key, "") for key in annotations]
        return {tuple(shown): 1}

    names = label_names("label_", labels) + label_names("annotation_", annotations)
    return Metric(
        OWNER,
        "gputally_workload_info",
        INFO,
        "A container on a GPU or with one allocated: its uid, node and id, and chosen labels of its pod.",
        value if names else lambda _: 1,
        by=names,
    )


def label_names(prefix: str, keys: Sequence[str]) -> tuple[str, ...]:
    """Names for a metric's labels; keys that come out alike are told apart by a number."""
    plain = [prefix + re.sub(r"[^a-zA-Z0-9_]", "_", key) for key in keys]
    counts, seen = Counter(plain), Counter[str]()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(f"{name}_conflict{seen[name]}" if counts[name] > 1 else name)
    return tuple(names)


PROCESS_METRICS = (
    Metric(
        PROCESS,
        "gputally_process_memory_used_bytes",
        GAUGE,
        'GPU memory of the process; process="other" is all that have no series of their own.',
        lambda use: use.memory_used_bytes,
    ),
    Metric(
        PROCESS,
        "gputally_process_sm_busy_seconds_total",
        COUNTER,
        "Time in which the driver's samples saw the process busy, since it has a series.",
        lambda use: micro(use.sm_busy_us),
    ),
    Metric(
        PROCESS,
        "gputally_process_start_time_seconds",
        GAUGE,
        "When the process started.",
        lambda use: use.start_time_seconds,
    ),
)
