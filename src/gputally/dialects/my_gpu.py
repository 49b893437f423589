"""The names of My GPU Exporter: every process on a GPU, with the pod it belongs to."""

from __future__ import annotations

from gputally.dialects.options import Options
from gputally.metrics import COUNTER, GAUGE, Identity, Metric, Micro, Scope
from gputally.tally import ProcessStay

LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")
ENERGY = (
    "Energy of the GPU put down to the process, in joules: all of it while the process was alone, divided by"
    " activity while others were active too, so that processes add up to the GPU; {more}."
)

STAY = Scope("stay", LABELS, lambda tally: tally.stays, lambda stay: _labels(stay))


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table, with metric names that begin as wanted."""
    prefix = options.prefix
    return (
        Metric(
            STAY,
            f"{prefix}_energy_joules",
            COUNTER,
            ENERGY.format(more="the same number as with _total"),
            _energy,
        ),
        Metric(
            STAY,
            f"{prefix}_energy_joules_total",
            COUNTER,
            ENERGY.format(more="the same number as without _total"),
            _energy,
        ),
        Metric(
            STAY,
            f"{prefix}_sm_utilization_ratio",
            GAUGE,
            "Part of the newest interval in which the process was seen busy on the GPU, from 0 to 1.",
            lambda stay: stay.sm_utilization_ratio,
        ),
        Metric(
            STAY,
            f"{prefix}_memory_utilization_ratio",
            GAUGE,
            "Part of the newest interval in which the process used the GPU memory's bus, from 0 to 1.",
            lambda stay: stay.memory_utilization_ratio,
        ),
        Metric(
            STAY,
            f"{prefix}_memory_used_bytes",
            GAUGE,
            "GPU memory the process holds now, in bytes.",
            lambda stay: stay.memory_used_bytes,
        ),
        Metric(
            STAY,
            f"{prefix}_start_time_seconds",
            GAUGE,
            "When the process started, in seconds since the epoch.",
            lambda stay: stay.start_time_seconds,
        ),
        Metric(
            STAY,
            f"{prefix}_active",
            GAUGE,
            "1 while the process is on the GPU, 0 after it ended, while its totals are still shown.",
            lambda stay: stay.active,
        ),
    )


def _energy(stay: ProcessStay) -> Micro | None:
    return None if stay.energy_uj is None else Micro(stay.energy_uj)


def _labels(stay: ProcessStay) -> Identity:
    owner = stay.owner
    names = (owner.pod, owner.namespace, owner.container, stay.uid, stay.container_id)
    return (str(stay.pid), str(stay.gpu), stay.process, *names)
