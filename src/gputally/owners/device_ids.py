"""Ids that device plugins and DRA drivers give to devices, and the GPU each of them means; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from gputally.model import Device, Instance

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


@dataclass(frozen=True)
class Target:
    """A device that an id means."""

    uuid: str
    mig: str = ""


@dataclass(frozen=True)
class DeviceId:
    """An id as it is written; `exclusive` = no two containers may have it at once."""

    means: Callable[[Inventory], Target | None]
    exclusive: bool


def marks(devices: Iterable[Device]) -> list[tuple[object, ...]]:
    """All that the meaning of ids follows from."""
    return [(d.uuid, d.index, d.info.minor_number, _parts(d.instances or ())) for d in devices]


def _parts(instances: Iterable[Instance]) -> list[tuple[object, ...]]:
    return [
        (i.uuid, i.gpu_instance, i.compute_instance, i.profile, i.profile_id, i.placement_start)
        for i in instances
    ]


class Inventory:
    """The GPUs there are, by everything an id may call them."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._devices = {device.uuid.lower(): device for device in devices}
        self._by_index = {device.index: device for device in self._devices.values()}
        self._by_minor = {d.info.minor_number: d for d in self._devices.values() if d.info.minor_number}
        self._instances = {
            instance.uuid.lower(): (device, instance)
            for device in self._devices.values()
            for instance in device.instances or ()
        }

    def gpu(self, uuid: str) -> Target | None:
        """By uuid."""
        device = self._devices.get(uuid.lower())
        return None if device is None else Target(device.uuid)

    def mig(self, uuid: str) -> Target | None:
        """An instance by uuid."""
        found = self._instances.get(uuid.lower())
        return None if found is None else Target(found[0].uuid, found[1].uuid)

    def index(self, number: str) -> Target | None:
        """By place in NVML's list."""
        device = self._by_index.get(int(number))
        return None if device is None else Target(device.uuid)

    def minor(self, number: str) -> Target | None:
        """By the number of /dev/nvidiaN."""
        device = self._by_minor.get(str(int(number)))
        return None if device is None else Target(device.uuid)

    def within(self, whole: Target | None, wanted: Callable[[Instance], bool]) -> Target | None:
        """The one instance of a GPU that is wanted; none where there are several."""
        device = None if whole is None else self._devices.get(whole.uuid.lower())
        found = [instance for instance in (device and device.instances) or () if wanted(instance)]
        return Target(device.uuid, found[0].uuid) if device and len(found) == 1 else None


@lru_cache(maxsize=4096)
def parse(text: str) -> DeviceId | None:
    """The id by the first form that fits; None for a form nobody knows."""
    for pattern, make in _FORMS:
        match = pattern.fullmatch(text)
        if match:
            return make(*match.groups())
    return None


def parse_dra(name: str) -> DeviceId | None:
    """A device name of NVIDIA's DRA driver."""
    for pattern, make in _DRA_FORMS:
        match = pattern.fullmatch(name)
        if match:
            return make(*match.groups())
    return None


def _gpu(uuid: str, replica: str | None) -> DeviceId:
    return DeviceId(lambda inventory: inventory.gpu(uuid), replica is None)


def _mig(uuid: str, replica: str | None) -> DeviceId:
    return DeviceId(lambda inventory: inventory.mig(uuid), replica is None)


def _old_mig(uuid: str, gi: str, ci: str, replica: str | None) -> DeviceId:
    def wanted(instance: Instance) -> bool:
        return (instance.gpu_instance, instance.compute_instance) == (int(gi), int(ci))

    return DeviceId(lambda inventory: inventory.within(inventory.gpu(uuid), wanted), replica is None)


def _file(minor: str, gi: str | None, share: str | None) -> DeviceId:
    def means(inventory: Inventory) -> Target | None:
        whole = inventory.minor(minor)
        return whole if gi is None else inventory.within(whole, lambda i: i.gpu_instance == int(gi))

    return DeviceId(means, share is None)


def _index(number: str, replica: str | None) -> DeviceId:
    return DeviceId(lambda inventory: inventory.index(number), replica is None)


def _split(uuid: str, share: str) -> DeviceId:
    return DeviceId(lambda inventory: inventory.gpu(uuid), exclusive=False)


def _dra_gpu(minor: str) -> DeviceId:
    return DeviceId(lambda inventory: inventory.minor(minor), exclusive=False)


def _dra_mig(minor: str, profile: str, number: str, start: str) -> DeviceId:
    def wanted(instance: Instance) -> bool:
        if instance.profile_id is not None and instance.placement_start is not None:
            return (instance.profile_id, instance.placement_start) == (int(number), int(start))
        # Where the driver or our rights do not tell that, an instance that is the only one of its profile.
        # NVML's name of a profile has dots (1g.10gb), a device name in Kubernetes cannot have them.
        plain = (instance.profile or "").lower().removeprefix("mig ")
        return re.sub(r"[^a-z0-9]", "", plain) == re.sub(r"[^a-z0-9]", "", profile)

    return DeviceId(lambda inventory: inventory.within(inventory.minor(minor), wanted), exclusive=False)


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., DeviceId]], ...] = (
    (re.compile(rf"(GPU-{_UUID})(?:::([0-9]{{1,6}}))?"), _gpu),
    (re.compile(rf"(MIG-{_UUID})(?:::([0-9]{{1,6}}))?"), _mig),
    (re.compile(rf"MIG-(GPU-{_UUID})/([0-9]{{1,4}})/([0-9]{{1,4}})(?:::([0-9]{{1,6}}))?"), _old_mig),
    (re.compile(r"nvidia([0-9]{1,4})(?:/gi([0-9]{1,4}))?(?:/vgpu([0-9]{1,6}))?"), _file),
    (re.compile(rf"(GPU-{_UUID})-([0-9]{{1,6}})"), _split),
    (re.compile(r"([0-9]{1,4})(?:::([0-9]{1,6}))?"), _index),
)
"""NVIDIA's plugin, the same under MIG, before driver 470, GKE's plugin, HAMi, and those that use indexes."""

_DRA_FORMS: tuple[tuple[re.Pattern[str], Callable[..., DeviceId]], ...] = (
    (re.compile(r"gpu-([0-9]{1,4})"), _dra_gpu),
    (re.compile(r"gpu-([0-9]{1,4})-mig-([a-z0-9-]{1,40}?)-([0-9]{1,4})-([0-9]{1,4})"), _dra_mig),
)
