"""The names of CM PurplePill: GPU memory in MiB, of whole GPUs and of every container on them."""

from __future__ import annotations

from typing import NamedTuple

from gputally.dialects.dcgm.values import mib, percent
from gputally.dialects.options import Options
from gputally.metrics import GAUGE, Metric, Scope
from gputally.model import Device
from gputally.tally import Tally


class Use(NamedTuple):
    """All that one pod, or one container outside Kubernetes, holds of a GPU."""

    gpu: int
    uuid: str
    pod: str
    namespace: str
    memory_used_bytes: int


def uses(tally: Tally) -> list[Use]:
    """One per pod and GPU, whatever number of containers and processes it has there."""
    held: dict[tuple[int, str, str, str], int] = {}
    for work in tally.workloads:
        owner = work.owner
        pod = owner.pod or owner.container
        if pod and work.memory_used_bytes is not None:
            key = (work.gpu, work.uuid, pod, owner.namespace)
            held[key] = held.get(key, 0) + work.memory_used_bytes
    return [Use(*key, memory) for key, memory in held.items()]


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table."""
    node = options.hostname
    device = Scope(
        "purplepill_gpu",
        ("gpu", "UUID", "modelName", "Hostname"),
        lambda tally: [gpu.device for gpu in tally.gpus if gpu.fresh],
        lambda gpu: (str(gpu.index), gpu.uuid, gpu.info.model or "", node),
    )
    pod = Scope(
        "purplepill_pod",
        ("gpu", "UUID", "Hostname", "device", "pod", "namespace", "stack_id"),
        uses,
        lambda use: (
            str(use.gpu),
            use.uuid,
            node,
            f"nvidia{use.gpu}",
            use.pod,
            use.namespace,
            use.pod.partition("-")[0],
        ),
    )
    return (
        _memory(device, "MEMORY_TOTAL", "Total GPU memory", "memory_total_bytes"),
        _memory(device, "MEMORY_USED_TOTAL", "Total used GPU memory", "memory_used_bytes"),
        _memory(device, "MEMORY_FREE", "Free GPU memory", "memory_free_bytes"),
        Metric(device, "CM_PURPLEPILL_GPU_UTILIZATION", GAUGE, "GPU utilization percentage.", _utilization),
        _memory(pod, "MEMORY_USED_POD", "Pod GPU memory usage", "memory_used_bytes"),
    )


def _memory(scope: Scope, name: str, what: str, attribute: str) -> Metric:
    return Metric(
        scope,
        f"CM_PURPLEPILL_GPU_{name}_MIB",
        GAUGE,
        f"{what} in MiB.",
        lambda thing: mib(getattr(thing, attribute)),
    )


def _utilization(device: Device) -> int | None:
    return percent(device.utilization_ratio)
