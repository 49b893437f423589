"""The names of k8s-vgpu-monitor: what each pod uses of a GPU that is divided by a ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from gputally.dialects.dcgm.values import mib
from gputally.dialects.options import Options
from gputally.metrics import GAUGE, Identity, Metric, Scope
from gputally.model import Device, Instance
from gputally.tally import Tally


@dataclass
class Use:
    """A pod on a GPU; pods of one name are one where nothing tells them apart."""

    gpu: int
    pod: str
    namespace: str
    sm_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    ratio: float | None = None
    """The newest, where it is read while we run."""


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table."""
    more = ("namespace",) if options.namespace_label else ()

    def identity(use: Use) -> Identity:
        return (str(use.gpu), use.pod, *((use.namespace,) if more else ()))

    scope = Scope("vgpu", ("gpu_id", "pod", *more), lambda tally: _uses(tally, bool(more)), identity)
    return (
        Metric(
            scope,
            "pod_gpu_sm_util",
            GAUGE,
            "GPU SM utilization per pod, in percent of the physical GPU.",
            lambda use: None if use.sm_ratio is None else 100 * use.sm_ratio,
        ),
        Metric(
            scope,
            "pod_gpu_memory_used",
            GAUGE,
            "GPU memory usage per pod, in MiB.",
            lambda use: mib(use.memory_used_bytes),
        ),
        Metric(
            scope,
            "pod_total_gpu_memory",
            GAUGE,
            "Total GPU memory per pod, in MiB: that of the GPU divided by the virtualization ratio.",
            lambda use: _share(use.memory_total_bytes, use.ratio or options.ratio),
        ),
    )


def _uses(tally: Tally, by_namespace: bool) -> list[Use]:
    totals, ratio = _totals(tally), getattr(tally.snapshot, "vgpu_ratio", None)
    found: dict[tuple[str, str, str], Use] = {}
    for work in tally.workloads:
        owner = work.owner
        if not owner.pod or not work.active:
            continue
        key = (work.uuid, owner.pod, owner.namespace if by_namespace else "")
        use = found.setdefault(key, Use(work.gpu, owner.pod, owner.namespace, ratio=ratio))
        use.sm_ratio = _sum(use.sm_ratio, work.sm_utilization_ratio)
        use.memory_used_bytes = _sum(use.memory_used_bytes, work.memory_used_bytes)
        use.memory_total_bytes = totals.get(work.mig or work.uuid)
    return list(found.values())


def _totals(tally: Tally) -> dict[str, int]:
    """Memory of every GPU and MIG instance, by uuid."""
    devices = [gpu.device for gpu in tally.gpus if gpu.fresh]
    things: list[Device | Instance] = [*devices, *(part for d in devices for part in d.instances or ())]
    return {thing.uuid: size for thing in things if (size := thing.memory_total_bytes) is not None}


Number = TypeVar("Number", int, float)


def _sum(before: Number | None, more: Number | None) -> Number | None:
    return more if before is None else before if more is None else before + more


def _share(size: int | None, ratio: float) -> int | None:
    return None if size is None else int(size / ratio) >> 20
