"""Asking one GPU: what it cannot is remembered, what failed is counted, what it took is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gputally.counted import NO_LOSSES, Losses
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.sources.nvml_batch import Batch, Call, Spent, batch
from gputally.sources.nvml_codes import NOT_SUPPORTED, Meaning, meaning
from gputally.sources.nvml_fields import FIELD_VALUES, SAMPLES, Field, FieldValue, Values

SLOWLY = 30.0
"""Seconds after which slow rows are asked again."""
MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError)

Rows = tuple[Field, ...]


class Gone(Exception):
    """The GPU or its driver said that there is nothing more to be had; the cause is the argument."""


class _Sheet(NamedTuple):
    """Those of some rows that this GPU did not say it cannot, and their calls."""

    rows: list[Field]
    spent: list[Sequence[float]]
    """Where to append what their calls took."""
    make: Batch


class _Due(NamedTuple):
    """Numbered fields that are to be asked, as the call wants them, and rows for those that the GPU lacks."""

    rows: list[FieldValue]
    wanted: list[list[int]]
    keys: list[str]
    instead: Rows


@dataclass
class Asker:
    """Questions to one GPU and its instances; only its lane touches it."""

    machine: Machine
    spent: Spent
    uuid: str = ""
    answered: bool = False
    failed: bool = False
    """Since `begin`: whether anything was answered, and whether anything failed that is supported."""
    denied: set[str] = field(default_factory=set)
    _kept: Values = field(default_factory=dict)
    """What slow rows told when they were last asked."""
    _recalled: Values | None = None
    """The same, as it was handed out; None after any of it changed."""
    _told: set[Field | FieldValue] = field(default_factory=set)
    """Slow rows that need not be asked yet."""
    _asked_all_at: float | None = None
    _left: dict[Field, tuple[Call, ...]] = field(default_factory=dict)
    """Row -> those of its calls that this GPU did not say it cannot; all of them where there is none."""
    _sheets: dict[Rows, _Sheet] = field(default_factory=dict)
    _due: _Due | None = None
    _absent: set[FieldValue] = field(default_factory=set)
    _unsupported: set[tuple[Any, ...]] = field(default_factory=set)
    _errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    _dropped: Counter[str] = field(default_factory=Counter)
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
            self._drop_kept()

    def renew(self) -> None:
        """The GPU fell silent: what it told before is not kept."""
        self._asked_all_at = None

    def forget(self) -> None:
        """What it could not is no longer true: another driver, another layout, another GPU."""
        self._sheets.clear()
        self._unsupported.clear()
        self._left.clear()
        self._absent.clear()
        self._drop_kept()

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

    def fields(self, rows: Rows, values: Values) -> Values:
        """The values, with what those rows tell."""
        self._put(self._ready(rows), values)
        return values

    def seldom(self, rows: Rows) -> None:
        """Ask those rows that were not asked for a while; what they tell is kept."""
        due = tuple([row for row in rows if row not in self._told])
        if due:
            self._told.update(due)
            self._recalled = None
            self._told.difference_update(self._put(self._ready(due), self._kept))

    def recall(self, values: Values) -> None:
        """Add what is kept; mappings of one name become one mapping."""
        recalled = self._recalled
        if recalled is None:  # what is handed out stays as it is when more is told
            recalled = {name: dict(v) if type(v) is dict else v for name, v in self._kept.items()}
            self._recalled = recalled
        parts = [name for name in values.keys() & recalled.keys() if type(recalled[name]) is dict]
        both = {name: {**values[name], **recalled[name]} for name in parts}
        values |= recalled
        values |= both

    def field_values(self, rows: Sequence[FieldValue], values: Values) -> None:
        """Add values of those numbered fields, all in one call; what slow rows tell is kept."""
        due = self._due = self._due or self._fields_due(rows)
        answers = self._field_answers(due)
        for row, key in zip(due.rows, due.keys, strict=True):
            raw = answers.get(key)
            if type(raw) is dict:
                self._note_field(row, raw.get("error"))
            elif raw is not None:
                self.answered = True
                if row.slow:
                    self._told.add(row)
                    self._due = self._recalled = None
                row.put(self._kept if row.slow else values, raw)
        self.seldom(due.instead if self._due else self._fields_due(rows).instead)

    def supported(self, gpu: str, call: str, *args: Any) -> Any:
        """Ask, unless this GPU once said that it cannot."""
        question = _question(gpu, call, *args) if args else (gpu, call)
        if question in self._unsupported:
            raise Unreadable(f"{call}: not supported", NOT_SUPPORTED)
        try:
            return self.ask(gpu, call, *args)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._unsupported.add(question)
            raise

    def ask(self, gpu: str | int | None, call: str, *args: Any) -> Any:
        """Ask, and count what went wrong; a GPU that is not well raises Gone."""
        monotonic = self.machine.clock.monotonic
        began = monotonic()
        try:
            answer = self.machine.nvml(gpu, call, *args)
            self.answered = True
            return answer
        except Unreadable as error:
            self._note(call, error)
            raise
        finally:
            self.spent.on(call).append((began, monotonic()))

    def _drop_kept(self) -> None:
        self._told.clear()
        self._kept, self._due, self._recalled = {}, None, None

    def _ready(self, rows: Rows) -> _Sheet:
        """The sheet of those rows, made once."""
        return self._sheets.get(rows) or self._sheets.setdefault(rows, self._sheet(rows))

    def _sheet(self, rows: Rows) -> _Sheet:
        able = [row for row in rows if self._left.get(row, row.calls)]
        calls = [self._left.get(row, row.calls)[0] for row in able]
        return _Sheet(
            able, self.spent.on(*[call[0] for call in calls]), batch(self.machine, self.uuid, calls)
        )

    def _put(self, sheet: _Sheet, values: Values) -> Collection[Field]:
        """Add what the rows tell to the values; gives back rows that told nothing now, but may do later."""
        silent, lacking = set(), []
        answers, times = sheet.make()
        sheet.spent.append(times)
        for row, answer in zip(sheet.rows, answers, strict=False):  # a GPU that is lost ends it
            if type(answer) is Unreadable:
                if self._cannot(row, answer):
                    lacking.append(row)
                else:
                    silent.add(row)
                continue
            self.answered = True
            try:
                row.put(values, answer)
            except MALFORMED:
                self._errors[self._left.get(row, row.calls)[0][0], "malformed"] += 1
                silent.add(row)
        if lacking:
            self._sheets.clear()
            silent.update(self._put(self._sheet(tuple(lacking)), values))
        return silent

    def _cannot(self, row: Field, error: Unreadable) -> bool:
        """Note what went wrong, and whether it was that this GPU has no such call."""
        calls = self._left.get(row, row.calls)
        self._note(calls[0][0], error)
        if meaning(error.code) is not Meaning.ABSENT:
            return False
        self._left[row] = calls[1:]
        return True

    def _fields_due(self, rows: Sequence[FieldValue]) -> _Due:
        due = [row for row in rows if row not in self._told and row not in self._absent]
        instead = tuple(row.instead for row in rows if row.instead is not None and row in self._absent)
        return _Due(due, [[row.id, row.scope] for row in due], [str(row.id) for row in due], instead)

    def _field_answers(self, due: _Due) -> dict[str, Any]:
        if not due.rows:
            return {}
        try:
            answers = self.supported(self.uuid, FIELD_VALUES, due.wanted)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._absent.update(due.rows)
                self._due = None
            return {}
        return answers if isinstance(answers, dict) else {}

    def _note_field(self, row: FieldValue, code: int | None) -> None:
        if meaning(code) is Meaning.ABSENT:
            self._absent.add(row)
            self._due = None
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


def _question(gpu: str, call: str, *args: Any) -> tuple[Any, ...]:
    """Whatever lists are asked for, and from when on samples are, is the same question."""
    if call == SAMPLES:
        return (gpu, call)
    return (gpu, call, *[arg for arg in args if not isinstance(arg, list)])
