"""The processes of one GPU: who holds it, and what each did since the answer before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputally.columns import Columns
from gputally.model import Activity, Holder, Instance, Unreadable
from gputally.sources.nvml_ask import Asker
from gputally.sources.nvml_codes import Meaning, meaning
from gputally.sources.nvml_fields import MPS_CLIENTS, PROCESS_LISTS, SAMPLES, Values

UNTOLD: Values = {"activities": None, "activity_seconds": None, "sampled_at": None, "clock_jumped": False}
STEP = 1.0
"""Seconds by which the wall clock may be set without harm."""
ASTRAY = 3600.0
"""Seconds by which a sample's time may differ from when it came."""
HIGHEST_PID = 2**22
"""The kernel gives no higher number."""
RATIOS = tuple(percent / 100 for percent in range(101))
"""By percent: more than all is no index."""

NOBODY: tuple[tuple[int, ...], ...] = ((),) * len(Activity._fields)
"""The columns of no samples."""

Rows = Sequence[Sequence[Any]]
Lists = Mapping[str, Rows]
Place = tuple[int, str]
"""A process, in a MIG instance."""


@dataclass
class Processes:
    """Where the utilization samples stand, and who was listed last; only the GPU's lane touches it."""

    ask: Asker
    _last_seen: int = 0
    _seen_at: float = 0.0
    _sampled_at: float | None = None
    _offset: float | None = None
    """Wall clock less monotonic clock: it changes when the clock is set."""
    _busy: Sequence[int] = ()
    """Who was named by the newest samples; each can be a process."""
    _listed: frozenset[int] = frozenset()
    _believed: dict[tuple[str, str], tuple[Rows, int | None]] = field(default_factory=dict)
    """GPU or instance, list -> what it said last that could be true, and the memory that there was."""
    _told: tuple[Any, ...] = ()
    """What the lists said, and how they were to be understood."""
    _holders: tuple[Holder, ...] | None = None

    def forget(self) -> None:
        """Another GPU, or another driver."""
        self._last_seen, self._sampled_at, self._listed = 0, None, frozenset()
        self._told, self._holders = (), None
        self._believed.clear()

    def pause(self) -> None:
        """The GPU fell silent: what it did meanwhile is not told of one tick."""
        self._sampled_at = None

    def strangers(self) -> bool:
        """Whether somebody was busy who was not listed."""
        return not self._listed.issuperset(self._busy)

    def activity(self) -> Values:
        """Samples since the answer before; the first, of the driver's whole past, only sets the mark."""
        clock, before = self.ask.machine.clock, self._sampled_at
        self._busy = ()
        try:
            rows = self.ask.supported(self.ask.uuid, SAMPLES, self._last_seen)
        except Unreadable as error:
            if meaning(error.code) is not Meaning.EMPTY:
                return dict(UNTOLD)
            rows = []
        now = self._sampled_at = clock.monotonic()
        columns = tuple(zip(*rows, strict=True)) or NOBODY
        newest = max((self._last_seen, *columns[1]))
        if self._jumped(clock.time() - now, newest, now):
            self._last_seen = 0
            return UNTOLD | {"clock_jumped": before is not None}
        if newest != self._last_seen:
            self._last_seen, self._seen_at = newest, now
        if before is None:
            return dict(UNTOLD)
        return {
            "activities": self._samples(columns),
            "activity_seconds": now - before,
            "sampled_at": now,
            "clock_jumped": False,
        }

    def _jumped(self, offset: float, newest: int, now: float) -> bool:
        """Whether the driver's time cannot be compared with the mark; set back, it would hide all."""
        before, self._offset = self._offset, offset
        stepped = before is not None and abs(offset - before) > STEP
        astray = (newest - self._last_seen) / 1e6 - (now - self._seen_at) if self._last_seen else 0.0
        return stepped or abs(astray) > ASTRAY

    def _samples(self, columns: Sequence[tuple[int, ...]]) -> Sequence[Activity]:
        pids, times, *percents = columns
        try:
            if pids and (min(pids) <= 0 or max(pids) > HIGHEST_PID):
                raise IndexError
            ratios = [tuple(map(RATIOS.__getitem__, column)) for column in percents]
        except IndexError:
            rows = [*zip(*columns, strict=True)]
            good = [row for row in rows if 0 < row[0] <= HIGHEST_PID and max(row[2:]) <= 100]
            self.ask.drop("utilization_out_of_range", len(rows) - len(good))
            return self._samples(tuple(zip(*good, strict=True)) or NOBODY)
        self._busy = pids
        return Columns(Activity, (pids, times, *ratios))

    def holders(self, total_bytes: int | None, instances: Sequence[Instance] | None) -> Values:
        """Processes of all lists, each once on each instance, with the memory it has there."""
        lists = self._lists(self.ask.uuid, total_bytes)
        # The parent's lists need rights that an instance's do not.
        parts = (
            {} if lists or not instances else {i.uuid: self._lists(i.uuid, total_bytes) for i in instances}
        )
        where = {(i.gpu_instance, i.compute_instance): i.uuid for i in instances or ()}
        told = (where, lists, parts)
        if told != self._told:
            self._told = told
            found = _understood(*told)
            self._listed = frozenset(holder.pid for holder in found or ())
            self._holders = found
        return {"holders": self._holders, "listed_at": self.ask.machine.clock.monotonic()}

    def _lists(self, uuid: str, total_bytes: int | None) -> Lists | None:
        """What the lists of a GPU or instance say; None if one of them has more to say than can be had."""
        told, whole = {}, True
        for call in PROCESS_LISTS:
            try:
                rows = self.ask.supported(uuid, call)
            except Unreadable as error:
                if meaning(error.code) is not Meaning.EMPTY:
                    whole = whole and not self._misses((uuid, call), error)
                    continue
                rows = []
            if self._believes((uuid, call), rows, total_bytes):
                told[call] = rows
            else:
                self.ask.drop("implausible_process_list")
                whole = False
        return told if whole else None

    def _misses(self, whose: tuple[str, str], error: Unreadable) -> bool:
        """Whether who is on a GPU cannot be told without this list; one it never had is not missed."""
        if meaning(error.code) is Meaning.ABSENT:
            return False
        return whose[1] == PROCESS_LISTS[0] or whose in self._believed

    def _believes(self, whose: tuple[str, str], rows: Rows, total_bytes: int | None) -> bool:
        """Whether a list can be true; a machine may give the very same list while it says the same."""
        before, total_before = self._believed.get(whose, ((), None))
        if rows is before and total_bytes == total_before:
            return True
        good = all(_plausible(pid, used, total_bytes) for pid, used, *_ in rows)
        if good:
            self._believed[whose] = (rows, total_bytes)
        return good


def _plausible(pid: int, used: int | None, total_bytes: int | None) -> bool:
    """Whether a record can be one; a driver that lays its records out differently gives others."""
    return 0 < pid <= HIGHEST_PID and (used is None or total_bytes is None or used <= total_bytes)


def _understood(
    where: Mapping[tuple[int, int], str], lists: Lists | None, parts: Mapping[str, Lists | None]
) -> tuple[Holder, ...] | None:
    """Everyone once on each instance; None if no list tells anything, or one does not tell what it should."""
    if None in parts.values() or not (lists or any(parts.values())):
        return None
    found = _holders(lists or {}, where)
    for uuid, its_lists in parts.items():
        found |= _holders(its_lists or {}, {}, uuid)
    return tuple(found.values())


def _holders(
    lists: Lists, instances: Mapping[tuple[int, int], str], otherwise: str = ""
) -> dict[Place, Holder]:
    holders: dict[Place, Holder] = {}
    for call, rows in lists.items():
        for pid, used, *place in rows:
            # One with several contexts has its memory in each list.
            mig = instances.get((place[0], place[1]), otherwise)
            before = holders.get((pid, mig), Holder(pid, None))
            known = before.memory_used_bytes
            memory = used if known is None else max(known, used or 0)
            holders[pid, mig] = Holder(pid, memory, mig, before.mps or call == MPS_CLIENTS)
    return holders
