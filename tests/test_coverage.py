"""How much of a GPU's use could be traced: nothing is claimed of what nobody looked at."""

from __future__ import annotations

from gputally.coverage import coverage
from gputally.model import UNKNOWN, Activity, Device, Holder, Owner, Process, ProcessKey, Snapshot

ONE, OTHER = ProcessKey(1, 10), ProcessKey(2, 20)
OWNERS = {ONE: Owner("host", workload="a"), OTHER: UNKNOWN}
PROCESSES = {key.pid: Process(key, "a", "0::/") for key in OWNERS}


def traced(device: Device, **results: int) -> float | None:
    return coverage(device, Snapshot(0.0, 0.0, (device,), PROCESSES, OWNERS, process_results=results))


def test_all_are_traced_where_everybody_is_somebody() -> None:
    assert traced(Device("GPU-1", 0, holders=(Holder(1, None),)), mapped=0, host=1) == 1.0


def test_nobody_there_has_no_coverage_whatever_is_traced_elsewhere() -> None:
    assert traced(Device("GPU-1", 0, holders=()), host=3) is None
    assert traced(Device("GPU-1", 0, activities=(Activity(1, 0, 0.0),)), host=3) is None


def test_without_results_each_process_is_looked_at() -> None:
    assert traced(Device("GPU-1", 0, holders=(Holder(1, None), Holder(2, None)))) == 0.5


def test_a_process_that_is_nobodys_counts_by_its_busy_time() -> None:
    busy = (Activity(1, 0, 0.3), Activity(2, 0, 0.1))
    told = traced(Device("GPU-1", 0, activities=busy), host=1, conflict=1)
    assert told is not None
    assert abs(told - 0.75) < 1e-9
