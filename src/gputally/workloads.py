"""What a Tally says of workloads: who is there now, and what each used so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gputally.accounts import Books, Place
from gputally.model import UNKNOWN, Device, Snapshot
from gputally.tally import Workload


class Presence(NamedTuple):
    """The processes of a workload that hold a context."""

    processes: int = 0
    memory_used_bytes: int | None = None
    started_at: float | None = None
    """When the oldest of them started."""


ABSENT = Presence()


class Roster:
    """Who holds a context where; worked out anew only when somebody came, went or changed his memory."""

    def __init__(self) -> None:
        self._held: Mapping[str, Any] | None = None
        self._processes: Any = None
        self._owners: Any = None
        self._there: dict[Place, Presence] = {}

    def read(self, snapshot: Snapshot, fresh: Mapping[str, Device]) -> Mapping[Place, Presence]:
        """Presence of each workload on a GPU that answers."""
        held = {uuid: device.holders for uuid, device in fresh.items()}
        # A snapshot has other mappings as soon as anybody in them is another one.
        same = snapshot.processes is self._processes and snapshot.owners is self._owners
        if not same or held != self._held:
            self._held, self._processes, self._owners = held, snapshot.processes, snapshot.owners
            self._there = presence(snapshot, fresh)
        return self._there


def workloads(
    books: Books,
    snapshot: Snapshot,
    fresh: Mapping[str, Device],
    there: Mapping[Place, Presence],
    idle_told: bool,
) -> tuple[Workload, ...]:
    """One row per account on a GPU that is there; of one that hangs, totals only."""
    indexes = {device.uuid: device.index for device in snapshot.devices}
    windows_us = {uuid: account.window_seconds * 1e6 for uuid, account in books.gpus.items()}
    rows = []
    for place, account in books.work.items():
        owner, uuid, mig = place
        if uuid not in indexes:
            continue
        account.shown = True
        totals, device = account.totals, fresh.get(uuid)
        if totals.busy_us is None and device is not None and device.activities is not None:
            totals.busy_us = 0  # it could have been seen busy, and was not
        processes, memory, started_at = there.get(place, ABSENT)
        if processes:
            account.seen_at = snapshot.monotonic
        window_us = windows_us.get(uuid, 0.0) if processes else 0.0
        rows.append(
            Workload(
                owner,
                indexes[uuid],
                uuid,
                mig,
                None if device is None else processes > 0,
                processes or None,
                memory,
                min(1.0, account.window_us / window_us) if window_us > 0 else None,
                totals.busy_us,
                totals.energy_uj if owner is not UNKNOWN else None,
                totals.estimated_uj if owner is not UNKNOWN else None,
                totals.idle_uj if idle_told else None,
                started_at,
            )
        )
    return tuple(rows)


def presence(snapshot: Snapshot, fresh: Mapping[str, Device]) -> dict[Place, Presence]:
    """Who holds a context where."""
    found: dict[Place, Presence] = {}
    processes, owners = snapshot.processes, snapshot.owners
    for uuid, device in fresh.items():
        for pid, memory, mig in device.holders or ():
            process = processes.get(pid)
            owner = UNKNOWN if process is None else owners[process.key]
            one = Presence(1, memory, None if process is None else process.started_at)
            place = (owner, uuid, mig)
            before = found.get(place)
            found[place] = one if before is None else _together(before, one)
    return found


def _together(one: Presence, other: Presence) -> Presence:
    memories = [p.memory_used_bytes for p in (one, other) if p.memory_used_bytes is not None]
    starts = [p.started_at for p in (one, other) if p.started_at is not None]
    return Presence(
        one.processes + other.processes, sum(memories) if memories else None, min(starts, default=None)
    )
