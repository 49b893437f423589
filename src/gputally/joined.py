"""Series of another exporter brought together with the pods on our GPUs; pure."""

from __future__ import annotations

from gputally.foreign import ForeignFamily, ForeignSample
from gputally.limits import held
from gputally.model import Owner, Snapshot

PodLabels = tuple[str, str, str]
"""What pod, namespace and container are called."""
POD_LABELS: PodLabels = ("pod", "namespace", "container")
Where = tuple[str, str]
"""A GPU's uuid, and that of a MIG instance or nothing."""


def with_pods(snapshot: Snapshot, names: PodLabels = POD_LABELS) -> list[ForeignFamily]:
    """The foreign series with the pod that has their GPU to itself, where there is one."""
    pods = _pods(snapshot)
    return [
        family._replace(samples=tuple(_labelled(s, pods.get((s.uuid, s.mig)), names) for s in family.samples))
        for family in snapshot.foreign
    ]


def _pods(snapshot: Snapshot) -> dict[Where, tuple[str, str, str]]:
    """Pod, namespace and container of GPUs that one pod was granted, or failing grants that one pod is on."""
    granted: dict[Where, set[Owner]] = {}
    for grant in snapshot.grants or ():
        granted.setdefault((grant.uuid, grant.mig), set()).add(grant.owner)
    used: dict[Where, set[Owner]] = {}
    for owner, uuid, mig in held(snapshot):
        if owner.kind == "pod":
            used.setdefault((uuid, mig), set()).add(owner)
    found = {}
    for where, owners in {**used, **granted}.items():
        if len({(owner.namespace, owner.pod) for owner in owners}) == 1:
            containers = {owner.container for owner in owners}
            one = next(iter(owners))
            found[where] = (one.pod, one.namespace, containers.pop() if len(containers) == 1 else "")
    return found


def _labelled(sample: ForeignSample, pod: tuple[str, str, str] | None, names: PodLabels) -> ForeignSample:
    """With the pod's labels, unless it says itself whose it is."""
    labels = dict(sample.labels)
    if pod is None or any(labels.get(name) for name in names):
        return sample
    return sample._replace(labels=tuple({**labels, **dict(zip(names, pod, strict=True))}.items()))
