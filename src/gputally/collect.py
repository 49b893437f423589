"""Sources and owners to a Snapshot; the one place where failure of the outside is caught."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gputally.machine import Machine
from gputally.model import (
    PENDING,
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
from gputally.sources import Source
from gputally.sources.upstream_gpus import local

log = logging.getLogger(__name__)

Watcher = Callable[[Sequence[Device]], None]
"""A resolver that wants to see the GPUs before it is asked whose their processes are."""


class Collector:
    """Asks everyone, and remembers how they were."""

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        resolvers: Sequence[Resolver] = OWNERS,
        watchers: Sequence[Watcher] = (),
        outside: Outside | None = None,
        ratio: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._outside = Outside() if outside is None else outside
        self._resolvers = (*resolvers, self._outside)
        self._watchers = watchers
        self._ratio = ratio
        self._census = Census(machine, self._resolvers)
        self._health: dict[str, Health] = {}
        self._states: dict[str, State] = {}
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
        readings = [await self._read(source, pace) for source in self._sources]
        now = self._machine.clock.monotonic()
        devices = tuple(device for reading in readings for device in reading.devices)
        devices = devices or tuple(device for reading in readings for device in reading.seen)
        foreign, refused = local([family for reading in readings for family in reading.foreign], devices)
        self._log_states(devices)
        mode, roll = self._roll(devices, now, pace)
        if mode == "no":
            devices = tuple(map(_without_processes, devices))
        if any(owner is PENDING for owner in roll.owners.values()):
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
            stuck={lane: stuck for reading in readings for lane, stuck in reading.stuck.items()},
            losses=Losses.sum([*(reading.losses for reading in readings), refused, self._outside.losses()]),
            self_usage=self._machine.self_usage() if pace is Pace.INTERVAL else Snapshot.self_usage,
        )

    def steps(self, process: Process) -> Iterator[tuple[str, Owner]]:
        """How the resolvers come to its owner, one after the other."""
        return steps(self._resolvers, process)

    async def close(self) -> None:
        """Ask nobody any more, and let go of the hardware."""
        await self._outside.stop()
        for source in self._sources:
            await source.close()
        self._machine.close()

    async def _read(self, source: Source, pace: Pace) -> Reading:
        began = self._machine.clock.monotonic()
        try:
            reading = await source.read(pace)
        except Unreadable as error:
            self._note(Health(source.name, up=False, reason=str(error)), began)
            return Reading()
        if reading is None:
            self._health.pop(source.name, None)
            return Reading()
        self._note(Health(source.name, up=not reading.down, reason=reading.down), began)
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
    return replace(device, holders=None, activities=None, activity_seconds=None)
