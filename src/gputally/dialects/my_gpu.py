"""The names of My GPU Exporter: every process on a GPU, with the pod it belongs to."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from gputally.dialects.options import Options
from gputally.metrics import COUNTER, GAUGE, Identity, Metric, Scope
from gputally.tally import ProcessStay

LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")
ENERGY = (
    "Energy of the GPU put down to the process, in joules: all of it while the process was alone, divided by"
    " activity while others were active too, so that processes add up to the GPU; {more}."
)

STAY = Scope(
    "stay",
    LABELS,
    lambda tally: tally.stays,
    attrgetter("pid", "gpu", "process", "owner", "uid", "container_id"),
    lambda identity: _labels(identity),
    ProcessStay._fields,
)


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table, with metric names that begin as wanted."""
    prefix = options.prefix
    return (
        Metric(
            STAY,
            f"{prefix}_energy_joules",
            COUNTER,
            ENERGY.format(more="the same number as with _total"),
            "energy_uj",
            millionths=True,
        ),
        Metric(
            STAY,
            f"{prefix}_energy_joules_total",
            COUNTER,
            ENERGY.format(more="the same number as without _total"),
            "energy_uj",
            millionths=True,
        ),
        Metric(
            STAY,
            f"{prefix}_sm_utilization_ratio",
            GAUGE,
            "Part of the newest interval in which the process was seen busy on the GPU, from 0 to 1.",
            "sm_utilization_ratio",
        ),
        Metric(
            STAY,
            f"{prefix}_memory_utilization_ratio",
            GAUGE,
            "Part of the newest interval in which the process used the GPU memory's bus, from 0 to 1.",
            "memory_utilization_ratio",
        ),
        Metric(
            STAY,
            f"{prefix}_memory_used_bytes",
            GAUGE,
            "GPU memory the process holds now, in bytes.",
            "memory_used_bytes",
        ),
        Metric(
            STAY,
            f"{prefix}_start_time_seconds",
            GAUGE,
            "When the process started, in seconds since the epoch.",
            "start_time_seconds",
        ),
        Metric(
            STAY,
            f"{prefix}_active",
            GAUGE,
            "1 while the process is on the GPU, 0 after it ended, while its totals are still shown.",
            "active",
        ),
    )


def _labels(identity: tuple[Any, ...]) -> Identity:
    pid, gpu, process, owner, uid, container_id = identity
    return (str(pid), str(gpu), process, owner.pod, owner.namespace, owner.container, uid, container_id)
