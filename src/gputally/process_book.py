"""Totals of single processes, bounded: old enough, the heaviest of each GPU by name, the rest together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputally.accounts import Amounts
from gputally.model import Device, Owner, Process, ProcessKey, Snapshot
from gputally.shares import Shares
from gputally.tally import ProcessUse
from gputally.weights import Seat

OTHER = Owner(kind="other")
CLOCKS_DIFFER = 2.0
"""Seconds by which two accounts of one moment may differ."""


@dataclass(frozen=True)
class ProcessRules:
    """Which processes get series of their own."""

    min_age: float = 60.0
    top: int = 20


@dataclass(frozen=True)
class _Named:
    """A process with a series."""

    owner: Owner
    process: Process
    amounts: Amounts


class ProcessBook:
    """A process with a series keeps it until it ends, so no total moves from one series to another."""

    def __init__(self, rules: ProcessRules) -> None:
        self._rules = rules
        self._named: dict[str, dict[Seat, _Named]] = {}
        self._others: dict[str, Amounts] = {}

    def post(self, shares: Shares) -> None:
        """Add to the process that has a name here, or to the others of its GPU."""
        for share in shares.processes:
            named = self._named.get(share.uuid, {}).get((share.key, share.mig))
            amounts = self._others.setdefault(share.uuid, Amounts()) if named is None else named.amounts
            amounts.add(Amounts(share.energy_uj, busy_us=share.busy_us))

    def rows(self, snapshot: Snapshot, fresh: dict[str, Device]) -> tuple[ProcessUse, ...]:
        """One row per named process, one for the others of each GPU; of a GPU that hangs, totals only."""
        return tuple(
            row
            for device in snapshot.devices
            for row in (self._rows(device, snapshot) if device.uuid in fresh else self._totals(device))
        )

    def _rows(self, device: Device, snapshot: Snapshot) -> list[ProcessUse]:
        memory = {(_key(h.pid, snapshot), h.mig): h.memory_used_bytes for h in device.holders or ()}
        self._admit(device, memory, snapshot)
        named = self._named[device.uuid]
        rest = [used for seat, used in memory.items() if seat not in named]
        if rest:
            self._others.setdefault(device.uuid, Amounts(busy_us=None if device.activities is None else 0))
        known = [used for used in rest if used is not None]
        return [
            row._replace(memory_used_bytes=used, dcgm_gpu_energy_joules=told)
            for row, used, told in zip(
                self._totals(device),
                (*(memory[seat] for seat in named), sum(known) if known else None),
                (*(_dcgm_energy(device, one.process) for one in named.values()), None),
                strict=False,
            )
        ]

    def _totals(self, device: Device) -> list[ProcessUse]:
        place = (device.index, device.uuid)
        rows = [
            ProcessUse(
                named.owner,
                *place,
                mig,
                str(key.pid),
                named.process.comm,
                sm_busy_us=named.amounts.busy_us,
                energy_uj=named.amounts.energy_uj,
                start_time_seconds=named.process.started_at,
            )
            for (key, mig), named in self._named.get(device.uuid, {}).items()
        ]
        others = self._others.get(device.uuid)
        if others is not None:
            told = ProcessUse(OTHER, *place, "", "", "other")
            rows.append(told._replace(sm_busy_us=others.busy_us, energy_uj=others.energy_uj))
        return rows

    def _admit(
        self, device: Device, memory: Mapping[tuple[ProcessKey | None, str], int | None], snapshot: Snapshot
    ) -> None:
        """Drop who ended, and give free places to the processes with the most memory."""
        named = {seat: one for seat, one in self._named.get(device.uuid, {}).items() if seat in memory}
        waiting = [
            ((key, mig), snapshot.processes[key.pid])
            for key, mig in memory
            if key is not None and (key, mig) not in named
        ]
        waiting = [one for one in waiting if self._is_old(one[1], snapshot.time)]
        waiting.sort(key=lambda one: (-(memory[one[0]] or 0), one[0][0].pid))
        for seat, process in waiting[: max(0, self._rules.top - len(named))]:
            amounts = Amounts(busy_us=None if device.activities is None else 0)
            named[seat] = _Named(snapshot.owners[seat[0]], process, amounts)
        self._named[device.uuid] = named

    def _is_old(self, process: Process, now: float) -> bool:
        return process.started_at is None or now - process.started_at >= self._rules.min_age


def _key(pid: int, snapshot: Snapshot) -> ProcessKey | None:
    process = snapshot.processes.get(pid)
    return None if process is None else process.key


def _dcgm_energy(device: Device, process: Process) -> float | None:
    """DCGM's record, unless it is of an earlier process that had this pid."""
    record = device.dcgm_records.get(process.key.pid)
    if record is None or (process.started_at or 0.0) > record.started_at + CLOCKS_DIFFER:
        return None
    return record.gpu_energy_joules
