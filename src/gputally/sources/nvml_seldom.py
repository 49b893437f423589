"""What hardly ever changes: a GPU is asked for it every half minute, and what it told is kept meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from gputally.sources.nvml_ask import Asker, Rows
from gputally.sources.nvml_fields import Field, Values

SLOWLY = 30.0
"""Seconds after which slow rows are asked again."""


@dataclass
class Seldom:
    """Slow rows of one GPU; only its lane touches it."""

    ask: Asker
    due: bool = True
    """Whether this reading asks for all of them."""
    _kept: Values = field(default_factory=dict)
    _recalled: Values | None = None
    """The same, as it was handed out; None after any of it changed."""
    _silent: set[Field] = field(default_factory=set)
    """Rows that told nothing when they were asked, but may at the next reading."""
    _begun_at: float | None = None

    def begin(self, now: float) -> None:
        """A reading of everything; after a while that includes the slow rows."""
        if self._begun_at is None or now - self._begun_at >= SLOWLY:
            self._begun_at = now
            self.ask.denied.clear()
            self.forget()

    def renew(self) -> None:
        """The GPU fell silent: what it told before is not kept."""
        self._begun_at = None

    def forget(self) -> None:
        """What it told is no longer true: another driver, another layout, another GPU."""
        self._kept, self._recalled, self.due = {}, None, True
        self._silent.clear()

    def told(self) -> Values:
        """Where to put what slow rows tell."""
        self._recalled = None
        return self._kept

    def read(self, rows: Rows, now: Rows = ()) -> None:
        """Ask those rows if they are due, and some of them now in any case; what they tell is kept."""
        if not self.due:
            if not self._silent and not now:
                return
            rows = tuple([row for row in rows if row in self._silent or row in now])
        if rows:
            self._silent.difference_update(rows)
            self._silent.update(self.ask.put(rows, self.told()))

    def recall(self, values: Values) -> None:
        """Add what is kept; mappings of one name become one mapping."""
        recalled, self.due = self._recalled, False
        if recalled is None:  # what is handed out stays as it is when more is told
            recalled = {name: dict(v) if type(v) is dict else v for name, v in self._kept.items()}
            self._recalled = recalled
        parts = [name for name in values.keys() & recalled.keys() if type(recalled[name]) is dict]
        both = {name: {**values[name], **recalled[name]} for name in parts}
        values |= recalled
        values |= both
