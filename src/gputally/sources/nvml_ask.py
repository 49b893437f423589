"""Asking one GPU: what it cannot is remembered, what failed is counted, what it took is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gputally.counted import NO_LOSSES, Losses
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.sources.nvml_codes import NOT_SUPPORTED, Meaning, meaning
from gputally.sources.nvml_fields import FIELD_VALUES, SAMPLES, Field, FieldValue, Values

SLOWLY = 30.0
"""Seconds after which slow rows are asked again."""


_Ready = tuple[str, list[float], Callable[[], Any]]
"""A call, how often it was made and how long that took together, and what makes it."""


class Gone(Exception):
    """The GPU or its driver said that there is nothing more to be had; the cause is the argument."""


@dataclass
class Asker:
    """Questions to one GPU and its instances; only its lane touches it."""

    machine: Machine
    uuid: str = ""
    answered: bool = False
    failed: bool = False
    """Since `begin`: whether anything was answered, and whether anything failed that is supported."""
    denied: set[str] = field(default_factory=set)
    _kept: dict[Field | FieldValue, Values] = field(default_factory=dict)
    """What slow rows told when they were last asked."""
    _together: Values | None = None
    """All of that laid together."""
    _asked_all_at: float | None = None
    _left: dict[Field, tuple[tuple[Any, ...], ...]] = field(default_factory=dict)
    """Row -> those of its calls that this GPU did not say it cannot; all of them where there is none."""
    _ready: dict[tuple[Any, ...], _Ready] = field(default_factory=dict)
    """Calls of rows, made ready when they were first made."""
    _absent: set[FieldValue] = field(default_factory=set)
    _unsupported: set[tuple[Any, ...]] = field(default_factory=set)
    _errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    _dropped: Counter[str] = field(default_factory=Counter)
    _spent: dict[str, list[float]] = field(default_factory=dict)
    """Call -> how often, and how long together."""
    _last_code: int | None = None

    def begin(self) -> None:
        """A new reading."""
        self.answered = self.failed = False

    def begin_all(self) -> None:
        """A reading of everything; after a while that includes the slow rows."""
        now = self.machine.clock.monotonic()
        if self._asked_all_at is None or now - self._asked_all_at >= SLOWLY:
            self._asked_all_at = now
            self.denied.clear()
            self._kept.clear()
            self._together = None

    def renew(self) -> None:
        """The GPU fell silent: what it told before is not kept."""
        self._asked_all_at = None

    def forget(self) -> None:
        """What it could not is no longer true: another driver, another layout, another GPU."""
        self.unready()
        self._unsupported.clear()
        self._left.clear()
        self._absent.clear()
        self._kept.clear()
        self._together = None

    def unready(self) -> None:
        """The GPU was found anew: calls that were made ready are of the time before."""
        self._ready.clear()

    def check(self) -> None:
        """Raise Gone unless something was answered since `begin`."""
        if not self.answered:
            code = self._last_code if self.failed else NOT_SUPPORTED
            raise Gone(Unreadable(f"{self.uuid}: no call is answered", code))

    def drop(self, reason: str, count: int = 1) -> None:
        """Readings that cannot be true."""
        self._dropped[reason] += count

    def losses(self) -> Losses:
        """What went wrong since this was last asked; for whoever holds the GPU while its lane rests."""
        if not self._dropped and not self._errors:
            return NO_LOSSES
        losses = Losses(samples=dict(self._dropped), nvml_errors=dict(self._errors))
        self._dropped.clear()
        self._errors.clear()
        return losses

    def times(self) -> dict[str, list[float]]:
        """Call -> how often since this was last asked, and how long together."""
        times = {call: [*spent] for call, spent in self._spent.items() if spent[0]}
        for spent in self._spent.values():
            spent[:] = 0, 0.0
        return times

    def fields(self, rows: Iterable[Field]) -> Values:
        """Values of those rows but the slow, which `kept` tells; mappings of one name are laid together."""
        values: Values = {}
        for row in rows:
            if row not in self._kept and (told := self._field(row)):
                self._lay(values, row, told)
        return values

    def field_values(self, rows: Iterable[FieldValue]) -> Values:
        """Values of those numbered fields, all in one call; a row that has none may have another call."""
        values: Values = {}
        due = [row for row in rows if row not in self._kept]
        answers = self._field_answers([row for row in due if row not in self._absent])
        for row in due:
            raw = answers.get(str(row.id))
            if type(raw) is dict:
                self._note_field(row, raw.get("error"))
            elif raw is not None:
                self.answered = True
                self._lay(values, row, row.values(raw))
        instead = [row.instead for row in due if row.instead is not None and row in self._absent]
        return values | self.fields(instead)

    def kept(self) -> Values:
        """What the slow rows told when they were last asked."""
        if self._together is None:
            self._together = {}
            for told in self._kept.values():
                lay(self._together, told)
        return self._together

    def _lay(self, values: Values, row: Field | FieldValue, told: Values) -> None:
        """Add what a row told to the values, or keep it."""
        if row.slow:
            self._kept[row], self._together = told, None
        else:
            lay(values, told)

    def supported(self, gpu: str, *call: Any) -> Any:
        """Ask, unless this GPU once said that it cannot."""
        question = (gpu, *call) if len(call) == 1 else _question(gpu, *call)
        if question in self._unsupported:
            raise Unreadable(f"{call[0]}: not supported", NOT_SUPPORTED)
        try:
            return self.ask(gpu, *call)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._unsupported.add(question)
            raise

    def ask(self, gpu: str | int | None, call: str, *args: Any) -> Any:
        """Ask, and count what went wrong; a GPU that is not well raises Gone."""
        return self._ask(call, self._time_of(call), self.machine.nvml, gpu, call, *args)

    def _ask(self, call: str, spent: list[float], ask: Callable[..., Any], *args: Any) -> Any:
        monotonic = self.machine.clock.monotonic
        began = monotonic()
        try:
            answer = ask(*args)
            self.answered = True
            return answer
        except Unreadable as error:
            self._note(call, error)
            raise
        finally:
            spent[0] += 1
            spent[1] += monotonic() - began

    def _make_ready(self, call: tuple[Any, ...]) -> _Ready:
        """The call on this GPU; some machines can make one ready, so that it costs less from then on."""
        make = getattr(self.machine.nvml, "ready", None)
        ask = partial(self.machine.nvml, self.uuid, *call) if make is None else make(self.uuid, *call)
        ready = self._ready[call] = (call[0], self._time_of(call[0]), ask)
        return ready

    def _time_of(self, call: str) -> list[float]:
        spent = self._spent.get(call)
        if spent is None:
            spent = self._spent[call] = [0, 0.0]
        return spent

    def _field(self, row: Field) -> Values:
        for call in self._left.get(row, row.calls):
            try:
                return row.values(self._ask(*(self._ready.get(call) or self._make_ready(call))))
            except Unreadable as error:
                if meaning(error.code) is not Meaning.ABSENT:
                    break
                self._left[row] = tuple(one for one in self._left.get(row, row.calls) if one != call)
            except (TypeError, ValueError, KeyError, IndexError, AttributeError):
                self._errors[call[0], "malformed"] += 1
                break
        return {}

    def _field_answers(self, rows: list[FieldValue]) -> dict[str, Any]:
        if not rows:
            return {}
        try:
            answers = self.supported(self.uuid, FIELD_VALUES, [[row.id, row.scope] for row in rows])
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._absent.update(rows)
            return {}
        return answers if isinstance(answers, dict) else {}

    def _note_field(self, row: FieldValue, code: int | None) -> None:
        if meaning(code) is Meaning.ABSENT:
            self._absent.add(row)
        elif meaning(code) is Meaning.DENIED:
            self.denied.add(f"{FIELD_VALUES} {row.id}")
        elif meaning(code) is not Meaning.EMPTY:
            self._errors[FIELD_VALUES, str(code)] += 1

    def _note(self, call: str, error: Unreadable) -> None:
        what = meaning(error.code)
        self.answered |= what is Meaning.EMPTY
        if what in (Meaning.ABSENT, Meaning.EMPTY):
            return
        self.failed = True
        self._last_code = error.code
        self._errors[call, "none" if error.code is None else str(error.code)] += 1
        if what is Meaning.DENIED:
            self.denied.add(call)
        if what in (Meaning.STATE, Meaning.DRIVER):
            raise Gone(error) from None


def lay(values: Values, more: Values) -> None:
    """Add values to others; mappings of one name become one mapping."""
    for name, value in more.items():
        values[name] = {**values[name], **value} if name in values and type(value) is dict else value


def _question(gpu: str, call: str, *args: Any) -> tuple[Any, ...]:
    """Whatever lists are asked for, and from when on samples are, is the same question."""
    return (gpu, call, *(() if call == SAMPLES else [arg for arg in args if not isinstance(arg, list)]))
