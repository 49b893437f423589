"""The ledger: running totals and what attribution remembers; the only state of the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from gputally.attribute import GpuShare, Memory, ProcessShare, attribute
from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Owner, Snapshot, State
from gputally.process_book import ProcessBook, ProcessRules
from gputally.tally import Gpu, GrantUse, Tally, Workload

MOST_WORKLOADS = 10_000


@dataclass
class _GpuTotals:
    energy_uj: int | None = None
    discarded_uj: int = 0
    resets: int = 0
    window_seconds: float = 0.0
    """Time since the last Tally in which activity was known."""


@dataclass
class _WorkTotals:
    seen_at: float
    busy_us: int | None = None
    window_us: int = 0


class Ledger:
    """Posts every tick, and makes a Tally when one is wanted."""

    def __init__(
        self,
        machine: str,
        *,
        retention: float = 300.0,
        max_age: float = 15.0,
        rules: ProcessRules | None = None,
    ) -> None:
        self._machine = machine
        self._retention = retention
        self._max_age = max_age
        self._memory = Memory()
        self._gpus: dict[str, _GpuTotals] = {}
        self._work: dict[tuple[Owner, str], _WorkTotals] = {}
        self._book = ProcessBook(rules) if rules is not None else None
        self._samples_dropped: Counter[str] = Counter()
        self._series_dropped: Counter[str] = Counter()
        self._nvml_errors: Counter[tuple[str, str]] = Counter()
        self.faults = 0

    def post(self, snapshot: Snapshot) -> None:
        """Add what this tick brought."""
        shares, self._memory = attribute(snapshot, self._memory)
        self._samples_dropped.update(snapshot.losses.samples)
        self._nvml_errors.update(snapshot.losses.nvml_errors)
        self._meet(snapshot)
        for gpu in shares.gpus:
            self._post_gpu(gpu)
        for process in shares.processes:
            self._post_process(process, snapshot)
        if self._book is not None:
            self._book.post(shares, snapshot)

    def tally(self, snapshot: Snapshot) -> Tally:
        """The totals as they are with this snapshot; averages run from the Tally before."""
        gpus = tuple(self._gpu(device, snapshot) for device in snapshot.devices)
        fresh = {gpu.device.uuid: gpu.device for gpu in gpus if gpu.fresh}
        tally = Tally(
            snapshot=snapshot,
            machine=self._machine,
            gpus=gpus,
            workloads=self._workloads(snapshot, fresh),
            processes=self._book.rows(snapshot, fresh) if self._book is not None else (),
            grants=tuple(_grants(snapshot)),
            process_results=_results(snapshot),
            samples_dropped=dict(self._samples_dropped),
            series_dropped=dict(self._series_dropped),
            nvml_errors=dict(self._nvml_errors),
            faults=self.faults,
        )
        self._turn_page(snapshot.monotonic)
        return tally

    def _meet(self, snapshot: Snapshot) -> None:
        """Open an account for everyone who holds or uses a GPU."""
        for device in snapshot.devices:
            for pid in _pids(device):
                key = (_owner(snapshot, pid), device.uuid)
                if key[0] in (PENDING, UNNAMED):
                    continue  # a series is born with its labels
                known = self._work.get(key)
                if known is not None:
                    known.seen_at = snapshot.monotonic
                elif len(self._work) < MOST_WORKLOADS:
                    self._work[key] = _WorkTotals(snapshot.monotonic)
                else:
                    self._series_dropped["workloads"] += 1

    def _post_gpu(self, share: GpuShare) -> None:
        totals = self._gpus.setdefault(share.uuid, _GpuTotals())
        base = self._memory.bases[share.uuid]
        if base.energy_uj is not None:
            totals.energy_uj = (totals.energy_uj or 0) + share.energy_uj
        totals.discarded_uj += share.discarded_uj
        totals.resets += share.resets
        totals.window_seconds += share.activity_seconds or 0.0

    def _post_process(self, share: ProcessShare, snapshot: Snapshot) -> None:
        owner = UNKNOWN if share.key is None else snapshot.owners[share.key]
        totals = self._work.get((owner, share.uuid))
        if totals is not None:
            totals.busy_us = (totals.busy_us or 0) + share.busy_us
            totals.window_us += share.busy_us

    def _gpu(self, device: Device, snapshot: Snapshot) -> Gpu:
        totals = self._gpus.get(device.uuid, _GpuTotals())
        age = None if device.gauges_at is None else snapshot.monotonic - device.gauges_at
        fresh = device.state is State.OK and age is not None and age <= self._max_age
        return Gpu(device, fresh, totals.energy_uj, totals.discarded_uj, totals.resets)

    def _workloads(self, snapshot: Snapshot, fresh: dict[str, Device]) -> tuple[Workload, ...]:
        holders = _by_owner(snapshot, fresh)
        indexes = {device.uuid: device.index for device in snapshot.devices}
        return tuple(
            self._workload(key, totals, indexes[key[1]], holders.get(key), snapshot, fresh.get(key[1]))
            for key, totals in self._work.items()
            if key[1] in indexes
        )

    def _workload(
        self,
        key: tuple[Owner, str],
        totals: _WorkTotals,
        index: int,
        pids: dict[int, int | None] | None,
        snapshot: Snapshot,
        device: Device | None,
    ) -> Workload:
        owner, uuid = key
        busy_us = totals.busy_us
        if busy_us is None and device is not None and device.activities is not None:
            busy_us = totals.busy_us = 0  # it could have been seen busy, and was not
        if not pids:
            return Workload(owner, index, uuid, active=False, sm_busy_us=busy_us)
        window = self._gpus[uuid].window_seconds if uuid in self._gpus else 0.0
        memory = [used for used in pids.values() if used is not None]
        starts = [snapshot.processes[pid].started_at for pid in pids if pid in snapshot.processes]
        return Workload(
            owner,
            index,
            uuid,
            active=True,
            processes=len(pids),
            memory_used_bytes=sum(memory) if memory else None,
            sm_utilization_ratio=min(1.0, totals.window_us / (window * 1e6)) if window > 0 else None,
            sm_busy_us=busy_us,
            start_time_seconds=min((s for s in starts if s is not None), default=None),
        )

    def _turn_page(self, now: float) -> None:
        """Begin new averages, and close accounts that nobody has used for the retention time."""
        for gpu in self._gpus.values():
            gpu.window_seconds = 0.0
        for totals in self._work.values():
            totals.window_us = 0
        for key in [k for k, totals in self._work.items() if now - totals.seen_at > self._retention]:
            del self._work[key]


def _pids(device: Device) -> list[int]:
    return sorted({h.pid for h in device.holders or ()} | {a.pid for a in device.activities or ()})


def _owner(snapshot: Snapshot, pid: int) -> Owner:
    process = snapshot.processes.get(pid)
    return UNKNOWN if process is None else snapshot.owners[process.key]


def _by_owner(snapshot: Snapshot, fresh: dict[str, Device]) -> dict[tuple[Owner, str], dict[int, int | None]]:
    """(owner, GPU) -> its processes that hold a context there, with their memory."""
    found: dict[tuple[Owner, str], dict[int, int | None]] = {}
    for uuid, device in fresh.items():
        for holder in device.holders or ():
            found.setdefault((_owner(snapshot, holder.pid), uuid), {})[holder.pid] = holder.memory_used_bytes
    return found


def _grants(snapshot: Snapshot) -> Iterator[GrantUse]:
    """Every grant, and every use without one; an init container may use what its pod will have."""
    if snapshot.grants is None:
        return
    indexes = {device.uuid: device.index for device in snapshot.devices}
    for grant in snapshot.grants:
        if grant.uuid in indexes:
            yield GrantUse(grant.owner, indexes[grant.uuid], grant.uuid, grant.mig, granted=True)
    pods = {(g.owner.namespace, g.owner.pod, g.uuid, g.mig) for g in snapshot.grants}
    uses = {(_owner(snapshot, h.pid), d.uuid, h.mig) for d in snapshot.devices for h in d.holders or ()}
    for owner, uuid, mig in sorted(uses, key=lambda use: (use[1], use[2], astuple(use[0]))):
        pod = (owner.namespace, owner.pod)
        is_granted = (*pod, uuid, mig) in pods or (*pod, "", "") in pods
        if owner not in (PENDING, UNNAMED, UNKNOWN) and not is_granted:
            yield GrantUse(owner, indexes[uuid], uuid, mig, granted=False)


def _results(snapshot: Snapshot) -> dict[str, int]:
    pids = {pid for device in snapshot.devices for pid in _pids(device)}
    hidden = sum(pid not in snapshot.processes for pid in pids)
    return {"host": len(pids) - hidden, "hidden": hidden}
