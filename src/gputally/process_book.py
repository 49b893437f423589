"""Totals of single processes, bounded: old enough, the heaviest of each GPU by name, the rest together."""

from __future__ import annotations

from dataclasses import dataclass

from gputally.attribute import Shares
from gputally.model import Device, Owner, Process, ProcessKey, Snapshot
from gputally.tally import ProcessUse

OTHER = Owner(kind="other")
CLOCKS_DIFFER = 2.0
"""Seconds by which two accounts of one moment may differ."""


@dataclass(frozen=True)
class ProcessRules:
    """Which processes get series of their own."""

    min_age: float = 60.0
    top: int = 20


class ProcessBook:
    """A process with a series keeps it until it ends, so no total moves from one series to another."""

    def __init__(self, rules: ProcessRules) -> None:
        self._rules = rules
        self._named: dict[str, dict[ProcessKey, int]] = {}
        self._others: dict[str, int] = {}

    def post(self, shares: Shares, snapshot: Snapshot) -> None:
        """Add busy time to the process that has a name here, or to the others of its GPU."""
        for share in shares.processes:
            named = self._named.setdefault(share.uuid, {})
            if share.key in named and share.key is not None:
                named[share.key] += share.busy_us
            else:
                self._others[share.uuid] = self._others.get(share.uuid, 0) + share.busy_us

    def rows(self, snapshot: Snapshot, fresh: dict[str, Device]) -> tuple[ProcessUse, ...]:
        """One row per named process, one for the others of each GPU."""
        return tuple(row for device in fresh.values() for row in self._rows(device, snapshot))

    def _rows(self, device: Device, snapshot: Snapshot) -> list[ProcessUse]:
        held = {h.pid: h.memory_used_bytes for h in device.holders or ()}
        present = {
            snapshot.processes[pid].key: snapshot.processes[pid] for pid in held if pid in snapshot.processes
        }
        named = self._admit(device, present, held, snapshot)
        rows = [
            ProcessUse(
                snapshot.owners[key],
                device.index,
                device.uuid,
                str(key.pid),
                present[key].comm,
                held[key.pid],
                busy_us,
                present[key].started_at,
                _dcgm_energy(device, present[key]),
            )
            for key, busy_us in named.items()
        ]
        rest = [held[pid] for pid in held if not any(key.pid == pid for key in named)]
        if rest or device.uuid in self._others:
            memory = [used for used in rest if used is not None]
            busy_us = self._others.setdefault(device.uuid, 0)
            rows.append(
                ProcessUse(
                    OTHER, device.index, device.uuid, "", "other", sum(memory) if memory else None, busy_us
                )
            )
        return rows

    def _admit(
        self,
        device: Device,
        present: dict[ProcessKey, Process],
        held: dict[int, int | None],
        snapshot: Snapshot,
    ) -> dict[ProcessKey, int]:
        """Drop who ended, and give free places to the processes with the most memory."""
        before = self._named.get(device.uuid, {})
        named = {key: busy_us for key, busy_us in before.items() if key in present}
        waiting = [
            key
            for key, process in present.items()
            if key not in named and self._is_old(process, snapshot.time)
        ]
        waiting.sort(key=lambda key: (-(held[key.pid] or 0), key.pid))
        named |= dict.fromkeys(waiting[: max(0, self._rules.top - len(named))], 0)
        self._named[device.uuid] = named
        return named

    def _is_old(self, process: Process, now: float) -> bool:
        return process.started_at is None or now - process.started_at >= self._rules.min_age


def _dcgm_energy(device: Device, process: Process) -> float | None:
    """DCGM's record, unless it is of an earlier process that had this pid."""
    record = device.dcgm_records.get(process.key.pid)
    if record is None or (process.started_at or 0.0) > record.started_at + CLOCKS_DIFFER:
        return None
    return record.gpu_energy_joules
