"""What native rows speak of, and the labels that tell those things apart."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from gputally.metrics import Scope
from gputally.model import Device, Instance
from gputally.tally import NamespaceUse, ProcessUse, Tally, Workload


def _fresh(tally: Tally) -> list[Device]:
    return [gpu.device for gpu in tally.gpus if gpu.fresh]


def _device(device: Device) -> tuple[str, ...]:
    # Written empty: under honor_labels a series without them takes on the exporter's own pod.
    return (str(device.index), device.uuid, "", "", "")


def _instances(tally: Tally) -> list[tuple[Device, Instance]]:
    return [(device, part) for device in _fresh(tally) for part in device.instances or ()]


def work(identity: tuple[Any, ...]) -> tuple[str, ...]:
    """Label values of what begins with an owner and the number of a GPU."""
    owner, gpu, *more = identity
    return (owner.kind, owner.namespace, owner.pod, owner.container, owner.workload, str(gpu), *more)


_DEVICE_LABELS = ("gpu", "uuid", "namespace", "pod", "container")
WORK_LABELS = ("kind", "namespace", "pod", "container", "workload", "gpu", "uuid", "mig")
TO_MIG, TO_PROCESS = 4, 6
"""Fields with which all tuples about work begin, owner, gpu, uuid and mig; and those about processes."""

EXPORTER = Scope("exporter", (), lambda tally: (tally,), lambda _: ())
SOURCE = Scope(
    "source",
    ("source",),
    lambda tally: [(health, tally.snapshot.monotonic) for health in tally.snapshot.health],
    lambda pair: (pair[0].source,),
)
CALL = Scope("call", ("call",), lambda tally: tally.snapshot.calls, itemgetter(slice(1)))
GPU = Scope("gpu", _DEVICE_LABELS, lambda tally: tally.gpus, lambda gpu: _device(gpu.device))
DEVICE = Scope("device", _DEVICE_LABELS, _fresh, _device)
INSTANCE = Scope(
    "mig",
    (*_DEVICE_LABELS, "mig"),
    _instances,
    lambda pair: (*_device(pair[0]), pair[1].uuid),
)
WORKLOAD = Scope(
    "workload",
    WORK_LABELS,
    lambda tally: tally.workloads,
    itemgetter(slice(TO_MIG)),
    work,
    Workload._fields,
    TO_MIG,
)
NAMESPACE = Scope(
    "namespace",
    ("kind", "namespace", "gpu", "uuid"),
    lambda tally: tally.namespaces,
    itemgetter(slice(4)),
    lambda identity: tuple(map(str, identity)),
    NamespaceUse._fields,
    4,
)
PROCESS = Scope(
    "process",
    (*WORK_LABELS, "pid", "process"),
    lambda tally: tally.processes,
    itemgetter(slice(TO_PROCESS)),
    work,
    ProcessUse._fields,
    TO_PROCESS,
)
