"""Which processes the GPUs name, who they are and whose: each read once, and then only watched."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from gputally.columns import column
from gputally.machine import Machine
from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Holder, Owner, Pace, Process, ProcessKey
from gputally.owners import Resolver, resolve

DEPARTED_FOR = 30.0
"""Seconds for which a process that ended can still be named by a late sample."""
NAMED_WITHIN = 30.0
"""Seconds for which a name may be waited for."""
MOVED_WITHIN = 60.0
"""Seconds after which a process that moved to another cgroup is noticed."""


@dataclass(frozen=True)
class Roll:
    """The processes of one moment."""

    processes: Mapping[int, Process] = field(default_factory=dict)
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    lost: bool = False
    """The GPUs went on naming a process that is not in our PID namespace."""
    waiting: bool = False
    """A name is still coming."""


@dataclass
class _Entry:
    """A process, and how long it has been known."""

    process: Process
    owner: Owner
    met_at: float
    ended_at: float | None = None


class Census:
    """Remembers everyone it has read; the outside is asked only about who is new, gone or due."""

    def __init__(self, machine: Machine, resolvers: Sequence[Resolver]) -> None:
        self._machine = machine
        self._resolvers = resolvers
        self._living: dict[int, _Entry] = {}
        self._departed: dict[int, _Entry] = {}
        self._missing: frozenset[int] = frozenset()
        self._late: frozenset[int] = frozenset()
        """Whoever has a number that a GPU had named before they got it."""
        self._holders: list[tuple[Holder, ...] | None] = []
        self._held: frozenset[int] = frozenset()
        """Everyone who is among those."""
        self._named: frozenset[int] = frozenset()
        self._pace = Pace.INTERVAL
        """Of the time before."""
        self._turns: deque[_Entry] = deque()
        """Who is to be looked at again, the one that was not for the longest time first."""
        self._owed = self._looked_at = 0.0
        """How many of them, and since when."""
        self._roll: Roll | None = None
        """The newest, as long as it stays true if the GPUs name the same processes."""

    def take(self, devices: Sequence[Device], now: float, pace: Pace) -> Roll:
        """Everyone whom a GPU names now, and for a while those who just went."""
        for key in self._machine.ended():
            self._depart(key, now)
        named = self._pids(devices)
        if pace is Pace.TICK or self._pace is Pace.INTERVAL:  # an interval between ticks has enough to do
            self._look_again(now)
        self._pace = pace
        if self._roll is not None and (named is self._named or named == self._named):
            return self._roll
        strangers = sorted(named - self._living.keys())
        named_at = _named_at(devices) if strangers else {}
        self._late = frozenset(pid for pid in strangers if not self._meet(pid, now, named_at[pid]))
        self._settle(now)
        self._forget(now)
        found = {pid: entry for pid in sorted(named) if (entry := self._entry(pid)) is not None}
        missing = named - found.keys()
        lost = {pid for pid in missing & self._missing if not self._machine.exists(pid)}
        self._missing = missing
        roll = Roll(
            {pid: entry.process for pid, entry in found.items()},
            # Also of those whom no GPU names any more: what they used may still wait for their name.
            {entry.process.key: entry.owner for entry in self._everyone()},
            self._results(found, missing),
            lost=bool(lost),
            waiting=any(entry.owner is PENDING for entry in self._everyone()),
        )
        unnamed = any(entry.owner is UNNAMED for entry in self._living.values())
        passing = missing or unnamed or roll.waiting or self._departed
        self._named, self._roll = named, None if passing else roll
        return roll

    def _pids(self, devices: Sequence[Device]) -> frozenset[int]:
        """Everyone whom these GPUs name: the very same set as long as nobody comes or goes."""
        holders = [device.holders for device in devices]
        if holders != self._holders:
            self._holders = holders
            self._held = frozenset(_pid(holder) for held in holders for holder in held or ())
        busy = [*chain.from_iterable([column(device.activities or (), 0) for device in devices])]
        return self._held if self._held.issuperset(busy) else self._held.union(busy)

    def _everyone(self) -> list[_Entry]:
        return [*self._departed.values(), *self._living.values()]

    def _entry(self, pid: int) -> _Entry | None:
        return self._living.get(pid) or self._departed.get(pid)

    def _meet(self, pid: int, now: float, named_at: float) -> bool:
        """Read a process; False if it only got its number after a GPU had named another by it."""
        process = self._machine.process(pid)
        if process is None:
            return True
        if process.started_monotonic is not None and process.started_monotonic > named_at:
            return False
        self._departed.pop(pid, None)  # whatever had this number before, it is somebody else
        entry = self._living[pid] = _Entry(process, resolve(self._resolvers, process), now)
        self._turns.append(entry)
        return True

    def _look_again(self, now: float) -> None:
        """Look at everybody once a minute, a few at a time: a process can be moved to another cgroup."""
        self._owed += len(self._turns) * min(1.0, (now - self._looked_at) / MOVED_WITHIN)
        self._looked_at = now
        while self._owed >= 1 and self._turns:
            self._owed -= 1
            entry = self._turns.popleft()
            if entry.ended_at is None:
                self._turns.append(entry)
                self._look_at(entry, now)

    def _look_at(self, entry: _Entry, now: float) -> None:
        # It is watched, so this number is still its own.
        pid = entry.process.key.pid
        cgroup = self._machine.file(f"/proc/{pid}/cgroup")
        if cgroup is not None and cgroup.decode("utf-8", "replace") == entry.process.cgroup:
            return
        process, self._roll = self._machine.process(pid), None
        if process is None:
            return  # it is ending: the watch will tell, and until then it is who it was
        if process.key != entry.process.key:
            self._depart(entry.process.key, now)
        elif process.cgroup != entry.process.cgroup:
            entry.process, entry.owner = process, resolve(self._resolvers, process)
            entry.met_at = now

    def _settle(self, now: float) -> None:
        """Ask again for names that were still coming; after a while they are given up."""
        for entry in self._everyone():
            if entry.owner is PENDING or entry.owner is UNNAMED:  # a name may come late
                owner = resolve(self._resolvers, entry.process)
                late = owner is PENDING and now - entry.met_at > NAMED_WITHIN
                entry.owner = UNNAMED if late else owner

    def _depart(self, key: ProcessKey, now: float) -> None:
        entry = self._living.get(key.pid)
        if entry is not None and entry.process.key == key:
            entry.ended_at, self._roll = now, None
            self._departed[key.pid] = self._living.pop(key.pid)

    def _forget(self, now: float) -> None:
        for pid, entry in list(self._departed.items()):
            if entry.ended_at is not None and now - entry.ended_at > DEPARTED_FOR:
                del self._departed[pid]

    def _results(self, found: Mapping[int, _Entry], missing: Collection[int]) -> Mapping[str, int]:
        results = Counter(dict.fromkeys(RESULTS, 0))
        results.update(_result(entry) for entry in found.values())
        results.update(
            "hidden" if pid not in self._late and self._machine.exists(pid) else "exited" for pid in missing
        )
        return results


_pid = itemgetter(0)
RESULTS = ("mapped", "host", "unnamed", "hidden", "exited", "conflict")


def pids(devices: Sequence[Device]) -> set[int]:
    """Everyone whom these GPUs name."""
    named: set[int] = set()
    for device in devices:
        named.update(map(_pid, device.holders or ()), map(_pid, device.activities or ()))
    return named


def _named_at(devices: Sequence[Device]) -> Mapping[int, float]:
    """When each process was last named, at the latest; for ever where that is not told."""
    named_at: dict[int, float] = {}
    for device in devices:
        for named, at in ((device.holders, device.listed_at), (device.activities, device.sampled_at)):
            for pid in map(_pid, named or ()):
                named_at[pid] = max(named_at.get(pid, 0.0), math.inf if at is None else at)
    return named_at


def _result(entry: _Entry) -> str:
    """How well a process that could be read was traced."""
    owner = entry.owner
    if entry.ended_at is not None:
        return "exited"
    if owner == UNKNOWN:
        return "conflict"
    if owner in (PENDING, UNNAMED) or (owner.kind == "pod" and not owner.namespace):
        return "unnamed"
    return "host" if owner.kind == "host" else "mapped"
