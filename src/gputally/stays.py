"""Totals of every process on a GPU, however short-lived, kept for a while after it ended."""

from __future__ import annotations

from dataclasses import dataclass

from gputally.model import PENDING, UNKNOWN, Detail, Device, Owner, Process, ProcessKey, Snapshot
from gputally.shares import Shares
from gputally.tally import ProcessStay

MOST = 10_000

Spot = tuple[ProcessKey, str]
"""A process, on a GPU."""


@dataclass(slots=True)
class _Stay:
    process: Process
    since: float
    seen_at: float
    owner: Owner | None = None
    """None until it is shown; from then on its labels stay."""
    detail: Detail = Detail()  # noqa: RUF009  it is frozen
    energy_uj: int = 0
    window_us: float = 0.0
    memory_window_us: float = 0.0
    shown: bool = False


class StayBook:
    """A process is shown from its first Tally on, and with the totals it had until the retention is over."""

    def __init__(self, retention: float, name_within: float, scraped: bool) -> None:
        self._retention = retention
        self._name_within = name_within
        self._scraped = scraped
        self._stays: dict[Spot, _Stay] = {}
        self._window: dict[str, float] = {}
        self._tells_memory: set[str] = set()
        """GPUs whose driver says who uses memory's bus."""

    def post(self, shares: Shares, snapshot: Snapshot) -> None:
        """Add what this tick brought."""
        for gpu in shares.gpus:
            self._window[gpu.uuid] = self._window.get(gpu.uuid, 0.0) + (gpu.activity_seconds or 0.0)
        for share in shares.processes:
            stay = self._stay(share.key, share.uuid, snapshot)
            if stay is not None:
                stay.energy_uj += share.energy_uj + share.idle_uj
                stay.window_us += share.busy_us or 0
        for device in snapshot.devices:
            self._post_memory(device, snapshot)

    def rows(self, snapshot: Snapshot, fresh: dict[str, Device]) -> tuple[ProcessStay, ...]:
        """Everyone who is there, or was a while ago; of a GPU that hangs, totals only."""
        indexes = {device.uuid: device.index for device in snapshot.devices}
        held = self._held(snapshot, fresh)
        rows = [
            self._row(spot, stay, indexes[spot[1]], snapshot, fresh, held.get(spot))
            for spot, stay in self._stays.items()
            if spot[1] in indexes and self._is_named(spot[0], stay, snapshot)
        ]
        self._turn_page(snapshot.monotonic, fresh)
        return tuple(rows)

    def _stay(self, key: ProcessKey, uuid: str, snapshot: Snapshot) -> _Stay | None:
        stay = self._stays.get((key, uuid))
        process = snapshot.processes.get(key.pid)
        if stay is None and process is not None and process.key == key and len(self._stays) < MOST:
            for old in [s for s in self._stays if s[0].pid == key.pid and s[1] == uuid]:
                del self._stays[old]  # another process had this number; its series goes on as this one's
            stay = self._stays[key, uuid] = _Stay(process, snapshot.monotonic, snapshot.monotonic)
        if stay is not None:
            stay.seen_at = snapshot.monotonic
        return stay

    def _post_memory(self, device: Device, snapshot: Snapshot) -> None:
        for activity in device.activities or ():
            process = snapshot.processes.get(activity.pid)
            stay = None if process is None else self._stays.get((process.key, device.uuid))
            if stay is not None and activity.memory_ratio is not None:
                self._tells_memory.add(device.uuid)
                stay.memory_window_us += activity.memory_ratio * (device.activity_seconds or 0.0) * 1e6

    def _held(self, snapshot: Snapshot, fresh: dict[str, Device]) -> dict[Spot, int | None]:
        """Memory of everyone who holds a context; in several MIG instances, of all of them."""
        held: dict[Spot, int | None] = {}
        for uuid, device in fresh.items():
            for holder in device.holders or ():
                process = snapshot.processes.get(holder.pid)
                if process is not None and self._stay(process.key, uuid, snapshot) is not None:
                    before, more = held.get((process.key, uuid)), holder.memory_used_bytes
                    held[process.key, uuid] = more if before is None else before + (more or 0)
        return held

    def _is_named(self, key: ProcessKey, stay: _Stay, snapshot: Snapshot) -> bool:
        if stay.owner is None:
            owner = snapshot.owners.get(key, UNKNOWN)
            if owner is PENDING and snapshot.monotonic - stay.since <= self._name_within:
                return False
            stay.owner, stay.detail = owner, snapshot.details.get(owner, stay.detail)
        return True

    def _row(
        self,
        spot: Spot,
        stay: _Stay,
        index: int,
        snapshot: Snapshot,
        fresh: dict[str, Device],
        memory: int | None,
    ) -> ProcessStay:
        key, uuid = spot
        holders = fresh[uuid].holders if uuid in fresh else None
        there = any(holder.pid == key.pid for holder in holders or ())
        alive = snapshot.processes.get(key.pid)
        active = there and alive is not None and alive.key == key
        window = self._window.get(uuid, 0.0) * 1e6 if active else 0.0
        memory_window = window if uuid in self._tells_memory else 0.0
        energy_uj = stay.energy_uj if stay.shown or not self._scraped else 0
        stay.shown = True  # at zero, so that increase() sees all of what follows
        assert stay.owner is not None
        return ProcessStay(
            stay.owner,
            stay.detail.uid,
            stay.detail.container_id,
            index,
            uuid,
            key.pid,
            stay.process.comm,
            active=None if holders is None else active,
            energy_uj=energy_uj,
            memory_used_bytes=memory,
            sm_utilization_ratio=min(1.0, stay.window_us / window) if window else None,
            memory_utilization_ratio=min(1.0, stay.memory_window_us / memory_window)
            if memory_window
            else None,
            start_time_seconds=stay.process.started_at,
        )

    def _turn_page(self, now: float, fresh: dict[str, Device]) -> None:
        self._window.clear()
        for spot, stay in list(self._stays.items()):
            stay.window_us = stay.memory_window_us = 0.0
            if spot[1] not in fresh:
                stay.seen_at = now  # of a GPU that does not answer, nobody can say who left it
            elif now - stay.seen_at > self._retention:
                del self._stays[spot]
