"""One GPU as its lane asks it: which calls it knows, and where its utilization samples stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gputally.machine import Machine
from gputally.model import Activity, Holder, Losses, Pace, Unreadable
from gputally.sources.nvml_fields import ENERGY, GAUGES, INFO, PROCESS_LISTS, SAMPLES, Field, Values

NOT_SUPPORTED = 3
NOT_FOUND = 6
FUNCTION_NOT_FOUND = 13
UNSUPPORTED = (NOT_SUPPORTED, FUNCTION_NOT_FOUND)

UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_MISMATCH = 1, 9, 18
GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND = 15, 16, 28
DRIVER_GONE = (UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_MISMATCH)
FATAL = (*DRIVER_GONE, GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND)
"""Codes after which there is no point in asking this GPU more."""


@dataclass(frozen=True)
class Answers:
    """What one GPU answered at one pace: attributes of its Device, and of its info where it was asked."""

    uuid: str
    pace: Pace
    values: Values
    info: Values | None


class _Gone(Exception):
    """The GPU or its driver said that there is nothing more to be had."""


@dataclass
class Gpu:
    """The GPU at one index; only its lane touches it."""

    machine: Machine
    index: int
    uuid: str | None = None
    _unsupported: set[tuple[Any, ...]] = field(default_factory=set)
    _last_seen: int = 0
    _sampled_at: float | None = None
    _listed: frozenset[int] = frozenset()
    _answered: bool = False
    _errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    _dropped: Counter[str] = field(default_factory=Counter)

    def read(self, pace: Pace, identify: bool, wanted: Callable[[str], bool]) -> Answers:
        """Ask everything that is due; of a GPU that is not wanted, only who it is."""
        try:
            info = self._identify() if identify or self.uuid is None else None
            values = self._values(pace) if wanted(str(self.uuid)) else {}
        except _Gone as gone:
            self._sampled_at = None
            raise gone.args[0] from None
        return Answers(str(self.uuid), pace, values, info)

    def losses(self) -> Losses:
        """What went wrong since this was last asked; for whoever holds the GPU while its lane rests."""
        losses = Losses(samples=dict(self._dropped), nvml_errors=dict(self._errors))
        self._dropped.clear()
        self._errors.clear()
        return losses

    def _identify(self) -> Values | None:
        uuid = str(self._ask(self.index, "nvmlDeviceGetUUID"))
        if uuid == self.uuid:
            return None
        self.uuid = uuid
        self._unsupported.clear()
        self._last_seen, self._sampled_at, self._listed = 0, None, frozenset()
        return self._fields(INFO)

    def _values(self, pace: Pace) -> Values:
        self._answered = False
        values = self._energy() | self._activity()
        new_faces = any(a.pid not in self._listed for a in values["activities"] or ())
        if pace is Pace.INTERVAL or new_faces:
            values |= self._holders()
        if pace is Pace.INTERVAL:
            values |= self._fields(GAUGES) | {"gauges_at": self.machine.clock.monotonic()}
        if not self._answered:
            raise _Gone(Unreadable(f"gpu{self.index}: no call is answered"))
        return values

    def _energy(self) -> Values:
        values = {"energy_uj": None} | self._fields((ENERGY,))
        return values | {"read_at": self.machine.clock.monotonic()}

    def _activity(self) -> Values:
        """Samples since the answer before; the first, of the driver's whole past, only sets the mark."""
        before = self._sampled_at
        try:
            rows = self._ask_supported(SAMPLES, self._last_seen)
        except Unreadable as error:
            if error.code != NOT_FOUND:
                return {"activities": None, "activity_seconds": None}
            rows = []
        self._sampled_at = self.machine.clock.monotonic()
        self._last_seen = max([self._last_seen, *(row[1] for row in rows)])
        if before is None:
            return {"activities": None, "activity_seconds": None}
        return {"activities": tuple(self._samples(rows)), "activity_seconds": self._sampled_at - before}

    def _samples(self, rows: list[list[int]]) -> Iterable[Activity]:
        for pid, timestamp, sm, memory, encoder, decoder in rows:
            if pid == 0 or max(sm, memory, encoder, decoder) > 100:
                self._dropped["utilization_out_of_range"] += 1
                continue
            yield Activity(pid, timestamp, sm / 100, memory / 100, encoder / 100, decoder / 100)

    def _holders(self) -> Values:
        """Processes of all lists, each pid once: one with several contexts has its memory in each list."""
        memory: dict[int, int | None] = {}
        known = False
        for call in PROCESS_LISTS:
            try:
                rows = self._ask_supported(call)
            except Unreadable:
                continue
            known = True
            for pid, used, *_ in rows:
                memory[pid] = max((m for m in (memory.get(pid), used) if m is not None), default=None)
        self._listed = frozenset(memory)
        return {"holders": tuple(Holder(pid, used) for pid, used in memory.items()) if known else None}

    def _fields(self, fields: Iterable[Field]) -> Values:
        """Values of those fields; mappings of one name are laid together."""
        values: Values = {}
        for row in fields:
            for name, value in self._field(row).items():
                values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
        return values

    def _field(self, row: Field) -> Values:
        for call in row.calls:
            try:
                return row.values(self._ask_supported(*call))
            except Unreadable as error:
                if error.code not in UNSUPPORTED:
                    break
            except (TypeError, ValueError, KeyError, IndexError):
                self._errors[call[0], "malformed"] += 1
                break
        return {}

    def _ask_supported(self, *call: Any) -> Any:
        """Ask, unless this GPU once said that it cannot."""
        question = call[:1] if call[0] == SAMPLES else call
        if question in self._unsupported:
            raise Unreadable(f"{call[0]}: not supported", NOT_SUPPORTED)
        try:
            return self._ask(self.uuid, *call)
        except Unreadable as error:
            if error.code in UNSUPPORTED:
                self._unsupported.add(question)
            raise

    def _ask(self, gpu: str | int | None, call: str, *args: Any) -> Any:
        try:
            answer = self.machine.nvml(gpu, call, *args)
            self._answered = True
            return answer
        except Unreadable as error:
            self._answered |= error.code == NOT_FOUND
            if error.code not in (*UNSUPPORTED, NOT_FOUND):
                self._errors[call, str(error.code)] += 1
            if error.code in FATAL or gpu == self.index:
                raise _Gone(error) from None
            raise
