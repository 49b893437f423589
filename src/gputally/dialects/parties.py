"""Rows of dialects that name the pod a GPU belongs to: one per GPU, or one per pod where it is shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from gputally.model import Claimed, Device, Instance, Owner
from gputally.tally import Claim, Gpu, Tally


class Row(NamedTuple):
    """A GPU, or one MIG instance of it, as one owner sees it.

    Readings of the hardware are the whole GPU's on each of its rows, as such exporters have it.
    Power and energy are divided: the rows of one GPU add up to the GPU's.
    """

    gpu: Gpu
    instance: Instance | None
    owner: Owner | None
    uid: str
    energy_uj: int | None
    power_ratio: float | None
    """Its part of the GPU's power; None where it has none to tell."""
    claimed: Claimed | None = None
    is_rest: bool = False
    """Only power and energy that belong to nobody; everything else is on the rows of the owners."""

    @property
    def device(self) -> Device:
        """The GPU itself."""
        return self.gpu.device


def rows(tally: Tally, *, pods: bool = True, instances: bool = True, others: bool = True) -> list[Row]:
    """All rows of all GPUs that answer; without `instances`, a row is of the whole GPU.

    Without `others`, no label says who somebody is that is no pod.
    """
    found: dict[tuple[object, ...], Row] = {}
    for gpu in tally.gpus:
        for row in _of_gpu(gpu, tally, pods) if gpu.fresh else ():
            part = row.instance if instances else None
            place = (gpu.device.uuid, None if part is None else part.gpu_instance)
            key = (*place, *_who(row.owner, others))
            found[key] = _joined(found.get(key), row._replace(instance=part))
    return list(found.values())


def _who(owner: Owner | None, others: bool) -> tuple[str, ...]:
    """What labels tell of an owner; not all know what a pod is part of."""
    if owner is None:
        return () if others else ("", "", "", "")
    return (owner.namespace, owner.pod, owner.container, owner.workload if others and not owner.pod else "")


def _joined(row: Row | None, more: Row) -> Row:
    """Two rows that no label tells apart, as one."""
    if row is None:
        return more
    return row._replace(
        energy_uj=_sum(row.energy_uj, more.energy_uj),
        power_ratio=_sum(row.power_ratio, more.power_ratio),
        is_rest=row.is_rest and more.is_rest,
    )


def _of_gpu(gpu: Gpu, tally: Tally, pods: bool) -> Iterator[Row]:
    claims = tally.claims.get(gpu.device.uuid, ()) if pods else ()
    named = [claim for claim in claims if claim.owner is not None]
    rest = next((claim for claim in claims if claim.owner is None), None)
    instances = {instance.uuid: instance for instance in gpu.device.instances or ()}
    if not named and not instances:
        yield _whole(gpu)
        return
    for claim in named:
        yield _row(gpu, instances.get(claim.mig), claim, tally)
    taken = {claim.mig for claim in named}
    for uuid, instance in instances.items():
        if uuid not in taken:
            yield Row(gpu, instance, None, "", None, None)
    if rest is not None:
        yield Row(gpu, None, None, "", _known(gpu, rest), rest.power_ratio, is_rest=True)
    elif not named:
        yield _whole(gpu)._replace(is_rest=True)


def _row(gpu: Gpu, instance: Instance | None, claim: Claim, tally: Tally) -> Row:
    assert claim.owner is not None
    detail = tally.snapshot.details.get(claim.owner)
    uid = "" if detail is None else detail.uid
    place = (claim.owner, gpu.device.uuid, claim.mig)
    claimed = [g.claimed for g in tally.snapshot.grants or () if (g.owner, g.uuid, g.mig) == place]
    by = claimed[0] if claimed else None
    return Row(gpu, instance, claim.owner, uid, _known(gpu, claim), claim.power_ratio, by)


def _whole(gpu: Gpu) -> Row:
    counted = gpu.energy_uj if gpu.integrated or gpu.device.energy_uj is None else gpu.device.energy_uj
    return Row(gpu, None, None, "", counted, 1.0)


Number = TypeVar("Number", int, float)


def _sum(before: Number | None, more: Number | None) -> Number | None:
    return more if before is None else before if more is None else before + more


def _known(gpu: Gpu, claim: Claim) -> int | None:
    return None if gpu.energy_uj is None else claim.energy_uj
