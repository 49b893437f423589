"""The node that is measured on: the C fake of NVML, and processes that are really alive."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.nvml import FakeNvml

GPUS = 8
LIFE = "900"
"""Seconds after which a process ends by itself, should nobody be left to end it."""


@dataclass(frozen=True)
class Node:
    """Eight GPUs with some processes, all of them busy."""

    fake: FakeNvml
    pids: Sequence[int]
    flags: tuple[str, ...] = ()
    """What gputally is told about this node besides."""
    check: Callable[[str], None] = lambda text: None
    """Raises where gputally's metrics are not those of this node."""

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self.pids)

    @property
    def env(self) -> dict[str, str]:
        """What makes a program find the fake, as it would find the driver's library."""
        return {**self.fake.env, "LD_LIBRARY_PATH": str(self.fake.library.parent)}

    def asked(self, call: str) -> int:
        """How often the last GPU was asked this."""
        return self.fake.calls(GPUS - 1, call)

    def calls(self) -> int:
        """How many calls were made in all."""
        return sum(self.fake.counts().values())


@contextmanager
def node(processes: int) -> Iterator[Node]:
    """A node for as long as it is needed; its processes end with it, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="gputally-bench-") as name:
        fake = FakeNvml(Path(name), GPUS)
        living: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(processes):
                living.append(_start(Path(name), number))
            pids = [process.pid for process in living]
            _occupy(fake, pids)
            yield Node(fake, pids)
            if any(process.poll() is not None for process in living):
                raise RuntimeError("processes ended while they were measured")
        finally:
            for process in living:
                process.kill()
            for process in living:
                process.wait()


def _start(folder: Path, number: int) -> subprocess.Popen[bytes]:
    # Under a name of its own each is a workload of its own, the dearest case; argv stays `sleep`.
    name = folder / f"job-{number:04}"
    name.symlink_to(shutil.which("sleep") or "/bin/sleep")
    return subprocess.Popen(["sleep", LIFE], executable=str(name), stdin=subprocess.DEVNULL)


def _occupy(fake: FakeNvml, pids: list[int]) -> None:
    for place, gpu in enumerate(fake.gpus):
        mine = pids[place :: len(fake.gpus)]
        for pid in mine:
            gpu.run(pid)
        gpu.busy({pid: max(1, 90 // len(mine)) for pid in mine})
        gpu.watts = 500 if mine else 70
