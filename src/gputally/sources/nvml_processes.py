"""The processes of one GPU: who holds it, and what each did since the answer before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputally.model import Activity, Holder, Instance, Unreadable
from gputally.sources.nvml_ask import Asker
from gputally.sources.nvml_codes import Meaning, meaning
from gputally.sources.nvml_fields import PROCESS_LISTS, SAMPLES, Values

UNTOLD: Values = {"activities": None, "activity_seconds": None, "clock_jumped": False}
STEP = 1.0
"""Seconds by which the wall clock may be set without harm."""
ASTRAY = 3600.0
"""Seconds by which a sample's time may differ from when it came."""
HIGHEST_PID = 2**22
"""The kernel gives no higher number."""


@dataclass
class Processes:
    """Where the utilization samples stand, and who was listed last; only the GPU's lane touches it."""

    ask: Asker
    _last_seen: int = 0
    _seen_at: float = 0.0
    _sampled_at: float | None = None
    _offset: float | None = None
    """Wall clock less monotonic clock: it changes when the clock is set."""
    _listed: frozenset[int] = frozenset()
    _found: dict[tuple[int, str], int | None] | None = None
    _holders: tuple[Holder, ...] | None = None

    def forget(self) -> None:
        """Another GPU, or another driver."""
        self._last_seen, self._sampled_at, self._listed = 0, None, frozenset()
        self._found = self._holders = None

    def pause(self) -> None:
        """The GPU fell silent: what it did meanwhile is not told of one tick."""
        self._sampled_at = None

    def strangers(self, activities: Sequence[Activity] | None) -> bool:
        """Whether somebody was busy who was not listed."""
        return not self._listed.issuperset([activity.pid for activity in activities or ()])

    def activity(self) -> Values:
        """Samples since the answer before; the first, of the driver's whole past, only sets the mark."""
        clock, before = self.ask.machine.clock, self._sampled_at
        try:
            rows = self.ask.supported(self.ask.uuid, SAMPLES, self._last_seen)
        except Unreadable as error:
            if meaning(error.code) is not Meaning.EMPTY:
                return dict(UNTOLD)
            rows = []
        now = self._sampled_at = clock.monotonic()
        newest = max([self._last_seen, *(row[1] for row in rows)])
        if self._jumped(clock.time() - now, newest, now):
            self._last_seen = 0
            return UNTOLD | {"clock_jumped": before is not None}
        if newest != self._last_seen:
            self._last_seen, self._seen_at = newest, now
        if before is None:
            return dict(UNTOLD)
        activities = tuple(self._samples(rows))
        return {"activities": activities, "activity_seconds": now - before, "clock_jumped": False}

    def _jumped(self, offset: float, newest: int, now: float) -> bool:
        """Whether the driver's time cannot be compared with the mark; set back, it would hide all."""
        before, self._offset = self._offset, offset
        stepped = before is not None and abs(offset - before) > STEP
        astray = (newest - self._last_seen) / 1e6 - (now - self._seen_at) if self._last_seen else 0.0
        return stepped or abs(astray) > ASTRAY

    def holders(self, total_bytes: int | None, instances: Sequence[Instance] | None) -> Values:
        """Processes of all lists, each once on each instance, with the memory it has there."""
        found = self._of(self.ask.uuid, total_bytes, instances)
        if found is None and instances:
            # The parent's lists need rights that an instance's do not.
            parts = [self._of(instance.uuid, total_bytes, (instance,)) for instance in instances]
            found = _together(part for part in parts if part is not None)
        if found != self._found:
            self._found = found
            self._listed = frozenset(pid for pid, _ in found or ())
            self._holders = None if found is None else tuple(Holder(p, m, i) for (p, i), m in found.items())
        # A tuple of its own each time, of the same holders: that is how a new list is told from an old one.
        return {"holders": None if self._holders is None else (*self._holders,)}

    def _samples(self, rows: list[list[int]]) -> Iterable[Activity]:
        for pid, timestamp, sm, memory, encoder, decoder in rows:
            if not 0 < pid <= HIGHEST_PID or max(sm, memory, encoder, decoder) > 100:
                self.ask.drop("utilization_out_of_range")
                continue
            yield Activity(pid, timestamp, sm / 100, memory / 100, encoder / 100, decoder / 100)

    def _of(
        self, uuid: str, total_bytes: int | None, instances: Sequence[Instance] | None
    ) -> dict[tuple[int, str], int | None] | None:
        """(pid, instance) -> memory, by the lists of a GPU or instance; None if it tells no list."""
        where = {(i.gpu_instance, i.compute_instance): i.uuid for i in instances or ()}
        alone = uuid if instances and uuid == instances[0].uuid else ""
        memory: dict[tuple[int, str], int | None] = {}
        known = False
        for call in PROCESS_LISTS:
            try:
                rows = self.ask.supported(uuid, call)
            except Unreadable:
                continue
            if not all(_plausible(pid, used, total_bytes) for pid, used, *_ in rows):
                self.ask.drop("implausible_process_list")
                continue
            known = True
            for pid, used, *place in rows:
                # One with several contexts has its memory in each list.
                key = (pid, alone or where.get((place[0], place[1]), ""))
                before = memory.get(key)
                memory[key] = used if before is None else max(before, used or 0)
        return memory if known else None


def _plausible(pid: int, used: int | None, total_bytes: int | None) -> bool:
    """Whether a record can be one; a driver that lays its records out differently gives others."""
    return 0 < pid <= HIGHEST_PID and (used is None or total_bytes is None or used <= total_bytes)


def _together(
    parts: Iterable[dict[tuple[int, str], int | None]],
) -> dict[tuple[int, str], int | None] | None:
    found: dict[tuple[int, str], int | None] | None = None
    for part in parts:
        found = {**(found or {}), **part}
    return found
