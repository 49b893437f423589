"""How much of a GPU's use could be traced to somebody; pure."""

from __future__ import annotations

from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Snapshot

NOBODY = (UNKNOWN, PENDING, UNNAMED)
KNOWN = ("mapped", "host")
"""Results of processes that were traced to somebody."""


def coverage(device: Device, snapshot: Snapshot) -> float | None:
    """Traced part of the busy time just seen, or of the processes if none is busy; None without any."""
    results = snapshot.process_results
    if results and sum(results.values()) == sum([results.get(result, 0) for result in KNOWN]):
        return 1.0 if device.holders or any(a.sm_ratio > 0 for a in device.activities or ()) else None
    busy = [(a.pid, a.sm_ratio) for a in device.activities or () if a.sm_ratio > 0]
    weights = busy or [(pid, 1.0) for pid in {holder.pid for holder in device.holders or ()}]
    total = sum(weight for _, weight in weights)
    if not total:
        return None
    return sum(weight for pid, weight in weights if _is_known(pid, snapshot)) / total


def _is_known(pid: int, snapshot: Snapshot) -> bool:
    process = snapshot.processes.get(pid)
    return process is not None and snapshot.owners[process.key] not in NOBODY
