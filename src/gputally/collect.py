"""Sources and owners to a Snapshot; the one place where failure of the outside is caught."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from gputally.machine import Machine
from gputally.model import (
    PENDING,
    UNNAMED,
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
from gputally.owners.outside import Outside
from gputally.sources import Source

log = logging.getLogger(__name__)

DEPARTED_FOR = 30.0
"""Seconds for which a process that ended can still be named by a late sample."""


class Collector:
    """Asks everyone, and remembers which processes it has already seen."""

    def __init__(
        self,
        machine: Machine,
        sources: Sequence[Source],
        resolvers: Sequence[Resolver] = OWNERS,
        outside: Outside | None = None,
    ) -> None:
        self._machine = machine
        self._sources = sources
        self._outside = Outside() if outside is None else outside
        self._resolvers = (*resolvers, self._outside)
        self._health: dict[str, Health] = {}
        self._known: dict[int, Process] = {}
        self._owners: dict[ProcessKey, Owner] = {}
        self._states: dict[str, State] = {}
        self._departed: dict[ProcessKey, tuple[Process, float]] = {}
        self._nameless: dict[ProcessKey, Process] = {}

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
        self._log_states(devices)
        processes = self._processes(devices, now)
        owners = {p.key: self._owners[p.key] for p in processes.values()}
        if pace is Pace.INTERVAL:
            self._outside.look(devices, processes, owners)
        return Snapshot(
            monotonic=now,
            time=self._machine.clock.time(),
            devices=devices,
            processes=processes,
            owners=owners,
            details=self._outside.details,
            grants=self._outside.grants,
            health=(*self._health.values(), *self._outside.health()),
            stuck={lane: stuck for reading in readings for lane, stuck in reading.stuck.items()},
            losses=Losses.sum([*(reading.losses for reading in readings), self._outside.losses()]),
            self_usage=self._machine.self_usage() if pace is Pace.INTERVAL else Snapshot.self_usage,
        )

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
        self._note(Health(source.name, up=True), began)
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
                self._resolve(process)
        for process in list(self._nameless.values()):
            self._resolve(process)
        if self._nameless:
            self._outside.hurry()
        self._forget(now)
        departed = {p.key.pid: p for p, _ in self._departed.values() if p.key.pid in named}
        return departed | {pid: p for pid, p in self._known.items() if pid in named}

    def _resolve(self, process: Process) -> None:
        """Say whose it is; who has no name yet is asked about again at the next tick."""
        owner = self._owners[process.key] = resolve(self._resolvers, process)
        if owner in (PENDING, UNNAMED):
            self._nameless[process.key] = process
        else:
            self._nameless.pop(process.key, None)

    def _depart(self, key: ProcessKey, now: float) -> None:
        process = self._known.get(key.pid)
        if process is not None and process.key == key:
            del self._known[key.pid]
            self._departed[key] = (process, now)

    def _forget(self, now: float) -> None:
        for key in [k for k, (_, at) in self._departed.items() if now - at > DEPARTED_FOR]:
            del self._departed[key]
            del self._owners[key]
            self._nameless.pop(key, None)
