"""One GPU as its lane asks it: who it is, and everything that is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gputally.machine import Machine
from gputally.model import Pace, Unreadable
from gputally.sources.nvml_ask import Asker, Gone
from gputally.sources.nvml_batch import Spent
from gputally.sources.nvml_codes import Meaning, meaning
from gputally.sources.nvml_fields import (
    ENERGY,
    FIXED,
    GAUGES,
    INFO,
    MODE_AND_ENERGY,
    PCIE_THROUGHPUT,
    SELDOM,
    Values,
)
from gputally.sources.nvml_gpm import Gpm
from gputally.sources.nvml_mig import Mig
from gputally.sources.nvml_numbered import Numbered
from gputally.sources.nvml_processes import Processes
from gputally.sources.nvml_seldom import Seldom
from gputally.sources.nvml_values import FIELD_ROWS

REGISTER = "nvmlDeviceRegisterEvents"
NEVER = -1


class Answers(NamedTuple):
    """What one GPU answered at one pace: attributes of its Device."""

    uuid: str
    pace: Pace
    values: Values
    took: float
    """Seconds, by the machine's clock."""


class Gpu:
    """The GPU at one index; only its lane touches it."""

    def __init__(self, machine: Machine, spent: Spent, index: int, *, pcie_throughput: bool = False) -> None:
        self.index = index
        self.ask = Asker(machine, spent)
        self.info: Values = {}
        """Attributes of its DeviceInfo."""
        self.fixed: Values = {}
        """Attributes of its Device that stay."""
        self._clock = machine.clock
        self._gauges = GAUGES + (PCIE_THROUGHPUT if pcie_throughput else ())
        self._seldom = Seldom(self.ask)
        self._numbered = Numbered(self.ask, self._seldom, FIELD_ROWS)
        self._processes = Processes(self.ask)
        self._mig = Mig(self.ask)
        self._gpm = Gpm(self.ask)
        self._known: Values = {}
        """The newest memory size and instances, for lists that are read between two intervals."""
        self._layout: tuple[str, ...] | None = None
        self._registered = self._refused = NEVER
        """The set of events in which it is, and the one that would not have it when it was last tried."""

    def read(self, pace: Pace, identify: bool, wanted: Callable[[str], bool], events: int) -> Answers:
        """Ask everything that is due; of a GPU that is not wanted, only who it is."""
        began = self._clock.monotonic()
        try:
            if identify or not self.ask.uuid:
                self._identify()
            self.info = self.info or self.ask.fields(INFO, {})
            read = wanted(self.ask.uuid)
            if read:
                self.fixed = self.fixed or self.ask.fields(FIXED, {})
            values = self._values(pace) if read else {}
            self._register(events if read else NEVER, pace)
        except Exception as error:
            self._processes.pause()
            self._seldom.renew()
            self._registered = NEVER
            if isinstance(error, Gone):
                raise error.args[0] from None
            raise
        return Answers(self.ask.uuid, pace, values, self._clock.monotonic() - began)

    def _identify(self) -> None:
        """Learn who is at this index, and forget who was there before."""
        try:
            uuid = str(self.ask.ask(self.index, "nvmlDeviceGetUUID"))
        except Unreadable as error:
            raise Gone(error) from None
        if uuid == self.ask.uuid:
            return
        self.ask.uuid, self._registered, self._layout = uuid, NEVER, None
        self.info, self.fixed, self._known = {}, {}, {}
        self._forget_abilities()
        self._processes.forget()
        self._mig.forget()

    def _values(self, pace: Pace) -> Values:
        self.ask.begin()
        if pace is Pace.INTERVAL:
            self._seldom.begin(self._clock.monotonic())
        first = MODE_AND_ENERGY if pace is Pace.INTERVAL else ENERGY
        values = self.ask.fields(first, {"energy_uj": None})
        values["read_at"] = self._clock.monotonic()
        values |= self._processes.activity()
        if pace is Pace.INTERVAL:
            self._everything(values)
        if pace is Pace.INTERVAL or self._processes.strangers():
            values |= self._processes.holders(
                self._known.get("memory_total_bytes"), self._known.get("instances")
            )
        if pace is Pace.INTERVAL:
            values["denied"] = tuple(sorted(self.ask.denied))
        if pace is Pace.INTERVAL or self.ask.failed:
            self.ask.check()
        return values

    def _everything(self, values: Values) -> None:
        """All that is read once an interval, added to the values."""
        self._mig.read(values)
        self._heed_layout(values)
        self.ask.fields(self._gauges, values)
        self._seldom.read(SELDOM)
        self._numbered.read(values)
        self._seldom.recall(values)
        self._gpm.read(values)
        values["gauges_at"] = self._clock.monotonic()
        self._known = values

    def _heed_layout(self, values: Values) -> None:
        """What a GPU can changes with its MIG mode and instances."""
        instances = values.get("instances")
        layout = None if instances is None else tuple(instance.uuid for instance in instances)
        if layout != self._layout:
            self._layout = layout
            self._forget_abilities()

    def _forget_abilities(self) -> None:
        self.ask.forget()
        self._seldom.forget()
        self._numbered.forget()
        self._gpm.forget()

    def _register(self, events: int, pace: Pace) -> None:
        """Have Xids of this GPU told to the set of that number; done here, so that a hang is our own."""
        if events in (NEVER, self._registered) or (events == self._refused and pace is Pace.TICK):
            return
        try:
            self.ask.supported(self.ask.uuid, REGISTER)
        except Unreadable as error:
            if meaning(error.code) not in (Meaning.ABSENT, Meaning.DENIED):
                self._refused = events  # until the next interval
                return
        self._registered = events
