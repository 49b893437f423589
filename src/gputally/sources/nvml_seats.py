"""Where GPUs sit: which are wanted, and the lane and newest reading of each index."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from gputally.counted import Counters
from gputally.lanes import Lane
from gputally.model import Device, DeviceInfo, Pace, State
from gputally.sources.nvml_fields import Values
from gputally.sources.nvml_gpu import Answers, Gpu

log = logging.getLogger(__name__)

NO_GPU = (
    "nvml: the driver has no GPU; is one in this machine and bound to the driver, and given to this container"
    " (NVIDIA_VISIBLE_DEVICES=all, or CDI)? `nvidia-smi -L` lists them"
)
T = TypeVar("T", Device, Counters)

TOLD_FOR = 3600.0
"""Seconds for which a GPU is still told of that a driver loaded since does not have."""


class Choice:
    """Which GPUs are wanted: all, or some by index and some by uuid."""

    def __init__(self, gpus: tuple[str, ...] = ()) -> None:
        self.all = not gpus
        self._gpus = gpus
        self._lacked: list[str] = []
        self.indexes = frozenset(int(g) for g in gpus if g.isdigit())
        self.uuids = frozenset(g for g in gpus if not g.isdigit())

    def untouched(self, index: int) -> bool:
        """A GPU that need not even be asked who it is."""
        return not self.all and not self.uuids and index not in self.indexes

    def wanted(self, index: int, uuid: str) -> bool:
        """A GPU that is to be read."""
        return self.all or index in self.indexes or uuid in self.uuids

    def nothing(self, count: int, seated: Collection[str], absent: Collection[str]) -> str:
        """Why there is no GPU to tell of, though the driver answers; some that are not there are logged."""
        if not count:
            return NO_GPU
        if self.all:
            return ""
        # An empty uuid is of one that has not said yet who it is.
        missing = [u for u in self._gpus if u in self.uuids and u not in seated and u not in absent]
        missing = [] if "" in seated else missing
        lacking = [g for g in self._gpus if g in missing or (g.isdigit() and int(g) >= count)]
        told = (
            f"--gpus {','.join(lacking)}: not there; the driver has {count} GPUs, `nvidia-smi -L` lists them"
        )
        if len(lacking) == len(self._gpus):
            return f"nvml: {told}"
        if lacking and lacking != self._lacked:
            log.warning("%s", told)
        self._lacked = lacking
        return ""


@dataclass
class Seat:
    """An index on the bus: its lane, its GPU, what was last known of it."""

    lane: Lane
    gpu: Gpu
    device: Device
    reading: asyncio.Future[Answers] | None = None
    identify: bool = True
    code: int | None = None
    """With what it last failed, 0 where that was no code; None while it answers."""
    fault: str = ""
    """What was wrong with its last answers that nobody had thought of."""
    pause: float = 0.0
    not_before: float = 0.0
    gauges_not_before: float = 0.0
    _blank: Device | None = None
    _fixed: Values | None = None
    """What stays of the one that is blank."""

    def blank_of(self, uuid: str, info: DeviceInfo) -> Device:
        """The GPU that sits here, with nothing but what stays."""
        known, fixed = self._blank, self.gpu.fixed
        if known is None or known.uuid != uuid or known.info is not info or self._fixed is not fixed:
            known = self._blank = Device(uuid, self.gpu.index, info=info, **fixed)
            self._fixed = fixed
        return known


class Absent:
    """GPUs that were there and cannot be read: what is left of each."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self._until: dict[str, float] = {}

    def add(self, device: Device, state: State) -> None:
        """A GPU that went, or whose driver did; it is told of until it is found."""
        if device.uuid:
            self.devices[device.uuid] = bare(device, state)
            self._until.pop(device.uuid, None)

    def lose(self, now: float) -> None:
        """A driver was loaded: those that it does not have are lost, and told of for a while."""
        self.devices = {uuid: bare(device, State.LOST) for uuid, device in self.devices.items()}
        self._until = dict.fromkeys(self.devices, now + TOLD_FOR)

    def tidy(self, found: Collection[str | int], now: float) -> None:
        """Those that were found are not absent, and of others enough was told."""
        if self.devices:
            self.devices = {
                uuid: device
                for uuid, device in self.devices.items()
                if uuid not in found and now < self._until.get(uuid, math.inf)
            }


class Epochs:
    """Of each GPU a number that grows when it came back, or its MIG layout changed."""

    def __init__(self) -> None:
        self._layouts: dict[str, tuple[str, ...] | None] = {}
        self._changes: dict[str, int] = {}

    def changes(self, answers: Answers, returned: bool) -> int:
        """How often that was so far, with these answers."""
        uuid = answers.uuid
        changed = int(returned)
        if answers.pace is Pace.INTERVAL and answers.values:
            instances = answers.values.get("instances")
            layout = None if instances is None else tuple(sorted(i.uuid for i in instances))
            changed += self._layouts.setdefault(uuid, layout) != layout
            self._layouts[uuid] = layout
        if changed:
            self._changes[uuid] = self._changes.get(uuid, 0) + changed
        return self._changes.get(uuid, 0)


def bare(device: Device, state: State) -> Device:
    """What is left of a GPU that does not answer: its name, how it is, and what it had counted."""
    return Device(
        uuid=device.uuid,
        index=device.index,
        info=device.info,
        state=state,
        epoch=device.epoch,
        counters=device.counters,
        xids=device.xids,
    )


def updated(thing: T, values: Values) -> T:
    """Another of its kind with these values; dataclasses.replace would cost a tick ten times as much."""
    another = object.__new__(type(thing))
    object.__setattr__(another, "__dict__", vars(thing) | values)
    return another
