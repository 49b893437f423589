"""A machine for tests of owners: processes and files as told, and who asked for what."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import wraps
from typing import ParamSpec

from gputally.machine.clocks import VirtualClock
from gputally.model import Activity, Device, Holder, Namespaces, Process, ProcessKey, Reading, SelfUsage
from tests.fakes.silent import Silent

P = ParamSpec("P")
GPU = "GPU-00000000-0000-0000-0000-000000000000"
HEX = "a1" * 32
OTHER = "b2" * 32
UID = "11111111-2222-3333-4444-555555555555"
INIT = 4_026_531_836
HOST = Namespaces(INIT, 77, "0::/system.slice/gputally.service\n", "0::/init.scope\n")


def awaited(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """An asynchronous test that pytest can run."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Stage(Silent):
    """Answers from what a test put there."""

    name = "stage"

    def __init__(self, namespaces: Namespaces | None = HOST) -> None:
        self.clock = VirtualClock(1000.0, 1_800_000_000.0)
        self.there = namespaces
        self.living: dict[int, Process] = {}
        self.hidden: set[int] = set()
        self.files: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self._watched: set[ProcessKey] = set()

    def start(self, pid: int, cgroup: str, start: int = 1, comm: str = "train") -> Process:
        """A process begins, or is moved to another cgroup."""
        self.living[pid] = Process(ProcessKey(pid, start), comm, cgroup, 1_799_999_000.0)
        return self.living[pid]

    def process(self, pid: int) -> Process | None:
        self.asked["process"] += 1
        process = self.living.get(pid)
        if process is not None:
            self._watched.add(process.key)
        return process

    def exists(self, pid: int) -> bool:
        return pid in self.living or pid in self.hidden

    def namespaces(self) -> Namespaces | None:
        return self.there

    def file(self, path: str) -> bytes | None:
        self.asked["file"] += 1
        return self.files.get(path)

    def ended(self) -> Sequence[ProcessKey]:
        gone = [key for key in self._watched if getattr(self.living.get(key.pid), "key", None) != key]
        self._watched.difference_update(gone)
        return gone

    def self_usage(self) -> SelfUsage:
        return SelfUsage()

    def close(self) -> None:
        return


class Cards:
    """A source whose GPU names the processes that a test says."""

    name = "cards"

    def __init__(
        self, *holders: int, busy: dict[int, float] | None = None, device: Device | None = None
    ) -> None:
        self.holders = list(holders)
        self.busy = busy or {}
        self.device = device or Device(GPU, 0)

    async def read(self, pace: object) -> Reading:
        device = replace(
            self.device,
            holders=tuple(Holder(pid, 2**30) for pid in self.holders),
            activities=tuple(Activity(pid, 1, ratio) for pid, ratio in self.busy.items()),
            activity_seconds=1.0,
        )
        return Reading((device,))

    async def close(self) -> None:
        return
