"""Sources and owners to a Snapshot; the one place where failure of the outside is caught."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace

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
from gputally.sources import Companion, Source

log = logging.getLogger(__name__)

Watcher = Callable[[Sequence[Device]], None]
"""A resolver that wants to see the GPUs before it is asked whose their processes are."""

ADDED = (
    "graphics_active_ratio",
    "sm_active_ratio",
    "sm_occupancy_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "fp64_active_ratio",
    "fp32_active_ratio",
    "fp16_active_ratio",
    "pcie_transmit_bytes_per_second",
    "pcie_receive_bytes_per_second",
    "nvlink_transmit_bytes_per_second",
    "nvlink_receive_bytes_per_second",
    "dcgm_fields",
    "dcgm_records",
)
"""Attributes of a Device that a companion may fill where no source has told them."""


class Collector:
    """Asks everyone, and remembers how they were."""

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        resolvers: Sequence[Resolver] = OWNERS,
        watchers: Sequence[Watcher] = (),
        companions: Sequence[Companion] = (),
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._resolvers = resolvers
        self._companions = companions
        self._watchers = watchers
        self._census = Census(machine, resolvers)
        self._health: dict[str, Health] = {}
        self._states: dict[str, State] = {}
        self._namespaces: Namespaces | None = None
        self._mode: str | None = None

    async def collect(self, pace: Pace) -> Snapshot:
        """The node as it is now."""
        readings = [await self._read(source.name, source.read(pace)) for source in self._sources]
        devices = tuple(device for reading in readings for device in reading.devices)
        for companion in self._companions:
            readings.append(await self._read(companion.name, companion.read(pace, devices)))
            devices = _filled(devices, readings[-1].devices)
        now = self._machine.clock.monotonic()
        self._log_states(devices)
        mode, roll = self._roll(devices, now, pace)
        if mode == "no":
            devices = tuple(map(_without_processes, devices))
        return Snapshot(
            monotonic=now,
            time=self._machine.clock.time(),
            devices=devices,
            processes=roll.processes,
            owners=roll.owners,
            host_pid=mode,
            process_results=roll.results,
            health=tuple(self._health.values()),
            stuck=_together(
                *(reading.stuck for reading in readings), *(part.stuck for part in self._companions)
            ),
            losses=Losses.sum(reading.losses for reading in readings),
            self_usage=self._machine.self_usage() if pace is Pace.INTERVAL else Snapshot.self_usage,
        )

    def steps(self, process: Process) -> Iterator[tuple[str, Owner]]:
        """How the resolvers come to its owner, one after the other."""
        return steps(self._resolvers, process)

    async def close(self) -> None:
        """Let go of the hardware."""
        for companion in self._companions:
            await companion.close()
        for source in self._sources:
            await source.close()
        self._machine.close()

    async def _read(self, name: str, answer: Awaitable[Reading | None]) -> Reading:
        began = self._machine.clock.monotonic()
        try:
            reading = await answer
        except Unreadable as error:
            self._note(Health(name, up=False, reason=str(error)), began)
            return Reading()
        if reading is None:
            return Reading()
        self._note(Health(name, up=True), began)
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
        health = replace(health, duration_seconds=now - began, succeeded_at=succeeded_at)
        self._health[health.source] = health

    def _log_states(self, devices: Sequence[Device]) -> None:
        """One line when a GPU stops answering or answers again."""
        for device in devices:
            before = self._states.get(device.uuid, State.OK)
            if device.state is not before:
                level = logging.INFO if device.state is State.OK else logging.WARNING
                log.log(
                    level, "GPU %d (%s) is %s", device.index, device.uuid or "unknown", device.state.value
                )
            self._states[device.uuid] = device.state

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


def _without_processes(device: Device) -> Device:
    return replace(device, holders=None, activities=None, activity_seconds=None, dcgm_records={})


def _filled(devices: Sequence[Device], more: Sequence[Device]) -> tuple[Device, ...]:
    """The devices, with what others tell of the same GPU; whoever told a thing first is believed."""
    added = {device.uuid: device for device in more}
    return tuple(_fill(device, added.get(device.uuid)) for device in devices)


def _fill(device: Device, more: Device | None) -> Device:
    if more is None:
        return device
    absent = [name for name in ADDED if getattr(device, name) in (None, {})]
    return replace(device, **{name: getattr(more, name) for name in absent})


def _together(*parts: Mapping[str, int]) -> dict[str, int]:
    return {name: number for part in parts for name, number in part.items()}
