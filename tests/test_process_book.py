"""Series of single processes: bounded, whoever forks, and nothing is lost."""

from __future__ import annotations

from gputally.model import Device, Holder, Owner, Process, ProcessKey, Snapshot
from gputally.process_book import ProcessBook, ProcessRules
from gputally.shares import Charge, Shares

GPU = "GPU-00000000-0000-0000-0000-000000000000"
POD = Owner("pod", "ml", "train-0", "main")
MIB = 2**20
OLD = {pid: Process(ProcessKey(pid, 1), f"old-{pid}", "", started_at=0.0) for pid in (1, 2, 3, 4)}


def test_f33_processes_that_come_and_go_get_no_series_and_their_energy_is_the_others() -> None:
    book, charged = ProcessBook(ProcessRules(min_age=60.0, top=3)), 0
    for second in range(1000, 1600):
        # The young ones hold more memory than the old, so that only their age keeps them out.
        forked = {
            pid: Process(ProcessKey(pid, second), f"{second}", "", started_at=second - 59.0)
            for pid in range(100, 150)
        }
        there = {**OLD, **forked}
        device = Device(
            GPU, 0, holders=tuple(Holder(pid, (pid if pid < 100 else 1000) * MIB) for pid in there)
        )
        owners = {process.key: POD for process in there.values()}
        snapshot = Snapshot(float(second), float(second), (device,), there, owners)
        seats = tuple((process.key, "") for process in there.values())
        book.post(Shares(charges=(Charge(GPU, seats, [7] * len(seats)),)))
        charged += 7 * len(seats)
        rows = book.rows(snapshot, {GPU: device})
        assert [row.process for row in rows] == ["old-4", "old-3", "old-2", "other"]
        assert sum(row.energy_uj or 0 for row in rows) == charged
