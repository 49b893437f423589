"""Jobs by the files that a batch system's prolog writes, in dcgm-exporter's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputally.machine import Machine
from gputally.model import PENDING, Device, Owner, Process, Unreadable
from gputally.owners.shelf import Late, Shelf

UNCLAIMED = ("host", "user", "systemd")
"""Kinds that say where a process runs, not for whom."""
LONGEST = 128


class JobFiles:
    """One file per GPU, named by its index (or uuid), `index.instance` under MIG; a job id on each line.

    A GPU with several jobs tells nothing of whose a process is: then the process stays what it was.
    """

    name = "hpc-jobs"

    def __init__(self, machine: Machine, folder: str) -> None:
        self._shelf = Shelf(machine, self.name)
        self._folder = folder.rstrip("/")
        self._devices: Sequence[Device] = ()

    def look(self, devices: Sequence[Device]) -> None:
        """See who is on which GPU."""
        self._devices = devices

    def refine(self, process: Process, owner: Owner) -> Owner:
        """The job that has the process's GPUs, where nobody better is known."""
        if owner.kind not in UNCLAIMED:
            return owner
        try:
            jobs = {job for name in self._names(process.key.pid) for job in self._jobs(name)}
        except Late:
            return PENDING
        except Unreadable:
            return owner
        return Owner("job", workload=jobs.pop()) if len(jobs) == 1 else owner

    def _names(self, pid: int) -> Iterator[str]:
        for device in self._devices:
            migs = {holder.mig for holder in device.holders or () if holder.pid == pid}
            instances = {i.uuid: i.gpu_instance for i in device.instances or ()}
            for mig in migs & instances.keys():
                yield f"{device.index}.{instances[mig]}"
            if migs - instances.keys() or any(a.pid == pid for a in device.activities or ()):
                yield str(device.index)
                if "/" not in device.uuid:
                    yield device.uuid

    def _jobs(self, name: str) -> list[str]:
        text = (self._shelf.file(f"{self._folder}/{name}") or b"").decode("utf-8", "replace")
        return [line.strip()[:LONGEST] for line in text.splitlines()[:1000] if line.strip()]
