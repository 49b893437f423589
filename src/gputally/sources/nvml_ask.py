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
from gputally.sources.nvml_fields import FIELD_VALUES, SAMPLES, Field, Put, Values

MALFORMED = (TypeError, ValueError, KeyError, IndexError, AttributeError)

Rows = tuple[Field, ...]


class Gone(Exception):
    """The GPU or its driver said that there is nothing more to be had; the cause is the argument."""


class _Sheet(NamedTuple):
    """Those of some rows that this GPU did not say it cannot, and their calls."""

    rows: list[Field]
    puts: list[Put]
    spent: list[Sequence[float]]
    """Where to append what their calls took."""
    make: Batch


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
    _left: dict[Field, tuple[Call, ...]] = field(default_factory=dict)
    """Row -> those of its calls that this GPU did not say it cannot; all of them where there is none."""
    _sheets: dict[Rows, _Sheet] = field(default_factory=dict)
    _unsupported: set[tuple[Any, ...]] = field(default_factory=set)
    _errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    _dropped: Counter[str] = field(default_factory=Counter)
    _last_code: int | None = None

    def begin(self) -> None:
        """A new reading."""
        self.answered = self.failed = False

    def forget(self) -> None:
        """What it could not is no longer true: another driver, another layout, another GPU."""
        self._sheets.clear()
        self._unsupported.clear()
        self._left.clear()

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

    def malformed(self, call: str) -> None:
        """An answer that is not as it should be."""
        self._errors[call, "malformed"] += 1

    def field_failed(self, number: int, code: int | None) -> None:
        """A numbered field that this GPU knows, but did not tell."""
        if meaning(code) is Meaning.DENIED:
            self.denied.add(f"{FIELD_VALUES} {number}")
        elif meaning(code) is not Meaning.EMPTY:
            self._errors[FIELD_VALUES, str(code)] += 1

    def fields(self, rows: Rows, values: Values) -> Values:
        """The values, with what those rows tell."""
        self.put(rows, values)
        return values

    def put(self, rows: Rows, values: Values) -> Collection[Field]:
        """Add what the rows tell to the values; gives back rows that told nothing now, but may do later."""
        sheet = self._sheets.get(rows) or self._sheets.setdefault(rows, self._sheet(rows))
        answers, times = sheet.make()
        sheet.spent.append(times)
        if answers and Unreadable not in map(type, answers):
            self.answered = True
            try:
                for put, answer in zip(sheet.puts, answers, strict=True):
                    put(values, answer)
                return ()
            except MALFORMED:
                pass  # one of them; the others are not lost
        return self._put_each(sheet, answers, values)

    def supported(self, gpu: str, call: str, *args: Any) -> Any:
        """Ask, unless this GPU once said that it cannot."""
        if self._unsupported and _question(gpu, call, *args) in self._unsupported:
            raise Unreadable(f"{call}: not supported", NOT_SUPPORTED)
        try:
            return self.ask(gpu, call, *args)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._unsupported.add(_question(gpu, call, *args))
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

    def _sheet(self, rows: Rows) -> _Sheet:
        able = [row for row in rows if self._left.get(row, row.calls)]
        calls = [self._left.get(row, row.calls)[0] for row in able]
        return _Sheet(
            able,
            [row.put for row in able],
            self.spent.on(*[call[0] for call in calls]),
            batch(self.machine, self.uuid, calls),
        )

    def _put_each(self, sheet: _Sheet, answers: Sequence[Any], values: Values) -> Collection[Field]:
        """The same where something is wrong with an answer."""
        silent, lacking = set(), []
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
                self.malformed(self._left.get(row, row.calls)[0][0])
                silent.add(row)
        if lacking:
            self._sheets.clear()
            silent.update(self.put(tuple(lacking), values))
        return silent

    def _cannot(self, row: Field, error: Unreadable) -> bool:
        """Note what went wrong, and whether it was that this GPU has no such call."""
        calls = self._left.get(row, row.calls)
        self._note(calls[0][0], error)
        if meaning(error.code) is not Meaning.ABSENT:
            return False
        self._left[row] = calls[1:]
        return True

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
