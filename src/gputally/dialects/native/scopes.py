"""What native rows speak of, and the labels that tell those things apart."""

from __future__ import annotations

from gputally.metrics import Micro, Scope
from gputally.model import Detail, Device, Owner
from gputally.tally import GrantUse, ProcessUse, Tally, Workload


def _fresh(tally: Tally) -> list[Device]:
    return [gpu.device for gpu in tally.gpus if gpu.fresh]


def _device(device: Device) -> tuple[str, ...]:
    # Written empty: under honor_labels a series without them takes on the exporter's own pod.
    return (str(device.index), device.uuid, "", "", "")


def _names(owner: Owner) -> tuple[str, ...]:
    return (owner.kind, owner.namespace, owner.pod, owner.container, owner.workload)


def _work(use: Workload | ProcessUse) -> tuple[str, ...]:
    return (*_names(use.owner), str(use.gpu), use.uuid, "")


def _grant(use: GrantUse) -> tuple[str, ...]:
    return (*_names(use.owner), str(use.gpu), use.uuid, use.mig)


def _about(pair: tuple[Owner, Detail]) -> tuple[str, ...]:
    owner, detail = pair
    return (*_names(owner), detail.uid, detail.node, detail.container_id)


_DEVICE_LABELS = ("gpu", "uuid", "namespace", "pod", "container")
_OWNER_LABELS = ("kind", "namespace", "pod", "container", "workload")
_WORK_LABELS = (*_OWNER_LABELS, "gpu", "uuid", "mig")

EXPORTER = Scope("exporter", (), lambda tally: (tally,), lambda _: ())
SOURCE = Scope(
    "source",
    ("source",),
    lambda tally: [(health, tally.snapshot.monotonic) for health in tally.snapshot.health],
    lambda pair: (pair[0].source,),
)
GPU = Scope("gpu", _DEVICE_LABELS, lambda tally: tally.gpus, lambda gpu: _device(gpu.device))
DEVICE = Scope("device", _DEVICE_LABELS, _fresh, _device)
WORKLOAD = Scope("workload", _WORK_LABELS, lambda tally: tally.workloads, _work)
GRANT = Scope("grant", _WORK_LABELS, lambda tally: tally.grants, _grant)
OWNER = Scope(
    "owner",
    (*_OWNER_LABELS, "uid", "node", "container_id"),
    lambda tally: tally.snapshot.details.items(),
    _about,
)
PROCESS = Scope(
    "process",
    (*_WORK_LABELS, "pid", "process"),
    lambda tally: tally.processes,
    lambda use: (*_work(use), use.pid, use.process),
)


def micro(value: int | None) -> Micro | None:
    """Millionths of the unit, where they are known."""
    return None if value is None else Micro(value)
