"""Which GPU a series of another exporter speaks of; those of other nodes are refused; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gputally.counted import NO_LOSSES
from gputally.foreign import ForeignFamily
from gputally.model import Device, Losses

Where = tuple[str, str]
"""A GPU's uuid, and that of a MIG instance or nothing."""


def local(
    families: Sequence[ForeignFamily], devices: Sequence[Device]
) -> tuple[tuple[ForeignFamily, ...], Losses]:
    """Only the series of these GPUs, each marked with its own; the rest is counted."""
    if not families:
        return (), NO_LOSSES
    where = _finder(devices)
    dropped: Counter[str] = Counter()
    kept = []
    for family in families:
        samples = []
        for sample in family.samples:
            found = where(dict(sample.labels))
            if isinstance(found, str):
                dropped[found] += 1
            else:
                samples.append(sample._replace(uuid=found[0], mig=found[1]))
        if samples:
            kept.append(family._replace(samples=tuple(samples)))
    return tuple(kept), Losses(dropped)


def _finder(devices: Sequence[Device]) -> Callable[[Mapping[str, str]], Where | str]:
    """Says which GPU labels speak of, or why they speak of none of ours."""
    known: dict[str, Where] = {device.uuid.lower(): (device.uuid, "") for device in devices if device.uuid}
    parts: dict[tuple[str, str], str] = {}
    for device in devices:
        known.setdefault(str(device.index), (device.uuid, ""))
        for instance in device.instances or ():
            known[instance.uuid.lower()] = (device.uuid, instance.uuid)
            parts[device.uuid, str(instance.gpu_instance)] = instance.uuid

    def where(labels: Mapping[str, str]) -> Where | str:
        key = labels.get("uuid") or labels.get("UUID")
        if key is not None and key.isdigit():
            return "upstream_foreign_gpu"
        key = key or labels.get("gpu")
        if not key:
            return "upstream_without_gpu"
        uuid, mig = known.get(key.lower(), ("", ""))
        if not uuid:
            return "upstream_foreign_gpu"
        return uuid, mig or parts.get((uuid, labels.get("GPU_I_ID", "")), "")

    return where
