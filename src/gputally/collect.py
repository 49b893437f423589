"""Sources and owners to a Snapshot; the one place where failure of the outside is caught."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace

from gputally.machine import Machine
from gputally.model import (
    Device,
    Health,
    Losses,
    Owner,
    Pace,
    Process,
    ProcessKey,
    Reading,
    Snapshot,
    State,
    Unreadable,
)
from gputally.owners import OWNERS, Resolver, resolve
from gputally.sources import Companion, Source

log = logging.getLogger(__name__)

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
DEPARTED_FOR = 30.0
"""Seconds for which a process that ended can still be named by a late sample."""


class Collector:
    """Asks everyone, and remembers which processes it has already seen."""

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        resolvers: Sequence[Resolver] = OWNERS,
        companions: Sequence[Companion] = (),
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._resolvers = resolvers
        self._companions = companions
        self._health: dict[str, Health] = {}
        self._known: dict[int, Process] = {}
        self._owners: dict[ProcessKey, Owner] = {}
        self._states: dict[str, State] = {}
        self._departed: dict[ProcessKey, tuple[Process, float]] = {}

    async def collect(self, pace: Pace) -> Snapshot:
        """The node as it is now."""
        readings = [await self._read(source.name, source.read(pace)) for source in self._sources]
        devices = tuple(device for reading in readings for device in reading.devices)
        for companion in self._companions:
            readings.append(await self._read(companion.name, companion.read(pace, devices)))
            devices = _filled(devices, readings[-1].devices)
        now = self._machine.clock.monotonic()
        self._log_states(devices)
        processes = self._processes(devices, now)
        return Snapshot(
            monotonic=now,
            time=self._machine.clock.time(),
            devices=devices,
            processes=processes,
            owners={p.key: self._owners[p.key] for p in processes.values()},
            health=tuple(self._health.values()),
            stuck=_together(
                *(reading.stuck for reading in readings), *(part.stuck for part in self._companions)
            ),
            losses=Losses.sum(reading.losses for reading in readings),
            self_usage=self._machine.self_usage() if pace is Pace.INTERVAL else Snapshot.self_usage,
        )

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

    def _processes(self, devices: Sequence[Device], now: float) -> dict[int, Process]:
        """Living processes that a GPU names, each read once, and for a while those that just went."""
        for key in self._machine.ended():
            self._depart(key, now)
        named = {h.pid for d in devices for h in d.holders or ()}
        named |= {a.pid for d in devices for a in d.activities or ()}
        for pid in sorted(named - self._known.keys()):
            process = self._machine.process(pid)
            if process is not None:
                self._known[pid] = process
                self._owners[process.key] = resolve(self._resolvers, process)
        self._forget(now)
        departed = {p.key.pid: p for p, _ in self._departed.values() if p.key.pid in named}
        return departed | {pid: p for pid, p in self._known.items() if pid in named}

    def _depart(self, key: ProcessKey, now: float) -> None:
        process = self._known.get(key.pid)
        if process is not None and process.key == key:
            del self._known[key.pid]
            self._departed[key] = (process, now)

    def _forget(self, now: float) -> None:
        for key in [k for k, (_, at) in self._departed.items() if now - at > DEPARTED_FOR]:
            del self._departed[key]
            del self._owners[key]


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
