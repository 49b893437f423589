"""Sources and owners to a Snapshot; the one place where failure of the outside is caught."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gputally.machine import Machine
from gputally.model import (
    Device,
    Health,
    Losses,
    Namespaces,
    Owner,
    Pace,
    Process,
    Reading,
    Snapshot,
    State,
    Unreadable,
)
from gputally.owners import OWNERS, Resolver, steps
from gputally.owners.census import Census, Roll, pids
from gputally.owners.host_pid import FIX, host_pid
from gputally.owners.outside import Outside
from gputally.sources import Companion, Source
from gputally.sources.upstream_gpus import local

log = logging.getLogger(__name__)

T = TypeVar("T")

Watcher = Callable[[Sequence[Device]], None]
"""A resolver that wants to see the GPUs before it is asked whose their processes are."""

ADDED = (
    "activity_ratio",
    "pcie_bytes_per_second",
    "nvlink_bytes_per_second",
    "dcgm_fields",
    "dcgm_records",
)
"""Mappings of a Device to which a companion may add what no source has told."""


class Collector:
    """Asks everyone, and remembers how they were."""

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        resolvers: Sequence[Resolver] = OWNERS,
        watchers: Sequence[Watcher] = (),
        outside: Outside | None = None,
        companions: Sequence[Companion] = (),
        ratio: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._companions = companions
        self._outside = Outside() if outside is None else outside
        self._resolvers = (*resolvers, self._outside)
        self._watchers = watchers
        self._ratio = ratio
        self._census = Census(machine, self._resolvers)
        self._health: dict[str, Health] = {}
        self._states: dict[str | int, State] = {}
        self._namespaces: Namespaces | None = None
        self._mode: str | None = None

    async def start(self, *, once: bool = False) -> None:
        """Begin to ask those outside who name owners; `once` = ask them now, and never again."""
        if once:
            await self._outside.refresh()
        else:
            self._outside.start()

    async def collect(self, pace: Pace) -> Snapshot:
        """The node as it is now."""
        readings = [await self._read(source.name, source.read(pace)) for source in self._sources]
        devices = _each_once(readings)
        devices = devices or tuple(device for reading in readings for device in reading.seen)
        foreign, refused = local([family for reading in readings for family in reading.foreign], devices)
        there = [device for device in devices if device.state is not State.UNREAD]
        for companion in self._companions:
            more = self._read(companion.name, companion.read(pace, there), about="more of gpus")
            readings.append(await more)
            devices = _filled(devices, readings[-1].devices)
        now = self._machine.clock.monotonic()
        self._log_states(devices)
        mode, roll = self._roll(devices, now, pace)
        if mode == "no":
            devices = tuple(map(_without_processes, devices))
        if roll.waiting:
            self._outside.hurry()
        if pace is Pace.INTERVAL:
            self._outside.look(devices, roll.processes, roll.owners)
        return Snapshot(
            monotonic=now,
            time=self._machine.clock.time(),
            devices=devices,
            processes=roll.processes,
            owners=roll.owners,
            details=self._outside.details,
            grants=self._outside.grants,
            foreign=foreign,
            vgpu_ratio=self._ratio() if pace is Pace.INTERVAL else None,
            host_pid=mode,
            process_results=roll.results,
            health=(*self._health.values(), *self._outside.health()),
            stuck=_together(
                *(reading.stuck for reading in readings), *(part.stuck for part in self._companions)
            ),
            losses=Losses.sum([*(reading.losses for reading in readings), refused, self._outside.losses()]),
            calls=_together(*(reading.calls for reading in readings)),
            self_usage=self._machine.self_usage() if pace is Pace.INTERVAL else Snapshot.self_usage,
        )

    def steps(self, process: Process) -> Iterator[tuple[str, Owner]]:
        """How the resolvers come to its owner, one after the other."""
        return steps(self._resolvers, process)

    async def close(self) -> None:
        """Ask nobody any more, and let go of the hardware."""
        await self._outside.stop()
        for companion in self._companions:
            await companion.close()
        for source in self._sources:
            await source.close()
        self._machine.close()

    async def _read(self, name: str, answer: Awaitable[Reading | None], about: str = "gpus") -> Reading:
        began = self._machine.clock.monotonic()
        try:
            reading = await answer
        except Unreadable as error:
            self._note(Health(name, up=False, reason=str(error), code=error.code, about=about), began)
            return Reading()
        if reading is None:
            if about == "gpus":  # a source that is not needed is neither up nor down
                self._health.pop(name, None)
            return Reading()
        self._note(Health(name, not reading.down, reading.down, reading.code, about=about), began)
        return reading

    def _note(self, health: Health, began: float) -> None:
        """Remember how a source is, and log when that changes."""
        now = self._machine.clock.monotonic()
        before = self._health.get(health.source)
        succeeded_at = now if health.up else before.succeeded_at if before else None
        if not health.up and (before is None or before.up or before.reason != health.reason):
            log.warning("%s is down: %s", health.source, health.reason)
        if health.up and before is not None and not before.up:
            log.info("%s is back", health.source)
        self._health[health.source] = Health(
            health.source, health.up, health.reason, health.code, now - began, succeeded_at, health.about
        )

    def _log_states(self, devices: Sequence[Device]) -> None:
        """One line when a GPU stops answering or answers again."""
        for device in devices:
            if device.state is State.UNREAD:
                continue  # the source's own line says why
            key = device.uuid or device.index
            before = self._states.get(key, State.OK)
            if device.state is not before:
                level = logging.INFO if device.state is State.OK else logging.WARNING
                log.log(
                    level, "GPU %d (%s) is %s", device.index, device.uuid or "unknown", device.state.value
                )
            self._states[key] = device.state

    def _roll(self, devices: Sequence[Device], now: float, pace: Pace) -> tuple[str | None, Roll]:
        """Everyone on the GPUs, and whether that is everyone; in the wrong namespace nobody is."""
        if self._namespaces is None:
            self._namespaces = self._machine.namespaces()
        driver = next((d.info.driver_version for d in devices if d.info.driver_version), None)
        mode = host_pid(self._namespaces, driver, all_resolve=True)
        for look in self._watchers:
            look(devices)
        roll = Roll() if mode == "no" else self._census.take(devices, now, pace)
        if mode == "nested":
            mode = host_pid(self._namespaces, driver, all_resolve=not roll.lost)
        if mode == "no":
            roll = Roll(results={"no_host_pid": len(pids(devices))})
            if devices and self._mode != mode:
                log.warning("%s", FIX)
        self._mode = mode if devices else self._mode
        return mode, roll


def _each_once(readings: Sequence[Reading]) -> tuple[Device, ...]:
    """GPUs of all sources; those of one that is down only where no other tells of them."""
    devices = tuple(device for reading in readings if not reading.down for device in reading.devices)
    silent = {device.uuid: device for reading in readings if reading.down for device in reading.devices}
    known = {device.uuid for device in devices} if silent else set()
    return (*devices, *(device for uuid, device in silent.items() if uuid not in known))


def _without_processes(device: Device) -> Device:
    return replace(device, holders=None, activities=None, activity_seconds=None, dcgm_records={})


def _filled(devices: Sequence[Device], more: Sequence[Device]) -> tuple[Device, ...]:
    """The devices, with what others tell of the same GPU; whoever told a thing first is believed."""
    added = {device.uuid: device for device in more}
    return tuple(_fill(device, added.get(device.uuid)) for device in devices)


def _fill(device: Device, more: Device | None) -> Device:
    if more is None:
        return device
    both: dict[str, Any] = {name: {**getattr(more, name), **getattr(device, name)} for name in ADDED}
    return replace(device, **both)


def _together(*parts: Mapping[str, T]) -> Mapping[str, T]:
    """All of them; the very same mapping where only one says anything, so that it can be seen to stay."""
    told = [part for part in parts if part]
    return told[0] if len(told) == 1 else {name: number for part in told for name, number in part.items()}
